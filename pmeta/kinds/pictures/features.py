"""Features that never change, computed once for each image and kept in a memory-mapped file.

A network that is a chain of stages is cut below the lowest stage that a memory budget can reach.
What lies below the cut gives the same for an image in every task.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.progress import track
from torch import Tensor, nn

from pmeta.base.console import Console
from pmeta.base.files import cache_folder, drop_left_parts, new_part
from pmeta.data.tasks import SCALE, SHIFT, ImageSet
from pmeta.network.layers import Network, evaluating

AT_ONCE = 32


def stages(model: nn.Module) -> list[str]:
    """The names of the stages of a chain; raises ValueError where the model is none."""
    if not isinstance(model, nn.Sequential):
        raise ValueError(
            f"features are cached of a chain of stages, an nn.Sequential, got "
            f"{type(model).__name__}: put the stages of the model in one."
        )
    return [name for name, _ in model.named_children()]


def lowest_stage(
    model: nn.Module, net: Network, arena: Callable[[Tensor], int], budget: int
) -> int:
    """The number of the lowest stage with a layer that alone fits in `budget` bytes of arena.

    Below it nothing can be updated, whatever meta-training learns."""
    for i, name in enumerate(stages(model)):
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
    >>> stages(upper)
    ['b', 'c']
    """
    names = stages(model)
    lower, upper = (
        nn.Sequential(OrderedDict((name, model.get_submodule(name)) for name in own))
        for own in (names[:at], names[at:])
    )
    return lower, upper


def at_most(images: ImageSet, count: int) -> ImageSet:
    """`count` images of each class, spread evenly over it, copied into memory; 0: all.

    The first ones are easier: data sets often come in the order in which a search found them."""
    if not count:
        return images
    kept = np.minimum(images.counts, count)
    rows = [
        start + np.arange(n) * own // n
        for start, own, n in zip(images.starts, images.counts, kept, strict=True)
    ]
    starts = np.concatenate([[0], np.cumsum(kept)[:-1]])
    pixels = images.images[np.concatenate(rows)]
    return ImageSet(pixels, images.classes, starts, kept, images.name, images.skipped)


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
    folder = cache_folder(folder)
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
    digest.update(np.ascontiguousarray(images.images[rows, ::7, ::7]).tobytes())
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
    where = next((t.device for t in lower.parameters()), torch.device("cpu"))
    writing = new_part(path)
    with torch.no_grad(), evaluating(lower):
        shape = tuple(lower(read.batch(0, 1).to(where)).shape[1:])
        out = np.lib.format.open_memmap(writing, "w+", np.float32, (n, *shape))
        firsts = range(0, n, AT_ONCE)
        for i in track(firsts, f"features of {name}", console=console, disable=not name):
            out[i : i + AT_ONCE] = lower(read.batch(i, AT_ONCE).to(where)).cpu().numpy()
        out.flush()
    writing.replace(path)
    drop_left_parts(path)
