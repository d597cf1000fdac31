"""p-Meta on a pretrained network against what a user would try instead, on the same tasks.

    python -m benchmarks.pretrained RUN RUN --data DATA --kinds kinds/drawings kinds/textures
        --out pretrained.json

    python -m benchmarks.pretrained --drawn-from pretrained.json --picture pretrained.svg

RUN is a training of `pmeta train pmeta.training.own.efficientnet:make_net --cache-features`, or
efficientnet-lite0, the model that ships. Tasks are drawn from the validation classes of DATA and
from other kinds of pictures, as `benchmarks/other_kinds.py` makes them. The controls take the
network as it came, with pictures of the first run's size and a head from prototypes: no step
(nearest centroid), or plain gradient steps on the last layer, on the biases above the cut and the
last layer, on all layers above the cut, or on all layers. Their step size, number of steps and
scale of the head are those with the most right answers on tasks of the training classes, for each
number of shots. Differences are paired. OUT is JSON, beside it a picture; it may be stopped and
started again, also with more tasks or sets. What was measured with other settings or another
training than now is measured anew.
"""

import json
import math
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import tyro
from torch import Tensor

from benchmarks.pretrained_ways import (
    ALL,
    BIASES,
    BODY,
    CENTROID,
    HEAD,
    LAST,
    TENTH,
    Setting,
    Trained,
    controlled,
    features,
    open_run,
    pictures,
    right,
    still,
    tuned,
)
from pmeta.base.files import write_atomically
from pmeta.compiler.export import export
from pmeta.data.tasks import SCALE, SHIFT, Task, draw_rows
from pmeta.device.binding import DeviceModel
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta
from pmeta.method.meta_gradient import task_gradient
from pmeta.training.evaluate import ci95
from pmeta.training.train import build

KEEP = 10
"""Tasks of every set after which the figures are written."""


@dataclass(frozen=True)
class Config:
    """Compare."""

    runs: tyro.conf.Positional[tuple[str, ...]] = ()
    """Run folders; the controls have the cut and the picture size of the first."""
    data: str = ""
    """Folder of MiniImageNet, ROOT/{train,val}/CLASS/*.jpg."""
    kinds: tuple[str, ...] = ()
    """Folders of other pictures, ROOT/val/CLASS/*.png."""
    every: int = 2
    """Of these sets, DATA first, those on which every way is compared; on the others the runs,
    nearest centroid and last layer are."""
    shots: tuple[int, ...] = (1, 5)
    """Support pictures of a class."""
    n_query: int = 5
    """Query pictures of a class."""
    tasks: int = 300
    """Tasks of each set and number of shots."""
    costly: int = 100
    """Of these tasks those on which the other runs, biases and the layers above the cut are."""
    whole: int = 60
    """And those on which all layers are, which takes the most time."""
    tune: int = 20
    """Tasks of the training classes that choose the settings of the last layer; half as many those
    of biases and of the layers above the cut, a quarter those of all layers."""
    engine: int = 4
    """Tasks with each number of shots on which the engine is compared with PyTorch; 0: the engine
    is left out."""
    speed: int = 4
    """Tasks on which meta-training is timed with kept features and without, twice each; 0: not."""
    out: str = "pretrained.json"
    """Where the figures go."""
    drawn_from: str = ""
    """Measure nothing: draw the picture of this file and print its tables."""
    picture: str = ""
    """Where the picture goes; by default beside the figures."""


class Way(NamedTuple):
    """One way to adapt, and on how much it is measured."""

    version: str
    """Of what it does: what was measured of another one is dropped."""
    adapt: Callable[[str, tuple[int, ...]], tuple[Tensor, Task]]
    """The scores of the queries of a set's task, and that task."""
    tasks: int
    everywhere: bool


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(Config, args=argv, description=__doc__)
    path = Path(config.drawn_from or config.out)
    found = json.loads(path.read_text()) if path.exists() else {"scores": {}, "versions": {}}
    if not config.drawn_from:
        torch.set_num_threads(1)
        runs = [open_run(name) for name in config.runs]
        found["tuning"] = chosen(config, runs[0], found.get("tuning", {}))
        settings = found["tuning"]["settings"]
        measure(config, ways(config, runs, settings), found, path)
        if config.engine:
            engine(config, runs, settings, found.setdefault("engine", {}))
        if config.speed:
            found["tasks per second"] = speed(config, runs[0])
        write(found, path)
    print(tables(found))
    if "engine" in found:
        picture(found, Path(config.picture or path.with_suffix(".svg")))


