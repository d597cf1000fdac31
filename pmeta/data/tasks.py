"""Few-shot tasks ("episodes") from a folder of classes.

Task i of a run is a pure function of (seed, i).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from pmeta.data.open import open_source, with_splits
from pmeta.data.sources import SPLITS

# A pixel u in 0..255 becomes (u/255 - 0.5) / 0.25 = u * SCALE + SHIFT, in every channel of every
# data set alike, computed in float32 with a rounding after the product and one after the sum. The
# device does the same from uint8.
SCALE = float(np.float32(1 / 63.75))
SHIFT = -2.0


class Task(NamedTuple):
    """A support and a query set; of pictures by class, label 0 first, then label 1, and so on."""

    support_x: torch.Tensor  # (n_way * n_shot, C, H, W) float32, normalised
    support_y: torch.Tensor  # (n_way * n_shot,) int64 in [0, n_way)
    query_x: torch.Tensor  # (n_way * n_query, C, H, W)
    query_y: torch.Tensor  # (n_way * n_query,)


@dataclass(frozen=True)
class ImageSet:
    """One split: images of class j are images[starts[j] : starts[j] + counts[j]].

    Open it again in each process.
    """

    images: np.ndarray
    """(N, H, W, C) uint8, memory-mapped; all splits of the source. Or features of one split, which
    a network goes on from: (N, C, H, W) float32."""
    classes: list[str]  # sorted
    starts: np.ndarray  # (n_classes,) int64
    counts: np.ndarray  # (n_classes,) int64
    name: str  # for messages: "val of data/birds"
    skipped: list[tuple[str, str]]  # (path, why) of unreadable files, of all splits

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of a sample."""
        if self.images.dtype == np.float32:
            _, channels, height, width = self.images.shape
            return channels, height, width
        _, height, width, channels = self.images.shape
        return channels, height, width


def open_split(
    root: str | Path,
    split: str,
    size: int | None = None,
    cache: Path | None = None,
    channels: int | None = None,
    split_seed: int = 0,
) -> ImageSet:
    """Open one split of a folder, .tar or .zip of classes, or of the embedded set `glyphs`.

    size: fit the images to size x size; None takes them as they are. cache: where decoded images
    are kept (see `cache_folder`). channels: 1 or 3; None is 1 if every picture is grey. split_seed:
    for a root without splits.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be train, val or test, got {split!r}.")
    cached = open_source(root, size, channels, cache)
    rows = [row for row in with_splits(cached, split_seed) if row[0] == split]
    if not rows:
        raise ValueError(_no_classes(root, split, [c[0] for c in cached.classes]))
    return ImageSet(
        images=cached.images,
        classes=[name for _, name, _, _ in rows],
        starts=np.array([first for *_, first, _ in rows], dtype=np.int64),
        counts=np.array([count for *_, count in rows], dtype=np.int64),
        name=f"{split} of {root}",
        skipped=cached.skipped,
    )


def _no_classes(root: str | Path, split: str, owners: list[str]) -> str:
    if owners[0]:
        there = ", ".join(f"{owners.count(own)} in {own}" for own in sorted(set(owners)))
        return (
            f"{root} has no classes in {split}, only {there}: choose one of these or add "
            f"{root}/{split}/<class>/."
        )
    return (
        f"{root} has only {len(owners)} classes, too few to set some aside for {split}: add "
        "classes."
    )


def check_enough(images: ImageSet, n_way: int, n_shot: int, n_query: int) -> None:
    """Raise unless tasks of this size can be drawn."""
    if min(n_way, n_shot, n_query) < 1:
        raise ValueError(
            f"n_way, n_shot and n_query must be at least 1, got {n_way}, {n_shot} and {n_query}."
        )
    if n_way > len(images.classes):
        raise ValueError(
            f"a {n_way}-way task needs {n_way} classes and {images.name} has "
            f"{len(images.classes)}: lower n_way."
        )
    short = int((images.counts < n_shot + n_query).sum())
    if short:
        least = int(images.counts.argmin())
        raise ValueError(
            f"a task needs n_shot + n_query = {n_shot} + {n_query} = {n_shot + n_query} images of "
            f"each class, and {short} of the {len(images.classes)} classes in {images.name} have "
            f"fewer (the least: {images.counts[least]} in {images.classes[least]}): lower n_query "
            "or remove these classes."
        )


def sample_task(images: ImageSet, seed: int, i: int, n_way: int, n_shot: int, n_query: int) -> Task:
    """Task `i` of the run `seed`: classes in random order are the labels, no image is drawn twice.

    >>> pixels = np.zeros((30, 28, 28, 1), dtype=np.uint8)
    >>> first, counts = np.array([0, 10, 20]), np.array([10, 10, 10])
    >>> three = ImageSet(pixels, ["a", "b", "c"], first, counts, "three classes", [])
    >>> task = sample_task(three, seed=0, i=7, n_way=2, n_shot=1, n_query=3)
    >>> tuple(task.support_x.shape), task.query_y.tolist()
    ((2, 1, 28, 28), [0, 0, 0, 1, 1, 1])
    """
    rows = draw_rows(images, seed, i, n_way, n_shot, n_query)
    return Task(
        as_samples(images.images[rows[:, :n_shot].ravel()]),
        torch.arange(n_way).repeat_interleave(n_shot),
        as_samples(images.images[rows[:, n_shot:].ravel()]),
        torch.arange(n_way).repeat_interleave(n_query),
    )


def draw_rows(
    images: ImageSet, seed: int, i: int, n_way: int, n_shot: int, n_query: int
) -> np.ndarray:
    """The images of task i, support samples first. (n_way, n_shot + n_query)"""
    check_enough(images, n_way, n_shot, n_query)
    if seed < 0 or i < 0:
        raise ValueError(f"seed and task number must not be negative, got seed {seed} and i {i}.")
    random = np.random.Philox(key=np.array([seed, i], dtype=np.uint64))
    classes = _choose(random, len(images.classes), n_way)
    counts = [int(images.counts[c]) for c in classes]
    own = [_choose(random, count, n_shot + n_query) for count in counts]
    return np.stack([images.starts[c] + rows for c, rows in zip(classes, own, strict=True)])


def _choose(random: np.random.Philox, n: int, k: int) -> np.ndarray:
    """k different numbers below n, in random order."""
    return random_order(random, n)[:k]


def random_order(random: np.random.Philox, n: int) -> np.ndarray:
    """The numbers below n, from raw bits, whose stream NumPy promises never to change."""
    return np.argsort(random.random_raw(n), kind="stable")


def as_samples(drawn: np.ndarray) -> torch.Tensor:
    """Pixels normalised, features as they are."""
    return torch.from_numpy(drawn) if drawn.dtype == np.float32 else normalise(drawn)


def normalise(pixels: np.ndarray) -> torch.Tensor:
    """(n, H, W, C) uint8 -> (n, C, H, W) float32: u * SCALE + SHIFT.

    >>> normalise(np.array([0, 51, 255], dtype=np.uint8).reshape(1, 1, 3, 1))
    tensor([[[[-2.0000, -1.2000,  2.0000]]]])
    """
    x = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))
    return x.float().mul_(SCALE).add_(SHIFT)
