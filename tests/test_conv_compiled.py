"""The C kernels of 3x3 convs: what PyTorch gives in float64, and only where they may be used."""

import platform

import pytest
import torch
from nets import generator
from torch import Tensor

from pmeta import conv_compiled, kernels
from pmeta.autograd import Conv
from pmeta.conv_compiled import PLAIN, ConvShape

SIZES = [(2, 42, 42), (3, 21, 21), (1, 10, 10), (5, 1, 1), (1, 2, 3), (2, 5, 8), (30, 3, 1)]
WIDE = [(16, 16), (32, 16), (16, 48)]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def images(b: int, c: int, h: int, w: int, seed: int) -> Tensor:
    """Float32, channels last, with large values at the border, where a wrong padding would show."""
    x = torch.randn(b, c, h, w, generator=generator(seed))
    x[..., 0] *= 10
    x[..., -1, :] *= 10
    return x.contiguous(memory_format=torch.channels_last)


def in_float64(x: Tensor, w: Tensor, g: Tensor) -> tuple[Tensor, ...]:
    x, w = x.double().requires_grad_(), w.double().requires_grad_()
    y = torch.nn.functional.conv2d(x, w, padding=1)
    return y.detach(), *torch.autograd.grad(y, (x, w), g.double())


def close(ours: Tensor, theirs: Tensor) -> None:
    """To the rounding of sums in float32, relative to the largest value."""
    torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=2e-6 * float(theirs.abs().max()))


def test_they_run_on_this_machine():
    if platform.machine() != "x86_64":
        pytest.skip("the kernels are for x86-64")
    assert kernels.library() is not None, "the C kernels could not be compiled"
    assert conv_compiled.takes(images(1, 16, 4, 4, 0), torch.zeros(16, 16, 3, 3), PLAIN)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("inputs", "outputs"), WIDE)
def test_output_and_both_gradients(size, inputs, outputs):
    b, h, w = size
    x, g = images(b, inputs, h, w, 1), images(b, outputs, h, w, 2)
    weight = torch.randn(outputs, inputs, 3, 3, generator=generator(3))
    y, g_x, g_w = in_float64(x, weight, g)
    close(conv_compiled.output(x, weight), y)
    close(conv_compiled.input_gradient(g, weight), g_x)
    close(conv_compiled.weight_gradient(g, x, weight), g_w)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("inputs", [1, 3, 4])
def test_weight_gradient_of_few_channels(size, inputs):
    b, h, w = size
    x, g = images(b, inputs, h, w, 1), images(b, 64, h, w, 2)
    weight = torch.zeros(64, inputs, 3, 3)
    close(conv_compiled.weight_gradient(g, x, weight), in_float64(x, weight, g)[2])


def test_weights_and_inputs_of_any_layout():
    x, g = images(2, 3, 6, 6, 1), images(2, 32, 6, 6, 2)
    weight = torch.randn(32, 3, 3, 3, generator=generator(3))
    g_w = in_float64(x, weight, g)[2]
    close(conv_compiled.weight_gradient(g, x.contiguous(), weight), g_w)
    x = images(2, 32, 6, 6, 1)
    weight = torch.randn(3, 3, 32, 32, generator=generator(3)).permute(2, 3, 0, 1)
    close(conv_compiled.output(x, weight), in_float64(x, weight, g)[0])


def test_a_nan_stays_in_its_image():
    x = images(2, 16, 6, 6, 1)
    x[0, 0, 2, 2] = torch.nan
    y = conv_compiled.output(x, torch.ones(16, 16, 3, 3))
    assert y[0].isnan().any()
    assert y[1].isfinite().all()


def test_second_derivatives_are_those_of_pytorch():
    x, g, u = images(2, 16, 5, 7, 1), images(2, 32, 5, 7, 2), images(2, 16, 5, 7, 3)
    w = torch.randn(32, 16, 3, 3, generator=generator(4))

    def second(x: Tensor, w: Tensor, g: Tensor, u: Tensor, conv) -> tuple[Tensor, ...]:
        x, w, g = (t.detach().requires_grad_() for t in (x, w, g))
        g_x, g_w = torch.autograd.grad(conv(x, w), (x, w), g, create_graph=True)
        return torch.autograd.grad((g_x * u).sum() + g_w.square().sum(), (x, w, g))

    ours = second(x, w, g, u, lambda x, w: Conv.apply(x, w, PLAIN))
    theirs = second(*(t.double() for t in (x, w, g, u)), lambda x, w: torch.nn.functional.conv2d(x, w, padding=1))
    for a, b in zip(ours, theirs, strict=True):
        close(a, b)


def test_what_is_left_to_pytorch():
    x, w = images(1, 16, 6, 6, 0), torch.zeros(16, 16, 3, 3)
    refused = [
        (x.contiguous(), w, PLAIN),
        (x.double(), w.double(), PLAIN),
        (x, torch.zeros(16, 16, 5, 5), PLAIN),
        (x, w, ConvShape((2, 2), (1, 1), (1, 1), 1)),
        (x, w, ConvShape((1, 1), (0, 0), (1, 1), 1)),
        (x, w, ConvShape((1, 1), (1, 1), (2, 2), 1)),
        (x, w[:, :1], ConvShape((1, 1), (1, 1), (1, 1), 16)),
    ]
    assert not any(conv_compiled.takes(*case) for case in refused)
    torch.set_num_threads(2)
    assert not conv_compiled.takes(x, w, PLAIN)
    for shape, wide, thin in [
        ((16, 8), False, False),
        ((144, 16), False, False),
        ((32, 4), False, True),
        ((48, 4), False, False),
    ]:
        weight = torch.zeros(*shape, 3, 3)
        assert (conv_compiled.is_wide(weight), conv_compiled.is_thin(weight)) == (wide, thin)
