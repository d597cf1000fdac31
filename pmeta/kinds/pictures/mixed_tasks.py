"""Training tasks of many sizes, varied pictures and all; task i is a function of seed and i."""

from typing import NamedTuple

import numpy as np
import torch

from pmeta.data.augment import augment
from pmeta.data.tasks import SHIFT, ImageSet, Task, check_enough, draw_rows, sample_task
from pmeta.kinds.pictures.config import ImageConfig

SIZES, PICTURES, CAMERAS = 1 << 40, 1 << 41, 1 << 42
"""Streams of random bits beside those that draw the tasks."""
LEAST_CONTRAST = 0.2
"""Of another camera, as a share of the picture's own."""


class Size(NamedTuple):
    """How large a task is."""

    n_way: int
    n_shot: int
    n_query: int


def sizes(config: ImageConfig) -> list[Size]:
    """The sizes of training tasks, each as likely as the others.

    >>> mixed = {"head": "prototype", "train_ways": "5,20", "train_shots": "1,10"}
    >>> [size[:2] for size in sizes(ImageConfig(**mixed, most_support=50))]
    [(5, 1), (5, 10), (20, 1)]
    """
    possible = [
        Size(way, shot, config.train_queries or config.n_query)
        for way in config.counts("train_ways") or [config.n_way]
        for shot in config.counts("train_shots") or [config.n_shot]
        if not config.most_support or way * shot <= config.most_support
    ]
    if not possible:
        raise ValueError(
            f"--most-support must leave a task to train on, got {config.most_support}: every one "
            "of --train-ways x --train-shots has more samples."
        )
    return possible


def check_sizes(config: ImageConfig, images: ImageSet) -> None:
    """Raise ValueError unless tasks of every size can be drawn."""
    for size in sizes(config):
        check_enough(images, *size)


def training_task(config: ImageConfig, images: ImageSet, i: int, device: torch.device) -> Task:
    """Training task i, on the device."""
    of_all = sizes(config)
    bits = np.random.Philox(key=np.array([config.seed, SIZES + i], dtype=np.uint64)).random_raw()
    size = of_all[int(bits % len(of_all))]
    drawn = _varied(config, images, i, size)
    if drawn is None:
        drawn = sample_task(images, config.seed, i, *size)
    if config.other_camera:
        drawn = _by_another_camera(drawn, config, i)
    return Task(*(t.to(device) for t in drawn))


def _by_another_camera(task: Task, config: ImageConfig, i: int) -> Task:
    """The task with channels in another order, some of them negative, and duller, as often as
    asked."""
    random = np.random.Philox(key=np.array([config.seed, CAMERAS + i], dtype=np.uint64))
    whether, *bits, contrast, light = random.random_raw(3 + 2 * task.support_x.shape[1])
    if whether * 2.0**-64 >= config.other_camera:
        return task
    order, signs = np.array_split(np.array(bits, dtype=np.uint64), 2)
    sign = np.where(signs >> np.uint64(63), -1.0, 1.0)
    channels = torch.from_numpy(np.argsort(order, kind="stable"))
    share = LEAST_CONTRAST + (1 - LEAST_CONTRAST) * float(contrast) * 2.0**-64
    shift = (1 - share) * SHIFT * (1 - 2 * float(light) * 2.0**-64)  # within what a pixel can be
    factors = torch.from_numpy(share * sign).float()[:, None, None]
    support, queries = (x[:, channels] * factors + shift for x in (task.support_x, task.query_x))
    return task._replace(support_x=support, query_x=queries)


def _varied(config: ImageConfig, images: ImageSet, i: int, size: Size) -> Task | None:
    """The task with pictures cropped, mirrored and recoloured; None where none is to be varied."""
    if config.least_area == 1 and not config.jitter:
        return None
    rows = draw_rows(images, config.seed, i, *size)  # (n_way, n_shot + n_query)
    random = np.random.Philox(key=np.array([config.seed, PICTURES + i], dtype=np.uint64))
    way, shot, query = size
    support, queries = (
        augment(
            images.images[part.ravel()], random, images.shape[1], config.least_area, config.jitter
        )
        for part in (rows[:, :shot], rows[:, shot:])
    )
    labels = torch.arange(way)
    return Task(support, labels.repeat_interleave(shot), queries, labels.repeat_interleave(query))
