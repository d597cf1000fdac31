"""The passes of norm_pool.py by C kernels, for float32 on a CPU."""

import ctypes
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pmeta.fast.conv_c import empty
from pmeta.fast.library import call, library
from pmeta.fast.norm_pool_torch import Normed
from pmeta.fast.record import kernel

MOST_CHANNELS = 1024
_image = partial(empty, memory_format=torch.channels_last)


def takes(x: Tensor) -> bool:
    """Whether x (B, C, H, W) can be computed here."""
    fits = x.dtype == torch.float32 and x.device.type == "cpu" and x.shape[1] <= MOST_CHANNELS
    return fits and library() is not None


@kernel
def forward(x: Tensor, weight: Tensor, groups: int, eps: float) -> tuple[Tensor, ...]:
    """x_hat at the chosen places, its channel means v, the places (0 to 3 of a window), mean, r."""
    b, c, h, w = x.shape
    x_hat = _image(b, c, h // 2, w // 2)
    place = _image(*x_hat.shape, dtype=torch.uint8)
    v, mean, r = (x.new_empty(b, c) for _ in range(3))
    _call("np_forward", x, groups, x, weight.sign(), ctypes.c_float(eps), x_hat, place, v, mean, r)
    return x_hat, v, place, mean, r


@kernel
def backward(
    normed: Normed, g: Tensor, v: Tensor | None = None, g_v: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """g(x), m and a."""
    x, x_hat, place, mean, r, groups = normed
    g_x, m, a = _image(*x.shape), torch.empty_like(mean), torch.empty_like(mean)
    g_v = None if g_v is None else g_v.contiguous()
    _call("np_backward", x, groups, _last(g), g_v, x, x_hat, v, place, mean, r, g_x, m, a)
    return g_x, m, a


@kernel
def twice(normed: Normed, g: Tensor, m: Tensor, a: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """The derivatives of <u, g(x)> in g and in x."""
    x, *kept, groups = normed
    d_g, d_x = _image(*g.shape), _image(*x.shape)
    _call("np_twice", x, groups, _last(u), _last(g), x, *kept, m, a, d_g, d_x)
    return d_g, d_x


@kernel
def channel_sums(g: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The sums over the places of each channel of g x and of g. (B, C), (B, C)"""
    products, sums = (x.new_empty(x.shape[:2]) for _ in range(2))
    _call("np_sums", x, 1, _last(g), _last(x), products, sums)
    return products, sums


def _call(name: str, x: Tensor, groups: int, *arguments: Any) -> None:
    b, c, h, w = x.shape
    call(name, (b, h, w, c, groups), *arguments)


def _last(t: Tensor) -> Tensor:
    return t.contiguous(memory_format=torch.channels_last)
