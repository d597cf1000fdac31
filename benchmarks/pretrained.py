"""p-Meta on a pretrained network against what a user would try instead, on the same tasks.

    python benchmarks/pretrained.py RUN --budgets 2MB 1MB:88 --data DATA
        --kinds kinds/drawings kinds/textures --out pretrained.json

    python benchmarks/pretrained.py --drawn-from pretrained.json

RUN is a training of `pmeta train pmeta.training.own.efficientnet:make_net --cache-features`. A
smaller budget takes those of its layers that fit, by their step sizes, without more training;
1MB:88 does so with pictures of 88 pixels. Tasks are drawn from the validation classes of DATA and
from other kinds of pictures, as `benchmarks/other_kinds.py` makes them. The controls take the
network as it came, with pictures of the run's size and a head from prototypes: no step (nearest
centroid), or plain gradient steps on the last layer, on the biases, or on all layers above the cut.
Their step size, number of steps and scale of the head are those with the most right answers on
tasks of the training classes, for each number of shots. Differences are paired. OUT is JSON, beside
it a picture; it may be stopped and started again, also with more tasks or sets.
"""

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import tyro
from torch import Tensor, nn

from pmeta.base.files import write_atomically
from pmeta.compiler.arena import Arena
from pmeta.compiler.export import export
from pmeta.data.tasks import SCALE, SHIFT, ImageSet, Task, draw_rows, open_split, sample_task
from pmeta.device.binding import DeviceModel
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta
from pmeta.method.meta_gradient import task_gradient
from pmeta.method.methods import METHODS
from pmeta.method.prototypes import prototype_head
from pmeta.network.layers import Network, Weights
from pmeta.training.config import ImageConfig
from pmeta.training.evaluate import ci95
from pmeta.training.features import AT_ONCE, at_most, cache_features, cut
from pmeta.training.own.above import Above, above, fixed_weights, stage_number
from pmeta.training.own.budget import Sample, budget_choice
from pmeta.training.restore import load, restore
from pmeta.training.train import build

MODEL = "pmeta.training.own.efficientnet:make_net"
HEAD = tuple(product((2.0, 10.0), (0.01, 0.1, 1.0), (2, 20)))
BODY = tuple(product((2.0,), (0.003, 0.01, 0.03, 0.1), (2,)))
"""Scales of the head, step sizes and numbers of steps that the controls are tried with."""
KEEP = 10
"""Tasks of every set after which the figures are written."""
Scores = dict[str, dict[str, list[float]]]
"""By set and shots, and by way: the accuracy on each task."""


@dataclass(frozen=True)
class Config:
    """Compare."""

    run: tyro.conf.Positional[str] = ""
    """Run folder."""
    budgets: tuple[str, ...] = ()
    """Smaller budgets, each with pictures of another size behind a colon."""
    data: str = ""
    """Folder of MiniImageNet, ROOT/{train,val}/CLASS/*.jpg."""
    kinds: tuple[str, ...] = ()
    """Folders of other pictures, ROOT/val/CLASS/*.png."""
    shots: tuple[int, ...] = (1, 5)
    """Support pictures of a class."""
    n_query: int = 5
    """Query pictures of a class."""
    tasks: int = 300
    """Tasks of each set and number of shots."""
    costly: int = 300
    """Of these tasks those on which biases and all layers are compared, which take the most
    time."""
    tune: int = 20
    """Tasks of the training classes that choose the settings of a control."""
    engine: int = 12
    """Tasks with each number of shots on which the engine is compared with PyTorch."""
    speed: int = 4
    """Tasks on which meta-training is timed with kept features and without, twice each."""
    out: str = "pretrained.json"
    """Where the figures go."""
    drawn_from: str = ""
    """Measure nothing: draw the picture of this file and print its tables."""


class Setting(NamedTuple):
    """What is chosen for a control."""

    scale: float
    rate: float
    steps: int


CENTROID, LAST = "nearest centroid", "last layer"


