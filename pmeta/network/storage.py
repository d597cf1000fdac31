"""What a device keeps from forward to backward in fewer bytes, as PyTorch sees it: rounded.

Kept are the inputs x_{l-1} of updated layers and the normalized inputs of norms. Each channel of a
sample (of fc and layer norm: each row) has a range of its own: int8 divides it in 255 steps, which
after a ReLU begin at 0; float16 rounds every number by itself. Rows and channels of a few numbers
stay float32, since their range would take as much as it saves.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from pmeta.base.number_types import LEAST
from pmeta.network.layers import Layer, Network

LEVELS = 255
TINY = 1e-30
"""A step below it counts as none."""
LARGEST = 65504.0
"""Of float16."""


def kept_input(net: Network, layer: Layer, x: Tensor, store: str) -> Tensor:
    """x_{l-1}, or the normalized input of a norm, as the device has it in the backward pass.

    As it is where nothing is kept: the head's is read again at once, and a sample is the
    caller's."""
    if layer.kind != "norm" and (layer is net.head or layer.name in net.first):
        return x
    return rounded(x, layer.channels_last, store)


def rounded(x: Tensor, rows: bool, store: str) -> Tensor:
    """x (B, C, ...), or with `rows` (B, ..., C), rounded; its gradient passes straight through.

    >>> rounded(torch.arange(16.0)[None] ** 2, rows=True, store="int8")[0, 1:4]
    tensor([0.8824, 4.4118, 8.8235])
    """
    flat = x if rows else x.flatten(2) if x.dim() > 2 else x[..., None]
    if store == "float32" or flat.shape[-1] < LEAST:
        return x
    return _StraightThrough.apply(flat, store).reshape(x.shape)


class _StraightThrough(Function):
    """Rounding along the last axis."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, store: str) -> Tensor:
        if store == "float16":
            return x.clamp(-LARGEST, LARGEST).half().to(x.dtype)
        low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        step = (high - low) / LEVELS
        inverse = torch.where(step > TINY, 1 / step, 0)
        return ((x - low) * inverse + 0.5).floor().clamp(0, LEVELS) * step + low

    @staticmethod
    def backward(ctx: Any, g: Tensor):
        return g, None
