"""Personalising an activity recogniser: p-Meta against what a user would try instead.

    python benchmarks/sensors.py --data DIR --out OUT [--methods pmeta-lr maml++] [--folds 4]

DIR is what `pmeta data import sp-sw-har` makes. People are divided into folds; each fold's people
are never seen by the trainings that are tested on them. For each fold and each set of devices to
train on (phones; both) it trains the methods and tests them on phones and watches, with 1, 2, 5 and
10 labelled windows of each activity, beside an ordinary classifier as it is, its prototypes, and
its fine-tuning. It may be stopped and started again. OUT/scores.json has a row for each person.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pmeta.method.inner import InnerLoop
from pmeta.sensors import controls
from pmeta.sensors.config import SensorConfig
from pmeta.sensors.evaluate import scored
from pmeta.sensors.restore import load
from pmeta.sensors.tasks import PersonTask, personal_task
from pmeta.sensors.train import open_data, train
from pmeta.training.run_folder import Run
from pmeta.training.workers import Group

SHOTS = (1, 2, 5, 10)
DRAWS = 4
TRAINED_ON = {"phone": (("phone",), 1.0), "both": ((), 0.3)}
"""Devices, and the share of tasks that are turned: another device is worn another way."""
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=["pmeta-lr"])
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--only", nargs="+", default=list(TRAINED_ON))
    options = parser.parse_args()
    torch.set_num_threads(1)
    people = sorted(p.name for p in Path(options.data).iterdir() if p.is_dir())
    order = np.random.default_rng(0).permutation(people).tolist()
    for fold in range(options.folds):
        for trained_on in options.only:
            for method in options.methods:
                one(options, order[fold :: options.folds], fold, trained_on, method)
    collect(options.out)


def one(options: Any, tested: list[str], fold: int, trained_on: str, method: Any) -> None:
    """Train with the other people, and test with these."""
    out = options.out / f"{trained_on}-{method}-{fold}"
    if (out / "scores.json").exists():
        return
    devices, rotate = TRAINED_ON[trained_on]
    rest = sorted({p.name for p in Path(options.data).iterdir() if p.is_dir()} - {*tested})
    config = SensorConfig(
        data=options.data, out=str(out), method=method, devices=devices, rotate=rotate, workers=1,
        val_people=tuple(rest[:2]), test_people=tuple(tested),
        memory_budget="45kB" if method.startswith("pmeta") else "",
    )  # fmt: skip
    train(Group(), config)
    test = open_data(config).test
    assert test
    trained, pooled = load(str(out)), Run(out).load("pooled")
    assert pooled
    loop = InnerLoop(trained.net, config.method_row(), batch=1)
    meta = dataclasses.replace(trained.meta, mask=trained.meta.updates())

    def adapted(task: PersonTask) -> float:
        return scored(loop, loop.adapt(meta, (task.support_x, task.support_y)).w, task)

    ways = {method: adapted, f"{method}, no step": lambda task: scored(loop, meta.w, task)}
    ways |= controls_of(trained.net, pooled.tensors)
    rows: list[Row] = []
    for g, name in enumerate(test.groups):
        person, device = name.split("/")
        for shots in SHOTS:
            tasks = [personal_task(test, g, 0, i, shots) for i in range(DRAWS)]
            for way, score in ways.items():
                value = float(np.mean([score(task) for task in tasks]))
                key = {"fold": fold, "trained_on": trained_on, "way": way}
                rows.append({**key, "person": person, "device": device, "shots": shots,
                             "accuracy": value})  # fmt: skip
    (out / "scores.json").write_text(json.dumps(rows))
    print(f"{out.name}: done", flush=True)


def controls_of(net: Any, w: Any) -> dict[str, Any]:
    """What needs no meta-training, by name."""
    ways: dict[str, Any] = {
        "pooled": lambda task: controls.pooled(net, w, task),
        "prototypes": lambda task: controls.prototypes(net, w, task),
    }
    for last in (True, False):
        for rate in controls.RATES:
            for steps in controls.STEPS:
                title = f"fine-tuned {'last layer' if last else 'all layers'}"
                ways[f"{title}|{rate}|{steps}"] = lambda task, r=rate, s=steps, h=last: (
                    controls.fine_tuned(net, w, task, r, s, h)
                )
    return ways


def collect(out: Path) -> None:
    """All rows, and the table: mean over people with CI95, five windows of each activity."""
    rows = [r for path in sorted(out.glob("*/scores.json")) for r in json.loads(path.read_text())]
    (out / "scores.json").write_text(json.dumps(rows))
    for trained_on in TRAINED_ON:
        for device in ("phone", "watch"):
            own = [r for r in rows if (r["trained_on"], r["device"]) == (trained_on, device)]
            for line in table([r for r in own if r["shots"] == 5]):
                print(f"trained on {trained_on}, {device}: {line}")


def table(rows: list[Row]) -> list[str]:
    """A line for each way; of fine-tuning the step size that does best on these very people."""
    means = {
        way: {r["person"]: 100 * r["accuracy"] for r in rows if r["way"] == way}
        for way in dict.fromkeys(r["way"] for r in rows)
    }
    best: dict[str, str] = {}
    for way, by_person in means.items():
        title, now = way.split("|")[0], float(np.mean(list(by_person.values())))
        if title not in best or now > float(np.mean(list(means[best[title]].values()))):
            best[title] = way
    lines = []
    for title, way in best.items():
        values = np.array(list(means[way].values()))
        ci95 = 1.96 * values.std(ddof=1) / len(values) ** 0.5
        lines.append(f"{title:24} {values.mean():5.1f} ± {ci95:.1f}  ({len(values)} people; {way})")
    return lines


if __name__ == "__main__":
    main()