@dataclass(frozen=True, eq=False)
class Trained:
    """A run, as a whole and above its features."""

    config: ImageConfig
    net: Network
    meta: Meta
    part: Above
    came: Weights
    """The weights above the features before the training."""

    @property
    def title(self) -> str:
        return f"p-Meta {self.config.memory_budget}, {self.config.image_size} px"

    def task(self, images: ImageSet, seed: int, i: int, shot: int, query: int) -> Task:
        return sample_task(images, seed, i, self.config.n_way, shot, query)

    def adapted(self, task: Task) -> Tensor:
        """p-Meta: the scores of the queries."""
        upper = self.part.narrowed(self.meta)
        upper = replace(upper, mask=upper.updates())
        loop = InnerLoop(self.part.net, self.config.method_row(), replay=False)
        w = loop.adapt(upper, (task.support_x, task.support_y)).w
        with torch.no_grad():
            return torch.func.functional_call(self.part.net.model, w, (task.query_x,))

    @property
    def tail(self) -> nn.Module:
        """Behind the mean over space."""
        return cut(self.part.net.model, stage_number(self.part.net.model, "scale"))[1]


def stepped(
    run: Trained, model: nn.Module, came: Weights, task: Task, own: Sequence[str], setting: Setting
) -> float:
    """The share of queries right after plain gradient steps on some parameters, from prototypes
    on."""
    assert isinstance(model, nn.Sequential)
    x, y, queries, _ = task
    with torch.no_grad():
        embedded, head = _call(model[:-1], came, x), run.part.net.head
        scale = torch.tensor(setting.scale / head.c_in).log()
        new = prototype_head(embedded, y, run.config.n_way, scale)
        w = came | dict(zip(head.params, new, strict=True))
        if {*own} <= {*head.params}:  # embeddings stay: computed once
            x, queries, model = embedded, _call(model[:-1], w, queries), model[-1:]
    for _ in range(setting.steps if own else 0):
        moving = {name: w[name].detach().requires_grad_() for name in own}
        loss = nn.functional.cross_entropy(_call(model, w | moving, x), y)
        g = torch.autograd.grad(loss, list(moving.values()))
        w |= {n: t.detach() - setting.rate * d for (n, t), d in zip(moving.items(), g, strict=True)}
    with torch.no_grad():
        return share(_call(model, w, queries), task)


def _call(model: nn.Module, w: Weights, x: Tensor) -> Tensor:
    own = {name: w[name] for name, _ in model.named_parameters()}
    return torch.func.functional_call(model, own, (x,))


def share(scores: Tensor, task: Task) -> float:
    """Of queries classified right."""
    return float((scores.argmax(1) == task.query_y).double().mean())


@cache
def features(run: Trained, root: str, split: str) -> ImageSet:
    """What the part below the cut gives for the pictures of a set."""
    return cache_features(run.part.lower, pictures(run, root, split))


@cache
def pooled(run: Trained, root: str, split: str) -> ImageSet:
    """What the network as it came gives before its last stages, for ways that go on from there."""
    kept = features(run, root, split)
    body = cut(run.part.net.model, stage_number(run.part.net.model, "scale"))[0]
    with torch.no_grad():
        parts = [
            _call(body, run.came, torch.from_numpy(np.array(kept.images[i : i + AT_ONCE])))
            for i in range(0, len(kept.images), AT_ONCE)
        ]
    return replace(kept, images=torch.cat(parts).numpy())


def pictures(run: Trained, root: str, split: str) -> ImageSet:
    images = open_split(root, split, run.config.image_size, channels=3)
    return at_most(images, run.config.most_images)