def write(found: dict[str, Any], path: Path) -> None:
    text = json.dumps(found, indent=1)
    lists = re.sub(r"\[[^][{}]*\]", lambda m: re.sub(r"\s+", " ", m[0]), text)
    write_atomically(path, (lists + "\n").encode())


def chosen(config: Config, run: Trained, before: dict[str, Any]) -> dict[str, Any]:
    """The settings of the controls, and what they were chosen from."""
    tried = {"last layer": HEAD, "others": BODY, "tasks": config.tune, "n_query": config.n_query}
    tried |= {"image_size": run.config.image_size, "shots": config.shots}
    tried = json.loads(json.dumps(tried))
    if before.get("tried") == tried:
        return before
    settings = tuned(run, config.data, config.shots, config.n_query, config.tune)
    return {"tried": tried, "settings": json.loads(json.dumps(settings))}


def ways(config: Config, runs: list[Trained], settings: dict[str, Any]) -> dict[str, Way]:
    """All ways by name: p-Meta, the first run without its steps, and the controls."""

    def trained(run: Trained, root: str, drawn: tuple[int, ...]) -> tuple[Tensor, Task]:
        task = run.task(features(run, root, "val"), *drawn)
        return run.adapted(task), task

    def plain(name: str, root: str, drawn: tuple[int, ...]) -> tuple[Tensor, Task]:
        setting = Setting(*settings[name][str(drawn[2])])
        return controlled(runs[0], name, setting, root, "val", drawn)

    found = {}
    for run in runs:
        count = config.tasks if run is runs[0] else config.costly
        found[run.title] = Way(run.version, partial(trained, run), count, True)
    without = Way(runs[0].version, partial(still, runs[0]), config.tasks, True)
    found[f"{runs[0].title}, without steps"] = without
    for name in runs[0].controls:
        cheap = name in (CENTROID, LAST, TENTH)
        count = config.tasks if cheap else config.whole if name == ALL else config.costly
        found[name] = Way(json.dumps(settings[name]), partial(plain, name), count, cheap)
    return found


def measure(config: Config, by_name: dict[str, Way], found: dict[str, Any], path: Path) -> None:
    """All ways on the same tasks of every set, a task of each in turn."""
    scores: dict[str, dict[str, list[int]]] = found["scores"]
    for name, way in by_name.items():
        if found["versions"].get(name) != way.version:
            found["versions"][name] = way.version
            for own in (*scores.values(), found.get("engine", {})):
                own.pop(name, None)
    roots = (config.data, *config.kinds)
    for i in range(config.tasks):
        for (number, root), shot in product(enumerate(roots), config.shots):
            own = scores.setdefault(f"{Path(root).name} {shot}-shot", {})
            for name, way in by_name.items():
                done = own.setdefault(name, []) if way.everywhere or number < config.every else None
                if done is not None and len(done) == i < way.tasks:
                    done.append(right(*way.adapt(root, (1, i, shot, config.n_query))))
        if i % KEEP == KEEP - 1 or i == config.tasks - 1:
            queries = config.n_query * 5
            found["sets"] = {name: summarised(own, queries) for name, own in scores.items()}
            write(found, path)
            print(f"{i + 1} tasks of each set", flush=True)


def summarised(scores: dict[str, list[int]], queries: int) -> dict[str, dict[str, Any]]:
    """Mean and CI95 in percent, and of the difference to two controls on the same tasks."""

    def both(values: Tensor) -> list[float]:
        return [round(100 * float(values.mean()), 2), round(ci95(values, unit=100), 2)]

    shares = {
        name: torch.tensor(counts, dtype=torch.float64) / queries for name, counts in scores.items()
    }
    return {
        name: {
            "accuracy": both(values),
            "above centroid": both(values - shares[CENTROID][: len(values)]),
            "above last layer": both(values - shares[LAST][: len(values)]),
            "tasks": len(values),
        }
        for name, values in shares.items()
    }


