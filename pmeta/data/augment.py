"""Training pictures varied at random: crops, mirrors, brightness, contrast and colour."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pmeta.data.tasks import SCALE, SHIFT

LONGEST = 4 / 3
"""The largest ratio of a crop's sides."""


def augment(
    pixels: np.ndarray, random: np.random.Philox, size: int, least_area: float, jitter: float
) -> Tensor:
    """(n, H, W, C) uint8 -> (n, C, size, size) float32, normalised as `tasks.normalise` does.

    Each picture is a crop of at least `least_area` of its own, with sides up to 4:3, fitted to size
    x size and mirrored half of the time. Brightness, contrast and colour are multiplied by factors
    in 1 +- jitter. What happens depends on the bits of `random` and nothing else.

    >>> pixels = np.full((2, 32, 32, 3), 51, dtype=np.uint8)
    >>> augment(pixels, np.random.Philox(key=0), size=16, least_area=0.5, jitter=0.0).shape
    torch.Size([2, 3, 16, 16])
    """
    n = len(pixels)
    u = _uniform(random, n, 8)  # (n, 8)
    x = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))).float()
    grid = F.affine_grid(_crops(u, least_area), [n, x.shape[1], size, size], align_corners=False)
    x = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
    if jitter:
        x = _recoloured(x, 1 + jitter * (2 * u[:, 5:] - 1))
    return x.mul_(SCALE).add_(SHIFT)


def _uniform(random: np.random.Philox, n: int, k: int) -> Tensor:
    """n x k numbers in [0, 1), from raw bits, whose stream NumPy promises never to change."""
    bits = random.random_raw(n * k) >> np.uint64(11)
    return torch.from_numpy(bits.astype(np.float64) * 2.0**-53).float().view(n, k)


def _crops(u: Tensor, least_area: float) -> Tensor:
    """From places of the crop in [-1, 1]^2 to places of the picture. (n, 2, 3)"""
    area = least_area + (1 - least_area) * u[:, 0]
    ratio = torch.exp((2 * u[:, 1] - 1) * math.log(LONGEST))
    width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    mirror = torch.where(u[:, 2] < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(width)
    across = torch.stack([width * mirror, zero, (2 * u[:, 3] - 1) * (1 - width)], 1)
    down = torch.stack([zero, height, (2 * u[:, 4] - 1) * (1 - height)], 1)
    return torch.stack([across, down], 1)


def _recoloured(x: Tensor, factors: Tensor) -> Tensor:
    """Colour, contrast and brightness times the columns of `factors`, within what a pixel can be.
    (n, C, H, W), (n, 3)"""
    colour, contrast, brightness = factors[:, :, None, None, None].unbind(1)
    grey = x.mean(1, keepdim=True)
    x = grey + (x - grey) * colour
    mean = x.mean((1, 2, 3), keepdim=True)
    return ((mean + (x - mean) * contrast) * brightness).clamp_(0, 255)