def open_run(path: str, budget: str = "", size: str = "") -> Trained:
    """The best model of a run, or those of its layers that fit in another budget."""
    config, best = load(path, model=MODEL)
    pixels, cpu = int(size or best.info["input"][-1]), torch.device("cpu")
    image = (3, pixels, pixels)
    config = replace(config, image_size=pixels, memory_budget=budget or config.memory_budget)
    model, came = build(config, image, cpu)
    fixed = {f"w/{name}" for name in fixed_weights(config, model.model)}  # padded for this size
    learned = {name: t for name, t in best.tensors.items() if name not in fixed}
    net, meta = restore(config, learned, image, cpu)
    if budget:
        method, sample = config.method_row(), Sample(image, "uint8")
        choose = budget_choice(net, meta, method, budget, "arena", config.n_way, sample)
        assert choose
        meta = choose(meta)
    part = above(net, meta, stage_number(net.model, config.cut_at))
    return Trained(config, net, meta, part, part.narrowed(came).w)


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(Config, args=argv, description=__doc__)
    if config.drawn_from:
        found, path = json.loads(Path(config.drawn_from).read_text()), Path(config.drawn_from)
        print(tables(found))
        picture(found, path.with_suffix(".svg"))
        return
    torch.set_num_threads(1)
    asked = [text.partition(":") for text in config.budgets]
    runs = [open_run(config.run), *(open_run(config.run, own, size) for own, _, size in asked)]
    controls, path = controls_of(runs[0]), Path(config.out)
    found = json.loads(path.read_text()) if path.exists() else {"scores": {}}
    if "settings" not in found:
        found["settings"] = tuned(config, runs[0], controls)
    measure(config, runs, controls, found, path)
    found["arena_bytes"] = arenas(runs, controls)
    found["engine"] = [in_engine(config, run) for run in runs]
    found["tasks per second"] = speed(config, runs[0])
    write(found, path)
    print(tables(found))
    picture(found, path.with_suffix(".svg"))


def write(found: dict[str, Any], path: Path) -> None:
    write_atomically(path, (json.dumps(found, indent=1) + "\n").encode())


def measure(
    config: Config,
    runs: list[Trained],
    controls: dict[str, list[str]],
    found: dict[str, Any],
    path: Path,
) -> None:
    """All ways on the same tasks of every set, a task of each in turn."""
    sets = {
        f"{Path(root).name} {shot}-shot": (root, shot)
        for root in (config.data, *config.kinds)
        for shot in config.shots
    }
    scores: Scores = found["scores"]
    for i in range(config.tasks):
        for name, (root, shot) in sets.items():
            own = scores.setdefault(name, {})
            if len(own.get(runs[0].title, ())) == i:
                one_task(config, runs, controls, found["settings"], root, shot, i, own)
        if i % KEEP == KEEP - 1 or i == config.tasks - 1:
            found["sets"] = {name: summarised(own) for name, own in scores.items()}
            write(found, path)
            print(f"{i + 1} tasks of each set", flush=True)


def controls_of(run: Trained) -> dict[str, list[str]]:
    """The parameters that each control updates."""
    names = [name for name, _ in run.part.net.model.named_parameters()]
    names = [name for name in names if not name.startswith("scale.")]  # it came without
    head = list(run.part.net.head.params)
    biases = [name for name in names if name.endswith("bias") and name not in head]
    return {
        CENTROID: [],
        LAST: head,
        "biases and last layer": [*biases, *head],
        f"all layers from {run.config.cut_at} on": names,
    }


def tuned(
    config: Config, run: Trained, controls: dict[str, list[str]]
) -> dict[str, dict[str, Setting]]:
    """The best settings of each control for each number of shots, on training classes."""
    drawn_from = features(run, config.data, "train")
    head, body = list(map(Setting._make, HEAD)), list(map(Setting._make, BODY))
    best: dict[str, dict[str, Setting]] = {name: {} for name, own in controls.items() if own}
    for shot in config.shots:
        tasks = [run.task(drawn_from, 2, i, shot, config.n_query) for i in range(config.tune)]
        for name, own in controls.items():
            if not own:
                continue
            hits = {
                setting: sum(
                    stepped(run, run.part.net.model, run.came, task, own, setting) for task in tasks
                )
                for setting in (head if name == LAST else body)
            }
            best[name][str(shot)] = max(hits, key=lambda setting: hits[setting])
            print(f"{name}, {shot} shots: {best[name][str(shot)]}", flush=True)
    return best