def engine(
    config: Config, runs: list[Trained], settings: dict[str, Any], found: dict[str, Any]
) -> None:
    """Add what files for the device take, by way; those of controls for each number of shots."""
    by_name = ways(config, runs, settings)
    for run in runs:
        if run.title not in found:
            adapt = by_name[run.title].adapt
            found[run.title] = in_engine(config, run, run.meta, config.shots, adapt)
    for name, own in runs[0].controls.items():
        if name in found:
            continue
        if name == BIASES:
            found[name] = {"arena_bytes": biases_bytes(runs[0], found[LAST]["arena_bytes"])}
            continue
        if name == TENTH:
            found[name] = found[LAST]
            continue
        one: dict[str, Any] = {}
        for shot in config.shots:
            meta = runs[0].controlled(own, Setting(*settings[name][str(shot)]))
            one |= in_engine(config, runs[0], meta, (shot,), by_name[name].adapt)
        found[name] = one


def biases_bytes(run: Trained, last: int) -> int:
    """What biases above the cut would take: the engine, which updates whole layers, does not run
    them.

    They and their gradients are there all the time; masks and gradients of outputs up there take
    less than the large outputs at the bottom, which are gone by then."""
    numbers = {*run.controls[BIASES]} - {*run.net.head.params}
    return last + 2 * 4 * sum(run.came[name].numel() for name in numbers)


def in_engine(
    config: Config,
    run: Trained,
    meta: Meta,
    shots: tuple[int, ...],
    adapt: Callable[[str, tuple[int, ...]], tuple[Tensor, Task]],
) -> dict[str, Any]:
    """Bytes, layers, seconds of one adaptation by the clock and of the processor (the least of
    three), and whether the answers are PyTorch's."""
    made = export(
        run.net,
        meta,
        run.config.method_row(),
        run.net.ops[0].x,
        input_type="uint8",
        scale=[SCALE] * 3,
        shift=[SHIFT] * 3,
    )
    model, updates = DeviceModel(made.data), meta.updates()
    layers = [layer.name for layer, up in zip(run.net.layers, updates.any(0), strict=True) if up]
    found: dict[str, Any] = {
        "file_bytes": len(made.data),
        "arena_bytes": made.arena_bytes,
        "updates": layers if len(layers) < 20 else f"{len(layers)} layers",
    }
    for shot in shots:
        same = compared = 0
        for i in range(config.engine):
            drawn = (1, i, shot, config.n_query)
            support, queries = pixels(run, config.data, drawn)
            labels = np.repeat(np.arange(run.config.n_way), shot)
            model.adapt(support, labels)
            expected = adapt(config.data, drawn)[0].argmax(1).numpy()
            same += int((model.predict(queries).labels == expected).sum())
            compared += len(expected)
        found[f"same answers {shot}-shot"] = [same, compared]
        found[f"seconds {shot}-shot"] = seconds(model, support, labels)
    return found


