"""The best model of a run, restored to be evaluated on unseen tasks or exported."""

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import torch
import tyro

from pmeta.base.progress import progress
from pmeta.data.tasks import ImageSet, check_enough, open_split
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta
from pmeta.network.layers import Network
from pmeta.training.config import ImageConfig
from pmeta.training.evaluate import Summary, TaskResult, evaluate_task, summarise
from pmeta.training.own.above import fixed_weights
from pmeta.training.run_folder import Checkpoint, open_run, restored
from pmeta.training.settings import check_counts, check_processes
from pmeta.training.train import build, choose_device, fewer_ways, task
from pmeta.training.workers import Group


@dataclass(frozen=True)
class TasksConfig:
    """What is said of a run's best model and its tasks, to evaluate it or to calibrate it."""

    run: tyro.conf.Positional[str]
    """Run folder, or a model that `pmeta zoo` lists."""
    data: str = ""
    """Folder of classes to draw tasks from; by default that of the run."""
    _: KW_ONLY
    n_query: int | None = None
    """Query samples of each class; by default as in training."""
    model: str = ""
    """Of a run with a network of your own: FILE.py:FUNCTION, which makes it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto: on the GPU if there is one."""
    workers: int = 0
    """Processes; 0: one for each core."""
    json: bool = False
    """Print one JSON object instead of tables."""


@dataclass(frozen=True)
class EvaluateConfig(TasksConfig):
    """Adapt the best model of a run to unseen tasks: accuracy with CI95, peak memory, MACs, update
    ratios."""

    split: Literal["train", "val", "test"] = "test"
    """Which classes."""
    tasks: int | None = None
    """Number of tasks; by default the paper's, 5000 for images and 400 for reinforcement
    learning."""
    batch: int | None = 1
    """Samples that adaptation takes at a time (gradient accumulation); None: the whole support
    set."""
    n_way: int | None = None
    """Classes in a task, by default as in training; a learned head tells at most as many apart as
    it has outputs, a head from prototypes any number."""
    n_shot: int | None = None
    """Support samples of each class; by default as in training."""
    least_step: float | None = None
    """Leave a layer alone in a step whose step size is below this, as `pmeta export --least-step`
    does; None: update all that the run does."""
    seed: int = 1
    """Of the tasks; on the validation classes another one than the training's."""
    render: str = ""
    """Of a policy: write a picture of episodes before and after adaptation here."""

    def __post_init__(self) -> None:
        check_counts(self, *(n for n in ("tasks", "batch") if getattr(self, n) is not None))
        check_processes(self)


def load(path: str, model: str = "") -> tuple[ImageConfig, Checkpoint]:
    """The settings of a run and its best checkpoint.

    The code of a network of one's own runs only where `model` names it."""
    run = open_run(path)
    config, best = run.settings(ImageConfig), run.best()
    config = with_model(config, path, model)
    if not best.info.get("input") or (len(best.info["input"]) != 3 and not config.model):
        raise ValueError(
            f"the best model of {path} does not say which images it takes, an older release "
            "wrote it: train again."
        )
    return config, best


def with_outputs(config: ImageConfig, path: str, outputs: int) -> ImageConfig:
    """The settings of a run with so many outputs, which only a head from prototypes may change."""
    if not 2 <= outputs <= 65535:
        raise ValueError(f"--classes must be from 2 to 65535, got {outputs}.")
    if config.head != "prototype" and outputs != config.n_way:
        raise ValueError(
            f"the head of {path} was meta-trained for {config.n_way} classes, got --classes "
            f"{outputs}: take a model with a head from prototypes, such as miniimagenet-4conv, or "
            "train one with --head prototype."
        )
    return dataclasses.replace(config, n_way=outputs)


