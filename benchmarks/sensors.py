"""Personalising an activity recogniser: p-Meta against what a user would try instead.

    python benchmarks/sensors.py --data DIR --out OUT [--methods pmeta-lr maml++] [--folds 4]

DIR is what `pmeta data import sp-sw-har` makes. People are divided into folds; each fold's people
are never seen by the trainings that are tested on them. For each fold and each set of devices to
train on (phones; both) it trains the methods and tests them on phones and watches, with 1, 2, 5 and
10 labelled windows of each activity, beside an ordinary classifier as it is, and its fine-tuning,
whose step size and number of steps do best on the validation people.

It may be stopped and started again, and prints the tables of the folds and trainings asked for.
OUT/scores.json has a row for each person.
"""

import argparse
import dataclasses
import itertools
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from pmeta.cli.export import export_run
from pmeta.data.tasks import Task
from pmeta.kinds import train
from pmeta.kinds.recordings.best import load
from pmeta.kinds.recordings.config import SensorConfig
from pmeta.kinds.recordings.evaluate import scored
from pmeta.kinds.recordings.pooled import train_pooled
from pmeta.kinds.recordings.sets import WindowSet
from pmeta.kinds.recordings.tasks import personal_task
from pmeta.kinds.recordings.train import Data, build, open_data
from pmeta.method.inner import InnerLoop
from pmeta.method.methods import METHODS
from pmeta.network.layers import Network, Weights
from pmeta.network.tape import forward
from pmeta.training.budget import Sample, arena_of
from pmeta.training.results import mean_ci95
from pmeta.training.run_folder import Run
from pmeta.training.workers import Group

SHOTS = (1, 2, 5, 10)
DRAWS = 2
"""Tasks of each person with each device and number of windows."""
VAL_PEOPLE = 3
TRAINED_ON = {"phones": (("phone",), 1.0), "both": ((), 0.3)}
"""Devices, and the share of tasks that are turned: another device is worn another way."""
RATES, STEPS = (0.01, 0.03, 0.1, 0.3), (10, 20)
"""Step sizes of fine-tuning, and numbers of steps, to choose from."""
BUDGET = "33%"
"""Arena of p-Meta, as a share of updating all layers."""
Row = dict[str, Any]
Score = Callable[[Task], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--methods", nargs="+", default=["pmeta-lr", *(METHODS.keys() - {"pmeta-lr"})]
    )
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--only-folds", type=int, nargs="+", help="from 0 on; none: all")
    parser.add_argument("--only", nargs="+", default=list(TRAINED_ON), help="trained on these")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folds = options.only_folds or range(options.folds)
    for method in ("controls", *options.methods):
        for fold, trained_on in itertools.product(folds, options.only):
            one(options, fold, trained_on, method)
    rows = [r for p in sorted(options.out.glob("*/scores.json")) for r in json.loads(p.read_text())]
    (options.out / "scores.json").write_text(json.dumps(rows))
    rows = [r for r in rows if r["fold"] in folds and r["trained_on"] in options.only]
    for line in tables(rows):
        print(line)


def one(options: argparse.Namespace, fold: int, trained_on: str, method: Any) -> None:
    """Train with the people of the other folds, and test with those of this one."""
    folder = options.out / f"{trained_on}-{fold}-{method}"
    if (folder / "scores.json").exists():
        return
    people = sorted(p.name for p in Path(options.data).iterdir() if p.is_dir())
    tested = np.random.default_rng(0).permutation(people).tolist()[fold :: options.folds]
    devices, rotate = TRAINED_ON[trained_on]
    config = SensorConfig(
        data=options.data, out=str(folder), devices=devices, rotate=rotate, workers=1,
        val_people=tuple(p for p in people if p not in tested)[:VAL_PEOPLE],
        test_people=tuple(tested),
    )  # fmt: skip
    data = open_data(config)
    if method == "controls":
        ways, arenas = controls_of(config, data)
    else:
        budget = BUDGET if METHODS[method].sparse_alpha else ""
        config = dataclasses.replace(config, method=method, memory_budget=budget)
        shared = options.out / f"{trained_on}-{fold}-controls"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("pooled.json", "pooled.safetensors"):  # the same start for all
            shutil.copy(shared / name, folder)
        train(Group(), config)
        ways, arenas = adapted(folder, method)
    assert data.test
    rows = measured(data.test, ways)
    key = {"fold": fold, "trained_on": trained_on}
    rows = [{**key, **row, "arena": arenas.get(row["way"])} for row in rows]
    (folder / "scores.json").write_text(json.dumps(rows))
    print(f"{folder.name}: done", flush=True)


def measured(test: WindowSet, ways: dict[str, Score]) -> list[Row]:
    """The mean over draws of each person with each device and number of windows."""
    rows = []
    for g, name in enumerate(test.groups):
        person, device = name.split("/")
        for shots in SHOTS:
            tasks = [personal_task(test, g, 0, i, shots) for i in range(DRAWS)]
            for way, score in ways.items():
                value = 100 * float(np.mean([score(task) for task in tasks]))
                rows.append({"way": way, "person": person, "device": device, "shots": shots,
                             "accuracy": value})  # fmt: skip
    return rows


