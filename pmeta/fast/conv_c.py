"""3x3 convolutions by C kernels, for float32 on one core: 25 products where PyTorch takes 81."""

import ctypes
from functools import cache, partial

import torch
from torch import Tensor

from pmeta.base.conv_shape import ConvShape
from pmeta.fast.library import call, library
from pmeta.fast.record import kernel

TILES, PLACES, MOST_CHANNELS = 24, 25, 128  # as in conv.h; with more channels PyTorch is faster
empty = partial(torch.empty, dtype=torch.float32, device="cpu")  # whatever the defaults are
PLAIN = ConvShape((1, 1), (1, 1), (1, 1), 1)


@cache
def _runs_here() -> bool:
    kernels = library()
    return kernels is not None and bool(kernels.convs_run_here())


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
    """Whether all of this conv can be computed here."""
    return all(n % 16 == 0 and n <= MOST_CHANNELS for n in w.shape[:2])


def is_thin(w: Tensor) -> bool:
    """Whether this conv has few inputs and can be computed here, all but its input gradient."""
    return w.shape[1] <= 4 and w.shape[0] % 16 == 0


@kernel
def output(x: Tensor, w: Tensor) -> Tensor:
    """conv(x, w)."""
    return _conv(x, w, w.shape[0], turned=False)


@kernel
def input_gradient(g: Tensor, w: Tensor) -> Tensor:
    """g(x) from g(y)."""
    return _conv(g, w, w.shape[1], turned=True)


def _conv(x: Tensor, w: Tensor, outputs: int, turned: bool) -> Tensor:
    b, c, h, wide = x.shape
    y = empty(b, outputs, h, wide, memory_format=torch.channels_last)
    sizes, scratch = (b, h, wide, c, outputs), _scratch(c, outputs, wide, w)
    x, w = x.contiguous(memory_format=torch.channels_last), w.contiguous()
    if is_thin(w):
        call("cv_thin", sizes, x, w, y, scratch)
    else:
        call("cv_winograd", sizes, x, w, ctypes.c_int32(turned), y, scratch)
    return y


@kernel
def weight_gradient(g: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """g(w) from g(y) and x; of w only the size is used."""
    b, c, h, wide = x.shape
    outputs, g_w = w.shape[0], empty(*w.shape)
    name = "cv_thin_weight" if is_thin(w) else "cv_winograd_weight"
    scratch, x = _scratch(c, outputs, wide, w), x.contiguous(memory_format=torch.channels_last)
    call(name, (b, h, wide, c, outputs), x, g, g_w, scratch)
    return g_w


def _scratch(inputs: int, outputs: int, width: int, w: Tensor) -> Tensor:
    if is_thin(w):
        return empty((9 * outputs + 3 * (width + 14)) * inputs + 12 * outputs)
    return empty(PLACES * (inputs * outputs + (TILES + 1) * (inputs + outputs)))