def one_task(
    config: Config,
    runs: list[Trained],
    controls: dict[str, list[str]],
    settings: dict[str, dict[str, Any]],
    root: str,
    shot: int,
    i: int,
    scores: dict[str, list[float]],
) -> None:
    """The accuracy of each way on task i."""
    size = (1, i, shot, config.n_query)
    for run in runs:
        task = run.task(features(run, root, "val"), *size)
        scores.setdefault(run.title, []).append(share(run.adapted(task), task))
    run = runs[0]
    task, short = (
        run.task(features(run, root, "val"), *size),
        run.task(pooled(run, root, "val"), *size),
    )
    trained, none = run.came | run.part.narrowed(run.meta).w, Setting(10.0, 0.0, 0)
    still = stepped(run, run.tail, trained, short, [], none)
    scores.setdefault(f"{run.title}, without steps", []).append(still)
    for name, own in controls.items():
        setting = Setting(*settings[name][str(shot)]) if own else none
        if name in (CENTROID, LAST):
            right = stepped(run, run.tail, run.came, short, own, setting)
        elif i < config.costly:
            right = stepped(run, run.part.net.model, run.came, task, own, setting)
        else:
            continue
        scores.setdefault(name, []).append(right)


def summarised(scores: dict[str, list[float]]) -> dict[str, dict[str, list[float]]]:
    """Mean and CI95 in percent, and of the difference to two controls."""

    def both(values: Tensor) -> list[float]:
        return [round(100 * float(values.mean()), 2), round(ci95(values, unit=100), 2)]

    shares = {name: torch.tensor(values, dtype=torch.float64) for name, values in scores.items()}
    return {
        name: {
            "accuracy": both(values),
            "above centroid": both(values - shares[CENTROID][: len(values)]),
            "above last layer": both(values - shares[LAST][: len(values)]),
            "tasks": [len(values), 0],
        }
        for name, values in shares.items()
    }


def arenas(runs: list[Trained], controls: dict[str, list[str]]) -> dict[str, int]:
    """Bytes to adapt in the engine, which has no plan for biases alone."""
    net, steps = runs[0].net, runs[0].config.inner_steps
    arena = Arena(net, runs[0].meta, METHODS["maml"], net.ops[0].x, input_type="uint8")
    found = {}
    for name, own in controls.items():
        mask = torch.tensor([[bool({*layer.params} & {*own}) for layer in net.layers]])
        if not name.startswith("biases"):
            found[name] = arena.bytes(mask.repeat(steps, 1))
    found["all layers, as MAML"] = arena.bytes(torch.ones(steps, len(net.layers)))
    return found


def in_engine(config: Config, run: Trained) -> dict[str, Any]:
    """What the file for the device takes: bytes, layers, seconds of the processor for one
    adaptation (the least of three), and whether its answers are PyTorch's."""
    made = export(
        run.net,
        run.meta,
        run.config.method_row(),
        run.net.ops[0].x,
        input_type="uint8",
        scale=[SCALE] * 3,
        shift=[SHIFT] * 3,
    )
    model, images = DeviceModel(made.data), pictures(run, config.data, "val")
    updates = run.meta.updates()
    found: dict[str, Any] = {
        "run": run.title,
        "file_bytes": len(made.data),
        "arena_bytes": made.arena_bytes,
        "updates": [
            layer.name for layer, up in zip(run.net.layers, updates.any(0), strict=True) if up
        ],
    }
    for shot in config.shots:
        same = compared = 0
        for i in range(config.engine):
            support, queries = drawn(run, images, i, shot, config.n_query)
            labels = np.repeat(np.arange(run.config.n_way), shot)
            model.adapt(support, labels)
            task = run.task(features(run, config.data, "val"), 1, i, shot, config.n_query)
            expected = run.adapted(task).argmax(1).numpy()
            same += int((model.predict(queries).labels == expected).sum())
            compared += len(expected)
        found[f"same answers {shot}-shot"] = [same, compared]
        found[f"seconds {shot}-shot"] = seconds(model, support, labels)
    return found