def adapted(folder: Path, method: str) -> tuple[dict[str, Score], dict[str, int]]:
    """A run as its file on the device adapts, and as it is before any step."""
    trained = load(str(folder))
    loop = InnerLoop(trained.net, trained.config.method_row(), batch=1)
    meta = dataclasses.replace(trained.meta, mask=trained.meta.updates())

    def after(task: Task) -> float:
        return scored(loop.net, loop.adapt(meta, (task.support_x, task.support_y)).w, task)

    ways = {method: after, f"{method}, no step": lambda task: scored(loop.net, meta.w, task)}
    return ways, {method: export_run(str(folder)).arena_bytes}


def controls_of(config: SensorConfig, data: Data) -> tuple[dict[str, Score], dict[str, int]]:
    """What needs no meta-training, by name, with what was chosen on the validation people."""
    net, meta = build(config, data.train.windowing)
    pool = config.pooled_epochs, config.pooled_lr, config.seed
    w = train_pooled(net, net.weights(), data.train, *pool)
    with Run(config.out) as run:
        run.path.mkdir(parents=True, exist_ok=True)
        run.save("pooled", w, {"epochs": config.pooled_epochs})
    ways: dict[str, Score] = {"pooled": partial(scored, net, w)}
    groups = range(len(data.val.groups))
    tasks = [personal_task(data.val, g, 1, i, config.n_shot) for g in groups for i in range(DRAWS)]
    for last in (True, False):
        title = f"fine-tuned, {'last layer' if last else 'all layers'}"
        rate, steps = chosen(net, w, tasks, last)
        ways[title] = partial(tuned, net, w, last, rate, steps)
        print(f"{title}: {steps} steps of {rate}", flush=True)
    every = arena_of(net, meta, METHODS["maml"], Sample(data.train.shape))
    only = torch.tensor([layer == net.head for layer in net.layers]).repeat(len(meta.mask), 1)
    sizes = {"last layer": every(only), "all layers": every(torch.ones_like(meta.mask))}
    return ways, {way: size for way in ways for name, size in sizes.items() if name in way}


def fine_tuned(
    net: Network, w: Weights, task: Task, rate: float, last_layer: bool, most: int
) -> dict[int, float]:
    """Gradient descent on the whole support set, of the last layer or of all: the accuracy by the
    number of steps, of `STEPS` up to `most`."""
    own = {f"{net.head.name}.weight", f"{net.head.name}.bias"}
    moving = [name for name in w if not last_layer or name in own]
    w, found = dict(w), {}
    for done in range(1, most + 1):
        leaves = {name: w[name].detach().requires_grad_() for name in moving}
        output, _ = forward(net, {**w, **leaves}, task.support_x)
        loss = F.cross_entropy(output, task.support_y)
        g = torch.autograd.grad(loss, list(leaves.values()))
        w |= {name: t.detach() - rate * d for (name, t), d in zip(leaves.items(), g, strict=True)}
        if done in STEPS:
            found[done] = scored(net, w, task)
    return found


def tuned(net: Network, w: Weights, last: bool, rate: float, steps: int, task: Task) -> float:
    return fine_tuned(net, w, task, rate, last, steps)[steps]


def chosen(net: Network, w: Weights, tasks: list[Task], last: bool) -> tuple[float, int]:
    """The step size and the number of steps that do best on these tasks."""
    found = {}
    for rate in RATES:
        each = [fine_tuned(net, w, task, rate, last, max(STEPS)) for task in tasks]
        for steps in STEPS:
            found[rate, steps] = float(np.mean([by_steps[steps] for by_steps in each]))
    return max(found, key=found.__getitem__)


def tables(rows: list[Row]) -> list[str]:
    """Mean over people with CI95, five windows of each activity; p-Meta against each way, person by
    person, and the people who do worse with it."""
    lines = []
    for trained_on, device in itertools.product(TRAINED_ON, ("phone", "watch")):
        own = [r for r in rows if (r["trained_on"], r["device"]) == (trained_on, device)]
        ways = by_way([r for r in own if r["shots"] == 5])
        ours = ways.get("pmeta-lr", {})
        lines += ["", f"trained on {trained_on}, tested on {device}", ""]
        lines += [
            "| way | people | balanced accuracy | p-Meta (LR) is above it by | below it |",
            "|---|---|---|---|---|",
        ]
        for way, values in ways.items():
            gains = [ours[p] - values[p] for p in values if p in ours]
            gain = f"{interval(gains)} | {losers(gains)}" if gains else " | "
            lines.append(f"| {way} | {len(values)} | {interval(list(values.values()))} | {gain} |")
    arenas: dict[str, set[int]] = {}
    for r in rows:
        if r["arena"]:
            arenas.setdefault(r["way"], set()).add(r["arena"])
    lines += ["", "| way | arena in bytes, largest |", "|---|---|"]
    return lines + [f"| {way} | {max(found):,} |" for way, found in arenas.items()]


def by_way(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Accuracy by way and person."""
    found: dict[str, dict[str, float]] = {}
    for r in rows:
        found.setdefault(r["way"], {})[r["person"]] = r["accuracy"]
    return found


def interval(values: list[float]) -> str:
    """The mean with CI95.

    >>> interval([1.0, 2.0, 3.0])
    '2.0 ± 1.1'
    """
    mean, ci95 = mean_ci95(torch.tensor(values))
    return f"{mean:.1f} ± {ci95:.1f}"


def losers(gains: list[float]) -> str:
    """How many people lose, and the most that one of them loses.

    >>> losers([1.0, -2.0, 0.0])
    '1, up to 2.0'
    """
    lost = [-gain for gain in gains if gain < 0]
    return f"{len(lost)}, up to {max(lost):.1f}" if lost else "0"


if __name__ == "__main__":
    main()
