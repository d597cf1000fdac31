"""3x3 convolutions by C kernels, for float32 on one core: 25 products where PyTorch takes 81."""

import ctypes
from functools import cache, partial

import torch
from torch import Tensor

from pmeta.base.conv_shape import ConvShape
from pmeta.fast.library import call, library
from pmeta.fast.record import kernel

TILES, PLACES, MOST_CHANNELS = 18, 25, 128  # as in conv.c; with more channels PyTorch is faster
empty = partial(torch.empty, dtype=torch.float32, device="cpu")  # whatever the defaults are
PLAIN = ConvShape((1, 1), (1, 1), (1, 1), 1)


@cache
def _runs_here() -> bool:
    kernels = library()
    return kernels is not None and bool(kernels.cv_runs_here())


def takes(image: Tensor, w: Tensor, s: ConvShape) -> bool:
    """Whether the output or a gradient of this conv can be computed here, from an input or an
    output gradient.

    PyTorch's convs share their work between threads, these do not: with more than one thread the
    conv is left to PyTorch."""
    return (
        s == PLAIN
        and image.dtype == w.dtype == torch.float32
        and w.shape[2:] == (3, 3)
        and image.device.type == w.device.type == "cpu"
        and image.is_contiguous(memory_format=torch.channels_last)
        and torch.get_num_threads() == 1
        and _runs_here()
    )


def is_wide(w: Tensor) -> bool:
    """Whether all of this conv can be computed here, not only its weight gradient."""
    return all(n % 16 == 0 and n <= MOST_CHANNELS for n in w.shape[:2])


def is_thin(w: Tensor) -> bool:
    """Whether the weight gradient can be computed here."""
    return w.shape[1] <= 4 and w.shape[0] % 32 == 0


@kernel
def output(x: Tensor, w: Tensor) -> Tensor:
    """conv(x, w)."""
    return _winograd(x, w, w.shape[0], turned=False)


@kernel
def input_gradient(g: Tensor, w: Tensor) -> Tensor:
    """g(x) from g(y)."""
    return _winograd(g, w, w.shape[1], turned=True)


def _winograd(x: Tensor, w: Tensor, outputs: int, turned: bool) -> Tensor:
    b, c, h, wide = x.shape
    y = empty(b, outputs, h, wide, memory_format=torch.channels_last)
    sizes, scratch = (b, h, wide, c, outputs), _scratch(c, outputs)
    call("cv_winograd", sizes, x, w.contiguous(), ctypes.c_int32(turned), y, scratch)
    return y


@kernel
def weight_gradient(g: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """g(w) from g(y) and x; of w only the size is used."""
    b, c, h, wide = x.shape
    outputs, g_w = w.shape[0], empty(*w.shape)
    thin = is_thin(w)
    scratch = empty((9 * outputs + wide + 2) * c) if thin else _scratch(c, outputs)
    name = "cv_thin_weight" if thin else "cv_winograd_weight"
    x = x.contiguous(memory_format=torch.channels_last)
    call(name, (b, h, wide, c, outputs), x, g, g_w, scratch)
    return g_w


def _scratch(inputs: int, outputs: int) -> Tensor:
    return empty(PLACES * (inputs * outputs + TILES * (inputs + outputs)))
