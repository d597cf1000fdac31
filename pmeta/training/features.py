"""Features that never change, computed once for each image and kept in a memory-mapped file.

A network that is a chain of stages is cut below the lowest stage that a memory budget can reach.
What lies below the cut gives the same for an image in every task.
"""

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.progress import track
from torch import Tensor, nn

from pmeta.base.console import Console
from pmeta.data.tasks import SCALE, SHIFT, ImageSet, Task, draw_rows
from pmeta.network.layers import Network

AT_ONCE = 32


def features_folder() -> Path:
    """$PMETA_CACHE, or the user's own cache folder."""
    if os.environ.get("PMETA_CACHE"):
        return Path(os.environ["PMETA_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pmeta"


def lowest_stage(
    model: nn.Sequential, net: Network, arena: Callable[[Tensor], int], budget: int
) -> int:
    """The number of the lowest stage with a layer that alone fits in `budget` bytes of arena.

    Below it nothing can be updated, whatever meta-training learns."""
    for i, (name, _) in enumerate(model.named_children()):
        own = [layer.name == name or layer.name.startswith(f"{name}.") for layer in net.layers]
        alone = [torch.arange(len(own)) == j for j, mine in enumerate(own) if mine]
        if any(arena(mask[None]) <= budget for mask in alone):
            return i
    raise ValueError(
        f"a budget of {budget:,} bytes is too small to update any layer of the network: give more."
    )


def cut(model: nn.Module, at: int) -> tuple[nn.Sequential, nn.Sequential]:
    """The stages below number `at`, and those from it on, under their own names.

    >>> lower, upper = cut(nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.ReLU(), c=nn.ReLU())), 1)
    >>> [name for name, _ in upper.named_children()]
    ['b', 'c']
    """
    if not isinstance(model, nn.Sequential):
        raise ValueError(
            f"features are cached of a chain of stages, an nn.Sequential, got "
            f"{type(model).__name__}: put the stages of the model in one."
        )
    stages = list(model.named_children())
    return nn.Sequential(OrderedDict(stages[:at])), nn.Sequential(OrderedDict(stages[at:]))


def cache_features(
    lower: nn.Module,
    images: ImageSet,
    folder: Path | None = None,
    progress: bool = True,
    scale: float = SCALE,
    shift: float = SHIFT,
) -> ImageSet:
    """What `lower` gives for every image of a split: (N, C, H, W) float32, memory-mapped.

    It reads pixels as u * scale + shift.
    A file belongs to the weights of `lower` and to the pixels; it is written under another name and
    moved, so that it is whole or not there."""
    folder = folder or features_folder()
    rows = np.concatenate(
        [np.arange(s, s + n) for s, n in zip(images.starts, images.counts, strict=True)]
    )
    path = folder / f"features-{_key(lower, images, rows, scale, shift)}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        read = _Reader(images.images, rows, scale, shift)
        _compute(lower, read, path, images.name if progress else "")
    features = np.load(path, mmap_mode="r")
    starts = np.concatenate([[0], np.cumsum(images.counts)[:-1]])
    return ImageSet(features, images.classes, starts, images.counts, images.name, images.skipped)


def _key(lower: nn.Module, images: ImageSet, rows: np.ndarray, scale: float, shift: float) -> str:
    """Of the weights below the cut, how they are wired, and some of every image."""
    digest = hashlib.sha256(str(lower).encode())
    for name, t in lower.state_dict().items():
        digest.update(name.encode() + t.detach().cpu().numpy().tobytes())
    digest.update(json.dumps([images.classes, images.images.shape[1:], scale, shift]).encode())
    digest.update(rows.tobytes())
    digest.update(np.ascontiguousarray(images.images[rows][:, ::7, ::7]).tobytes())
    return digest.hexdigest()[:24]


class _Reader(NamedTuple):
    """Images in the order of the file."""

    pixels: np.ndarray
    rows: np.ndarray
    scale: float
    shift: float

    def batch(self, first: int, count: int) -> Tensor:  # (count, C, H, W)
        pixels = self.pixels[self.rows[first : first + count]].transpose(0, 3, 1, 2)
        return torch.from_numpy(np.ascontiguousarray(pixels)).float() * self.scale + self.shift


def _compute(lower: nn.Module, read: _Reader, path: Path, name: str) -> None:
    n, console = len(read.rows), Console(stderr=True)
    writing = path.with_suffix(f".{os.getpid()}.part")
    with torch.no_grad():
        shape = tuple(lower(read.batch(0, 1)).shape[1:])
        out = np.lib.format.open_memmap(writing, "w+", np.float32, (n, *shape))
        firsts = range(0, n, AT_ONCE)
        for i in track(firsts, f"features of {name}", console=console, disable=not name):
            out[i : i + AT_ONCE] = lower(read.batch(i, AT_ONCE)).numpy()
        out.flush()
    writing.replace(path)


def sample_features(
    features: ImageSet, seed: int, i: int, n_way: int, n_shot: int, n_query: int
) -> Task:
    """Task i of the run `seed`, as `sample_task` draws it, of features in place of pixels."""
    rows = draw_rows(features, seed, i, n_way, n_shot, n_query)
    both = [rows[:, :n_shot].ravel(), rows[:, n_shot:].ravel()]
    support, query = (torch.from_numpy(np.array(features.images[part])) for part in both)
    labels: Sequence[Tensor] = [torch.arange(n_way).repeat_interleave(n) for n in (n_shot, n_query)]
    return Task(support, labels[0], query, labels[1])
