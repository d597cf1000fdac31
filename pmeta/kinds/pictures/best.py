"""The best model of a run, restored to be evaluated on unseen tasks or exported."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from pmeta import zoo
from pmeta.data.tasks import SCALE, SHIFT, ImageSet, Task, check_enough, open_split
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.pictures.train import build, choose_device, fewer_ways, task
from pmeta.kinds.pictures.upper_part import fixed_weights
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta
from pmeta.network.layers import Network
from pmeta.training.budget import Sample
from pmeta.training.restored import Asked, Restored, Unseen, check_seed
from pmeta.training.results import TaskResult, evaluate_task, summarise
from pmeta.training.run_folder import Checkpoint, open_run, restored
from pmeta.training.workers import Group

TASKS = 5000
"""Of an evaluation, unless told otherwise."""
SHOTS = (1, 2, 5)
"""Support samples of a class for which a temperature is fitted, besides those of the training."""
CALIBRATION_TASKS = 100
"""Of each number of support samples."""


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


def with_outputs(config: ImageConfig, path: str, n_way: int | None) -> ImageConfig:
    """The settings of a run for tasks of so many classes: a head from prototypes has as many
    outputs, a learned one those of its training."""
    if n_way is None:
        return config
    if not 2 <= n_way <= 65535:
        raise ValueError(f"the classes of a task must be from 2 to 65535, got {n_way}.")
    if config.head == "prototype":
        return dataclasses.replace(config, n_way=n_way)
    if n_way > config.n_way:
        raise ValueError(
            f"the head of {path} was meta-trained for {config.n_way} classes, got {n_way}: take a "
            "model with a head from prototypes, such as miniimagenet-4conv, or train one with "
            "--head prototype."
        )
    return config


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


def restore_run(group: Group, asked: Asked) -> Restored:
    """The best model of a run on pictures, or of the zoo, and tasks of unseen classes."""
    config, best = group.from_first(lambda: load(asked.run, asked.model))
    trained = with_outputs(config, asked.run, asked.n_way)
    image = tuple(best.info["input"])
    device = choose_device(asked.device, group.rank)
    net, meta = restore(trained, best.tensors, image, device)
    meta = meta.without_steps_below(asked.least_step)
    channels = image[0]
    return Restored(
        trained,
        net,
        meta,
        Sample(image, "uint8" if len(image) == 3 else "float32"),
        best.info,
        lambda group: unseen(asked, config, net, meta, image, device),
        summarise,
        (config.memory_budget, config.budget_accounting),
        [SCALE] * channels,
        [SHIFT] * channels,
        {"loss": "cross-entropy", "n_shot": config.n_shot},
        n_shot=config.n_shot,
        shots=tuple(sorted({*SHOTS, config.n_shot})),
        calibration_tasks=min(CALIBRATION_TASKS, config.val_tasks),
    )


def unseen(
    asked: Asked,
    trained: ImageConfig,
    net: Network,
    meta: Meta,
    image: tuple[int, int, int],
    device: torch.device,
) -> Unseen:
    """Tasks of the classes of a split, drawn as in the training but for what is asked."""
    if asked.run in zoo.names() and not asked.data:
        raise ValueError(
            f"{asked.run} comes without the pictures that it was trained on: give --data."
        )
    told = {key: getattr(asked, key) for key in ("n_way", "n_shot", "n_query")}
    drawn = dataclasses.replace(trained, **{k: n for k, n in told.items() if n is not None})
    check_seed(asked, trained.seed)
    images = open_for(drawn, asked.split, asked.data, image, fewer=asked.n_way is None)
    drawn = fewer_ways(drawn, images)
    loop = InnerLoop(net, trained.method_row(), batch=asked.batch)

    def one(i: int) -> Task:
        return task(drawn, images, i, device, asked.seed)

    def results(numbers: Sequence[int]) -> list[TaskResult]:
        return [evaluate_task(loop, meta, one(i)) for i in numbers]

    return Unseen(asked.tasks or TASKS, results, task=one)