def pixels(run: Trained, root: str, drawn: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The pictures of a task as the engine reads them. (n, C, H, W) uint8"""
    images, (seed, i, shot, query) = pictures(run, root, "val"), drawn
    rows = draw_rows(images, seed, i, run.config.n_way, shot, query)
    own = [images.images[part.ravel()] for part in (rows[:, :shot], rows[:, shot:])]
    support, queries = (np.ascontiguousarray(part.transpose(0, 3, 1, 2)) for part in own)
    return support, queries


def seconds(model: DeviceModel, support: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Of one adaptation, the least of three."""
    found = []
    for _ in range(3):
        before = time.perf_counter(), time.process_time()
        model.adapt(support, labels)
        found.append((time.perf_counter() - before[0], time.process_time() - before[1]))
    clock, processor = (round(min(own), 3) for own in zip(*found, strict=True))
    return {"clock": clock, "processor": processor}


def speed(config: Config, run: Trained) -> dict[str, float]:
    """5-shot tasks of meta-training in a second of the processor, before any layer is dropped."""
    images = pictures(run, config.data, "train")
    kept = features(run, config.data, "train")
    _, meta = build(run.config, images.shape, torch.device("cpu"))
    both = {
        "with features": (run.part.net, run.part.narrowed(meta), kept),
        "without": (run.net, meta, images),
    }
    found = {}
    for name, (net, own, images) in both.items():
        tasks = [run.task(images, 3, i, 5, config.n_query) for i in range(config.speed)]
        own = own.map(lambda t: t.detach().requires_grad_())
        second_order = not run.config.first_order
        loop = InnerLoop(net, run.config.method_row(), second_order=second_order, replay=False)
        seconds = []
        for _ in range(2):
            before = time.process_time()
            for task in tasks:
                task_gradient(loop, own, task)
            seconds.append(time.process_time() - before)
        found[name] = round(config.speed / min(seconds), 3)
    return found


def tables(found: dict[str, Any]) -> str:
    """Accuracy, how far it lies above two controls, and what the engine takes, as Markdown."""
    sets = found["sets"]
    names = dict.fromkeys(way for own in sets.values() for way in own)
    lines = []
    for key in ("accuracy", "above centroid", "above last layer"):
        lines += [f"| {key} | {' | '.join(sets)} |", f"|---|{'---|' * len(sets)}"]
        sign = "" if key == "accuracy" else "+"
        for way in names:
            cells = (own[way][key] if way in own else () for own in sets.values())
            shown = (f"{cell[0]:{sign}.1f} ± {cell[1]:.1f}" if cell else "" for cell in cells)
            lines.append(f"| {way} | {' | '.join(shown)} |")
        lines.append("")
    lines += [
        "| engine | arena, bytes | seconds by shots: clock | processor |",
        "|---|---|---|---|",
    ]
    for way, own in found.get("engine", {}).items():
        times = [value for key, value in own.items() if key.startswith("seconds")]
        shown = (", ".join(f"{t[of]:.2f}" for t in times) for of in ("clock", "processor"))
        lines.append(f"| {way} | {own['arena_bytes']:,} | {' | '.join(shown)} |")
    return "\n".join(lines)


def picture(found: dict[str, Any], path: Path) -> None:
    """Accuracy above nearest centroid on the same tasks against arena bytes, a plot for each set
    and number of shots with all ways."""
    from matplotlib.figure import Figure

    from pmeta.report.picture import COLORS, FAINT, RULE

    sets = {name: own for name, own in found["sets"].items() if ALL in own}
    columns = math.ceil(len(sets) / 2)
    figure = Figure(figsize=(4.2 * columns, 6.2), layout="constrained")
    plots = figure.subplots(2, columns, squeeze=False, sharex=True).T.ravel()
    for axes, (name, scores) in zip(plots, sets.items(), strict=False):
        axes.set_title(
            f"{name}, nearest centroid: {scores[CENTROID]['accuracy'][0]:.1f} %", size=10
        )
        axes.grid(axis="y", color=RULE)
        axes.axhline(0, color=FAINT, linewidth=1)
        marks = iter("osD^")
        for way, own in scores.items():
            if way not in found["engine"] or way in (CENTROID, TENTH):
                continue
            (mean, error), ours = own["above centroid"], way.startswith("p-Meta")
            color, mark = (COLORS["pmeta-lr"], "v") if ours else (FAINT, next(marks))
            place = found["engine"][way]["arena_bytes"] / 1e6
            label = "p-Meta, by budget" if ours else way
            axes.errorbar(place, mean, error, marker=mark, color=color, capsize=2, label=label)
        axes.set_xscale("log")
        axes.set_xticks([1, 2, 4, 8, 16, 32], labels=["1", "2", "4", "8", "16", "32"])
        axes.set_xticks([], minor=True)
        axes.set_xlim(0.8, 50)
    shown = dict(zip(*reversed(plots[0].get_legend_handles_labels()), strict=True))
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=5, fontsize=8)
    for axes in plots[1::2]:
        axes.set_xlabel("arena to adapt (MB)")
    figure.supylabel("points above nearest centroid on the same tasks, CI95", fontsize=10)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    main(sys.argv[1:])