def drawn(
    run: Trained, images: ImageSet, i: int, shot: int, query: int
) -> tuple[np.ndarray, np.ndarray]:
    """The pictures of task i as the engine reads them. (n, C, H, W) uint8"""
    rows = draw_rows(images, 1, i, run.config.n_way, shot, query)
    pixels = [images.images[part.ravel()] for part in (rows[:, :shot], rows[:, shot:])]
    support, queries = (np.ascontiguousarray(own.transpose(0, 3, 1, 2)) for own in pixels)
    return support, queries


def seconds(model: DeviceModel, support: np.ndarray, labels: np.ndarray) -> float:
    """Of the processor for one adaptation, the least of three."""
    found = []
    for _ in range(3):
        before = time.process_time()
        model.adapt(support, labels)
        found.append(time.process_time() - before)
    return round(min(found), 3)


def speed(config: Config, run: Trained) -> dict[str, float]:
    """5-shot tasks of meta-training in a second of the processor, before any layer is dropped."""
    images = pictures(run, config.data, "train")
    kept = features(run, config.data, "train")
    _, meta = build(run.config, images.shape, torch.device("cpu"))
    ways = {
        "with features": (run.part.net, run.part.narrowed(meta), kept),
        "without": (run.net, meta, images),
    }
    found = {}
    for name, (net, own, images) in ways.items():
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
    """Accuracy, and how far it lies above two controls, as Markdown."""
    sets = found["sets"]
    lines = []
    for key in ("accuracy", "above centroid", "above last layer"):
        lines += [f"| {key} | {' | '.join(sets)} |", f"|---|{'---|' * len(sets)}"]
        for way in next(iter(sets.values())):
            cells = [sets[name][way][key] for name in sets]
            sign = "" if key == "accuracy" else "+"
            shown = (f"{mean:{sign}.1f} ± {error:.1f}" for mean, error in cells)
            lines.append(f"| {way} | {' | '.join(shown)} |")
        lines.append("")
    return "\n".join(lines)


def picture(found: dict[str, Any], path: Path) -> None:
    """Accuracy against arena bytes, a plot for each set and number of shots."""
    from matplotlib.figure import Figure

    from pmeta.report.picture import COLORS, FAINT, RULE

    sets, bytes_of = found["sets"], dict(found["arena_bytes"])
    bytes_of |= {own["run"]: own["arena_bytes"] for own in found["engine"]}
    columns = math.ceil(len(sets) / 2)
    figure = Figure(figsize=(2.6 * columns, 5), layout="constrained")
    plots = figure.subplots(2, columns, squeeze=False).T.ravel()
    for axes, (name, scores) in zip(plots, sets.items(), strict=False):
        axes.set_title(name, fontsize=10)
        axes.set_xscale("log")
        axes.grid(axis="y", color=RULE)
        for way, own in scores.items():
            if way not in bytes_of:
                continue
            (mean, error), ours = own["accuracy"], way.startswith("p-Meta")
            color = COLORS["pmeta-lr"] if ours else FAINT
            place = bytes_of[way] / 1e6
            axes.errorbar(place, mean, error, marker="v" if ours else "o", color=color, capsize=2)
            label = way.partition(",")[0]
            note = {"xytext": (4, 4 if ours else -9), "textcoords": "offset points"}
            axes.annotate(label, (place, mean), fontsize=6.5, **note)
        axes.set_xticks([1, 2, 4, 8, 16, 32], labels=["1", "2", "4", "8", "16", "32"])
        axes.set_xticks([], minor=True)
        axes.set_xlim(0.6, 60)
    figure.supxlabel("arena to adapt (MB)", fontsize=10)
    figure.supylabel("accuracy (%), 5 classes", fontsize=10)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1:])