def with_model(config: ImageConfig, path: str, model: str) -> ImageConfig:
    """The settings of a run, whose own network `model` makes."""
    if model and not config.model:
        raise ValueError(f"{path} has a backbone of ours, got --model {model}: leave it out.")
    if config.model and not model:
        raise ValueError(
            f"the network of {path} was made by {config.model}, code that runs only where you name "
            f"it: give --model {config.model}."
        )
    return dataclasses.replace(config, model=model)


def open_for(
    config: ImageConfig,
    split: str,
    data: str,
    image: tuple[int, int, int],
    fewer: bool = False,
) -> ImageSet:
    """Images of any data set in the shape (C, H, W) that a run's network takes, for tasks of its
    settings; with `fewer`, of as many classes as there are."""
    if len(image) != 3 or not (data or config.data):
        raise ValueError(
            "tasks are drawn from a folder of pictures, and this run was trained on others: give "
            "--data DIR, or evaluate it in Python (Learner.evaluate)."
        )
    channels, height, width = image
    if data in ("", config.data):  # as they were decoded for the training
        images = open_split(config.data, split, config.image_size)
    else:
        images = open_split(data, split, height if height == width else None, channels=channels)
    if images.shape != image:
        wanted, found = ("x".join(map(str, shape)) for shape in (image, images.shape))
        raise ValueError(
            f"the network takes images of {wanted} (channels, height, width), those of "
            f"{images.name} are {found}: choose other data."
        )
    drawn = fewer_ways(config, images) if fewer else config
    check_enough(images, drawn.n_way, config.n_shot, config.n_query)
    return images


def restore(
    config: ImageConfig, tensors: dict[str, Any], image: tuple[int, int, int], device: torch.device
) -> tuple[Network, Meta]:
    """The network of a run with the weights, step sizes and attention of a checkpoint.

    A checkpoint may do without weights of a network of one's own that its training left as they
    came."""
    net, meta = build(config, image, device)
    net.model.eval()  # dropout off, as on the device
    fixed = fixed_weights(config, net.model) if config.model else frozenset()
    made = {f"w/{name}": t for name, t in meta.w.items() if name in fixed}
    return net, restored(meta, {**made, **tensors})


def prepare(group: Group, config: EvaluateConfig) -> tuple[list[str], Callable[[int], TaskResult]]:
    """The names of the layers, and what adapts the best model of a run to the task of a number."""
    trained, best = group.from_first(lambda: load(config.run, config.model))
    asked = {key: getattr(config, key) for key in ("n_way", "n_shot", "n_query")}
    drawn = dataclasses.replace(trained, **{k: n for k, n in asked.items() if n is not None})
    if trained.head == "prototype":
        trained = dataclasses.replace(trained, n_way=drawn.n_way)
    if drawn.n_way > trained.n_way:
        raise ValueError(
            f"the head of {config.run} has {trained.n_way} outputs, got --n-way {config.n_way}: "
            "only a head from prototypes (--head prototype) takes more."
        )
    if config.split == "val" and config.seed == trained.seed:
        raise ValueError(
            f"the model was chosen on the validation tasks of seed {trained.seed}: "
            "give another --seed."
        )
    device, image = choose_device(config.device, group.rank), tuple(best.info["input"])
    images = open_for(drawn, config.split, config.data, image, fewer=config.n_way is None)
    drawn = fewer_ways(drawn, images)
    net, meta = restore(trained, best.tensors, image, device)
    meta = meta.without_steps_below(config.least_step)
    loop = InnerLoop(net, trained.method_row(), batch=config.batch)
    names = [layer.name for layer in net.layers]
    return names, lambda i: evaluate_task(loop, meta, task(drawn, images, i, device, config.seed))


def evaluate(group: Group, config: EvaluateConfig) -> tuple[list[str], Summary]:
    """The names of the layers, and the summary over all tasks; each process takes its share."""
    layers, result_of = prepare(group, config)
    numbers = group.share(range(config.tasks or 5000))
    shown = progress(numbers, "adapting", shown=group.rank == 0)
    return layers, summarise(group.gather([result_of(i) for i in shown]))
