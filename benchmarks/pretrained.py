"""p-Meta on a pretrained network against what a user would try instead, on the same tasks.

    python benchmarks/pretrained.py RUN --budgets 2MB 1MB:80 --data DATA
        --kinds kinds/glyphs kinds/digits --out docs/results/pretrained.json

RUN is a training of `pmeta train pmeta.training.own.efficientnet:make_net --cache-features`. Tasks
are drawn from the validation classes of DATA and from other kinds of pictures, as
`benchmarks/other_kinds.py` makes them. A smaller budget takes those layers of the run that fit in
it, by its step sizes; 1MB:80 does so with pictures of 80 pixels. The controls run at the size of
the run, with a head from prototypes like p-Meta's, and take as many steps; the step size of each is
the best of several on tasks of the training classes. Differences are paired. OUT is JSON, beside it
a picture; it may be stopped and started again, also with more tasks.
"""

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

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
from pmeta.method.methods import METHODS
from pmeta.network.layers import Network, Weights
from pmeta.training.config import ImageConfig
from pmeta.training.evaluate import ci95
from pmeta.training.features import at_most, cache_features
from pmeta.training.own.above import Above, above, stage_number
from pmeta.training.own.budget import Sample, budget_choice
from pmeta.training.restore import load, restore

MODEL = "pmeta.training.own.efficientnet:make_net"
RATES = (0.001, 0.003, 0.01, 0.03)
KEEP = 5
"""Tasks of every set after which the figures are written."""
Scores = dict[str, dict[str, list[float]]]
"""By set and shots, and by way: the accuracy on each task."""


