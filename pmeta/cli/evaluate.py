"""The command `pmeta evaluate RUN`: unseen tasks, adapted to as a device does."""

import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from pmeta import zoo
from pmeta.data.tasks import ImageSet, check_enough, open_split
from pmeta.method import heads as head
from pmeta.method.learned import Meta
from pmeta.network.layers import Network
from pmeta.training import workers
from pmeta.training.config import ImageConfig
from pmeta.training.evaluate import Summary, TaskResult, evaluate_task, evaluation_loop, summarise
from pmeta.training.run_folder import Checkpoint, open_run, plain, restored
from pmeta.training.train import build, choose_device, task
from pmeta.training.workers import Group


@dataclass(frozen=True)
class EvaluateConfig:
    """Adapt the best model of a run to unseen tasks: accuracy with CI95, peak memory, MACs, update ratios."""

    run: tyro.conf.Positional[str]
    """Run folder, or a model that `pmeta zoo` lists."""
    data: str = ""
    """Folder of classes to draw tasks from; by default that of the run."""
    split: Literal["train", "val", "test"] = "test"
    """Which classes."""
    tasks: int | None = None
    """Number of tasks; by default the paper's, 5000 for images and 400 for reinforcement learning."""
    batch: int | None = 1
    """Samples that adaptation takes at a time (gradient accumulation); None: the whole support set."""
    n_way: int | None = None
    """Classes in a task, at most as many as the head has outputs; by default the same."""
    n_shot: int | None = None
    """Support samples of each class; by default as in training."""
    n_query: int | None = None
    """Query samples of each class; by default as in training."""
    classes: int | None = None
    """Give the head this many outputs, the meta-trained ones in turn; None: those of training."""
    seed: int = 1
    """Of the tasks; on the validation classes another one than the training's."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto: on the GPU if there is one."""
    workers: int = 0
    """Processes; 0: one for each core."""
    json: bool = False
    """Print one JSON object instead of tables."""
    render: str = ""
    """Of a policy: write a picture of episodes before and after adaptation here."""

    def __post_init__(self) -> None:
        for name in ("tasks", "batch"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, got {getattr(self, name)}.")
        if self.seed < 0 or self.workers < 0:
            raise ValueError(
                f"--seed and --workers must not be negative, got {self.seed} and {self.workers}."
            )


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(
        EvaluateConfig, args=argv, prog="pmeta evaluate", description=EvaluateConfig.__doc__
    )
    if "env" in open_run(config.run).config():
        return _policy(config)
    if config.run in zoo.names() and not config.data:
        raise ValueError(
            f"{config.run} comes without the pictures that it was trained on: give --data."
        )
    if config.render:
        raise ValueError(
            "--render shows episodes of a policy, and this run has none: leave it out."
        )
    net_layers, summary = workers.run(
        evaluate, (config,), config.workers or workers.default_workers()
    )
    if workers.is_first():
        show(config, net_layers, summary)


def _policy(config: EvaluateConfig) -> None:
    """The same for a run on reinforcement learning."""
    from pmeta.rl import evaluate_command as rl
    from pmeta.rl.render import check_path

    if config.classes is not None:
        raise ValueError(
            "--classes are those of a classifier, and this run has a policy: leave it out."
        )
    if config.render:
        check_path(config.render)
    args = (config.run, config.tasks or 400, config.batch, config.seed, config.render)
    layers, summary = workers.run(rl.evaluate, args, config.workers or workers.default_workers())
    if workers.is_first():
        rl.show(config.run, layers, summary, config.json)


def load(path: str, classes: int | None = None) -> tuple[ImageConfig, Checkpoint]:
    """The settings of a run and its best checkpoint; with `classes` that many outputs."""
    run = open_run(path)
    config, best = run.settings(ImageConfig), run.load("best")
    if best is None:
        raise ValueError(
            f"{path} has no best model yet: it is chosen from the validations after --freeze-at; go on with pmeta train."
        )
    if len(best.info.get("input", ())) != 3:
        raise ValueError(
            f"the best model of {path} does not say which images it takes, an older release wrote it: train again."
        )
    if classes is not None:
        best = best._replace(tensors=head.repeated(best.tensors, classes))
        config = dataclasses.replace(config, n_way=classes)
    return config, best


def open_images(
    config: ImageConfig, split: str, data: str, image: tuple[int, int, int]
) -> ImageSet:
    """Images of any data set in the shape (C, H, W) that a run's network takes."""
    channels, height, width = image
    if data in ("", config.data):
        images = open_split(
            config.data, split, config.image_size
        )  # as they were decoded for the training
    else:
        images = open_split(data, split, height if height == width else None, channels=channels)
    if images.shape != image:
        raise ValueError(
            f"the network takes images of {'x'.join(map(str, image))} (channels, height, width), those of {images.name} are "
            f"{'x'.join(map(str, images.shape))}: choose other data."
        )
    check_enough(images, config.n_way, config.n_shot, config.n_query)
    return images


def restore(
    config: ImageConfig, tensors: dict[str, Any], image: tuple[int, int, int], device: torch.device
) -> tuple[Network, Meta]:
    """The network of a run with the weights, step sizes and attention of a checkpoint."""
    net, meta = build(config, image, device)
    return net, restored(meta, tensors)


def evaluate(group: Group, config: EvaluateConfig) -> tuple[list[str], Summary]:
    """The names of the layers, and the summary over all tasks; each process of the group takes its share of them."""
    layers, result_of = prepare(group, config)
    numbers = group.share(range(config.tasks or 5000))
    quiet = group.rank > 0 or not sys.stderr.isatty()
    shown = track(numbers, "adapting", console=Console(stderr=True), disable=quiet, transient=True)
    return layers, summarise(group.gather([result_of(i) for i in shown]))


def prepare(group: Group, config: EvaluateConfig) -> tuple[list[str], Callable[[int], TaskResult]]:
    """The names of the layers, and what adapts the best model of a run to the task of a number."""
    trained, best = group.from_first(lambda: load(config.run, config.classes))
    given = {
        key: getattr(config, key)
        for key in ("n_way", "n_shot", "n_query")
        if getattr(config, key) is not None
    }
    if given.get("n_way", trained.n_way) > trained.n_way:
        raise ValueError(
            f"the head of {config.run} has {trained.n_way} outputs, got --n-way {config.n_way}: give --classes."
        )
    if config.split == "val" and config.seed == trained.seed:
        raise ValueError(
            f"the model was chosen on the validation tasks of seed {trained.seed}: give another --seed."
        )
    drawn = dataclasses.replace(trained, **given)
    device, image = choose_device(config.device, group.rank), tuple(best.info["input"])
    images = open_images(drawn, config.split, config.data, image)
    net, meta = restore(trained, best.tensors, image, device)
    loop = evaluation_loop(net, trained.method_row(), config.batch)
    loop = (
        loop if config.classes is None else dataclasses.replace(loop, loss=head.among(drawn.n_way))
    )
    names = [layer.name for layer in net.layers]
    return names, lambda i: evaluate_task(loop, meta, task(drawn, images, i, device, config.seed))


def show(config: EvaluateConfig, layers: list[str], summary: Summary) -> None:
    """Print the summary."""
    if config.json:
        keys = ("run", "data", "split", "batch", "n_way", "n_shot", "n_query", "classes", "seed")
        asked = {key: getattr(config, key) for key in keys}
        print(json.dumps(plain({**asked, "layers": layers, **dataclasses.asdict(summary)})))
        return
    console = Console()
    console.print(
        f"accuracy [bold]{summary.accuracy:.2f} ± {summary.ci95:.2f} %[/bold] on {summary.tasks} tasks ({config.split})"
    )
    costs = Table("a task", "mean", "worst")
    costs.add_row(
        "peak memory, paper's accounting",
        f"{summary.memory_mb:.3f} MB",
        f"{summary.worst_memory_mb:.3f} MB",
    )
    costs.add_row(
        "peak memory, exact",
        f"{summary.exact_memory_mb:.3f} MB",
        f"{summary.worst_exact_memory_mb:.3f} MB",
    )
    costs.add_row("GMACs of a step", f"{summary.gmac:.3f}", f"{summary.worst_gmac:.3f}")
    console.print(costs)
    ratios = Table(
        "share of weights updated", *[f"step {k + 1}" for k in range(len(summary.update_ratios))]
    )
    for l, name in enumerate(layers):
        ratios.add_row(name, *[f"{row[l]:.2f}" if row[l] else "·" for row in summary.update_ratios])
    console.print(ratios)