@dataclass(frozen=True)
class Config:
    """Compare."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    data: str
    """Folder of MiniImageNet, ROOT/{train,val}/CLASS/*.jpg."""
    kinds: tuple[str, ...] = ()
    """Folders of other pictures, ROOT/val/CLASS/*.png."""
    budgets: tuple[str, ...] = ()
    """Smaller budgets, each with pictures of another size behind a colon."""
    shots: tuple[int, ...] = (1, 5)
    """Support pictures of a class."""
    n_query: int = 8
    """Query pictures of a class."""
    tasks: int = 100
    """Tasks of each set and number of shots."""
    tune: int = 10
    """Tasks of the training classes that choose a step size."""
    out: str = "pretrained.json"
    """Where the figures go."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A run, as a whole and above its features."""

    config: ImageConfig
    net: Network
    meta: Meta
    part: Above

    @property
    def upper(self) -> Meta:
        return replace(self.part.narrowed(self.meta), mask=self.part.narrowed(self.meta).updates())

    def task(self, images: ImageSet, seed: int, i: int, shot: int, query: int) -> Task:
        return sample_task(images, seed, i, self.config.n_way, shot, query)

    def adapted(self, task: Task) -> float:
        """p-Meta."""
        loop = InnerLoop(self.part.net, self.config.method_row(), replay=False)
        adapted = loop.adapt(self.upper, (task.support_x, task.support_y))
        return right(self.part.net.model, adapted.w, task)

    def stepped(self, task: Task, names: Sequence[str], rate: float, steps: int) -> float:
        """Plain gradient steps on some parameters, from prototypes on."""
        support, model = (task.support_x, task.support_y), self.part.net.model
        with torch.no_grad():
            w = InnerLoop(self.part.net, METHODS["maml"]).start(self.upper, support)
            if {*names} <= {*self.part.net.head.params}:  # embeddings stay: computed once
                assert isinstance(model, nn.Sequential)
                below, model = model[:-1], model[-1:]
                task = task._replace(support_x=below(task.support_x), query_x=below(task.query_x))
        for _ in range(steps if names else 0):
            moving = {name: w[name].detach().requires_grad_() for name in names}
            own = {name: w[name] for name, _ in model.named_parameters()} | moving
            output = torch.func.functional_call(model, own, (task.support_x,))
            g = torch.autograd.grad(
                nn.functional.cross_entropy(output, task.support_y), list(moving.values())
            )
            w |= {n: t.detach() - rate * d for (n, t), d in zip(moving.items(), g, strict=True)}
        return right(model, w, task)


@cache
def features(run: Trained, root: str, split: str) -> ImageSet:
    """What the part below the cut gives for the pictures of a set."""
    images = open_split(root, split, run.config.image_size, channels=3)
    return cache_features(run.part.lower, at_most(images, run.config.most_images))


def right(model: nn.Module, w: Weights, task: Task) -> float:
    """The share of queries classified right."""
    own = {name: w[name] for name, _ in model.named_parameters()}
    with torch.no_grad():
        scores = torch.func.functional_call(model, own, (task.query_x,))
    return float((scores.argmax(1) == task.query_y).double().mean())


def open_run(path: str) -> Trained:
    """The best model of a run."""
    config, best = load(path, model=MODEL)
    net, meta = restore(config, best.tensors, tuple(best.info["input"]), torch.device("cpu"))
    return Trained(config, net, meta, above(net, meta, stage_number(net.model, config.cut_at)))


def with_budget(path: str, text: str) -> Trained:
    """The same with those layers that fit in another budget."""
    budget, _, size = text.partition(":")
    config, best = load(path, model=MODEL)
    pixels = int(size or best.info["input"][-1])
    config = replace(config, memory_budget=budget, image_size=pixels)
    net, meta = restore(config, best.tensors, (3, pixels, pixels), torch.device("cpu"))
    method, sample = config.method_row(), Sample((3, pixels, pixels), "uint8")
    choose = budget_choice(net, meta, method, budget, "arena", config.n_way, sample)
    assert choose
    meta = choose(meta)
    return Trained(config, net, meta, above(net, meta, stage_number(net.model, config.cut_at)))


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(Config, args=argv, description=__doc__)
    torch.set_num_threads(1)
    runs = [open_run(config.run), *(with_budget(config.run, text) for text in config.budgets)]
    controls, path = controls_of(runs[0]), Path(config.out)
    found = json.loads(path.read_text()) if path.exists() else {}
    if "rates" not in found:
        found |= {"rates": tuned(config, runs[0], controls), "scores": {}}
    sets = {
        f"{Path(root).name} {shot}-shot": (root, shot)
        for root in (config.data, *config.kinds)
        for shot in config.shots
    }
    scores: Scores = found["scores"]
    for name in sets:
        scores.setdefault(name, {})
    for i in range(config.tasks):
        for name, (root, shot) in sets.items():
            if len(scores[name].get(title(runs[0]), ())) == i:
                one_task(config, runs, controls, found["rates"], root, shot, i, scores[name])
        if i % KEEP == KEEP - 1 or i == config.tasks - 1:
            found["sets"] = {name: summarised(own) for name, own in scores.items()}
            write_atomically(path, (json.dumps(found, indent=1) + "\n").encode())
            print(f"{i + 1} tasks of each set", flush=True)
    found["arena_bytes"] = arenas(runs, controls)
    found["engine"] = [in_engine(config, run) for run in runs]
    write_atomically(path, (json.dumps(found, indent=1) + "\n").encode())
    picture(found, path.with_suffix(".svg"))


def controls_of(run: Trained) -> dict[str, list[str]]:
    """The parameters that each control updates."""
    names = [name for name, _ in run.part.net.model.named_parameters()]
    head = list(run.part.net.head.params)
    biases = [name for name in names if name.endswith("bias") and name not in head]
    return {
        "nearest centroid": [],
        "last layer": head,
        "biases and last layer": [*biases, *head],
        f"all layers from {run.config.cut_at} on": names,
    }


def title(run: Trained) -> str:
    return f"p-Meta {run.config.memory_budget}, {run.config.image_size} px"


def tuned(
    config: Config, run: Trained, controls: dict[str, list[str]]
) -> dict[str, dict[str, float]]:
    """The best step size of each control for each number of shots, on training classes."""
    drawn_from = features(run, config.data, "train")
    best: dict[str, dict[str, float]] = {name: {} for name, own in controls.items() if own}
    for shot in config.shots:
        tasks = [run.task(drawn_from, 2, i, shot, config.n_query) for i in range(config.tune)]
        for name in best:
            hits = {
                rate: sum(
                    run.stepped(task, controls[name], rate, run.config.inner_steps)
                    for task in tasks
                )
                for rate in RATES
            }
            best[name][str(shot)] = max(hits, key=lambda rate: hits[rate])
    return best


def one_task(
    config: Config,
    runs: list[Trained],
    controls: dict[str, list[str]],
    rates: dict[str, dict[str, float]],
    root: str,
    shot: int,
    i: int,
    scores: dict[str, list[float]],
) -> None:
    """The accuracy of each way on task i."""
    for run in runs:
        task = run.task(features(run, root, "val"), 1, i, shot, config.n_query)
        scores.setdefault(title(run), []).append(run.adapted(task))
    task = runs[0].task(features(runs[0], root, "val"), 1, i, shot, config.n_query)
    for name, own in controls.items():
        rate, steps = rates.get(name, {}).get(str(shot), 0.0), runs[0].config.inner_steps
        scores.setdefault(name, []).append(runs[0].stepped(task, own, rate, steps))


def summarised(scores: dict[str, list[float]]) -> dict[str, dict[str, list[float]]]:
    """Mean and CI95 in percent, and of the difference to two controls."""

    def both(values: Tensor) -> list[float]:
        return [round(100 * float(values.mean()), 2), round(ci95(values, unit=100), 2)]

    shares = {name: torch.tensor(values, dtype=torch.float64) for name, values in scores.items()}
    return {
        name: {
            "accuracy": both(values),
            "above centroid": both(values - shares["nearest centroid"]),
            "above last layer": both(values - shares["last layer"]),
        }
        for name, values in shares.items()
    }


def arenas(runs: list[Trained], controls: dict[str, list[str]]) -> dict[str, int]:
    """Bytes to adapt in the engine, which has no plan for biases alone."""
    net, steps = runs[0].net, runs[0].config.inner_steps
    shape = net.ops[0].x
    arena = Arena(net, runs[0].meta, METHODS["maml"], shape, input_type="uint8")
    found = {}
    for name, own in controls.items():
        mask = torch.tensor([[bool({*layer.params} & {*own}) for layer in net.layers]])
        if not name.startswith("biases"):
            found[name] = arena.bytes(mask.repeat(steps, 1))
    found["all layers, as MAML"] = arena.bytes(torch.ones(steps, len(net.layers)))
    for run in runs:
        own_arena = Arena(
            run.net, run.meta, run.config.method_row(), run.net.ops[0].x, input_type="uint8"
        )
        found[title(run)] = own_arena.bytes(run.meta.updates())
    return found


def in_engine(config: Config, run: Trained) -> dict[str, Any]:
    """What the file for the device takes: bytes, layers, and seconds of the processor for one
    adaptation, the least of three."""
    shape = run.net.ops[0].x
    made = export(
        run.net,
        run.meta,
        run.config.method_row(),
        shape,
        input_type="uint8",
        scale=[SCALE] * 3,
        shift=[SHIFT] * 3,
    )
    model = DeviceModel(made.data)
    images = open_split(config.data, "val", run.config.image_size, channels=3)
    updates = run.meta.updates()
    found: dict[str, Any] = {
        "run": title(run),
        "image_size": run.config.image_size,
        "file_bytes": len(made.data),
        "arena_bytes": made.arena_bytes,
        "updates": [
            layer.name for layer, up in zip(run.net.layers, updates.any(0), strict=True) if up
        ],
    }
    for shot in config.shots:
        rows = draw_rows(images, 1, 0, run.config.n_way, shot, 1)[:, :shot].ravel()
        x = np.ascontiguousarray(images.images[rows].transpose(0, 3, 1, 2))
        labels = np.repeat(np.arange(run.config.n_way), shot)
        seconds = []
        for _ in range(3):
            before = time.process_time()
            model.adapt(x, labels)
            seconds.append(time.process_time() - before)
        found[f"seconds {shot}-shot"] = round(min(seconds), 3)
    return found


def picture(found: dict[str, Any], path: Path) -> None:
    """Accuracy against arena bytes, a plot for each set and number of shots."""
    from matplotlib.figure import Figure

    from pmeta.report.picture import COLORS, FAINT, RULE

    sets = found["sets"]
    columns = math.ceil(len(sets) / 2)
    figure = Figure(figsize=(3.1 * columns, 5.6), layout="constrained")
    plots = figure.subplots(2, columns, squeeze=False).T.ravel()
    for axes, (name, scores) in zip(plots, sets.items(), strict=False):
        axes.set_title(name, fontsize=10)
        axes.set_xscale("log")
        axes.grid(axis="y", color=RULE)
        for way, own in scores.items():
            mean, error = own["accuracy"]
            ours = way.startswith("p-Meta")
            color = COLORS["pmeta-lr"] if ours else FAINT
            if way not in found["arena_bytes"]:
                axes.axhline(mean, color=color, linewidth=1, linestyle=":")
                axes.annotate(way, (0.98, mean), xycoords=("axes fraction", "data"), **_NOTE)
                continue
            x = found["arena_bytes"][way] / 1e6
            axes.errorbar(x, mean, error, marker="v" if ours else "o", color=color, capsize=2)
            axes.annotate(way, (x, mean), xytext=(4, 4), textcoords="offset points", fontsize=6.5)
        axes.set_xticks([1, 2, 4, 8, 16, 32], labels=["1", "2", "4", "8", "16", "32"])
        axes.set_xticks([], minor=True)
        axes.set_xlim(0.6, 60)
    figure.supxlabel("arena to adapt (MB)", fontsize=10)
    figure.supylabel("accuracy (%), 5 classes", fontsize=10)
    figure.savefig(path, metadata={"Date": None})


_NOTE: dict[str, Any] = {"fontsize": 6.5, "ha": "right", "va": "bottom"}

if __name__ == "__main__":
    main(sys.argv[1:])
