"""The C kernels of 3x3 convs: what PyTorch gives in float64, and only where they may be used."""

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from pmeta.base.conv_shape import ConvShape
from pmeta.fast import conv_c, norm_pool_c
from pmeta.fast import library as kernels
from pmeta.fast.conv_c import PLAIN
from pmeta.fast.norm_pool_torch import Normed
from pmeta.fast.second_order import Conv
from tests.helpers.nets import generator

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
    assert conv_c.takes(images(1, 16, 4, 4, 0), torch.zeros(16, 16, 3, 3), PLAIN)


@pytest.mark.usefixtures("any_lanes")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("inputs", "outputs"), WIDE)
def test_output_and_both_gradients(size, inputs, outputs):
    b, h, w = size
    x, g = images(b, inputs, h, w, 1), images(b, outputs, h, w, 2)
    weight = torch.randn(outputs, inputs, 3, 3, generator=generator(3))
    y, g_x, g_w = in_float64(x, weight, g)
    close(conv_c.output(x, weight), y)
    close(conv_c.input_gradient(g, weight), g_x)
    close(conv_c.weight_gradient(g, x, weight), g_w)


@pytest.mark.usefixtures("any_lanes")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("inputs", [1, 3, 4])
@pytest.mark.parametrize("outputs", [16, 64])
def test_output_and_weight_gradient_of_few_channels(size, inputs, outputs):
    b, h, w = size
    x, g = images(b, inputs, h, w, 1), images(b, outputs, h, w, 2)
    weight = torch.randn(outputs, inputs, 3, 3, generator=generator(3))
    y, _, g_w = in_float64(x, weight, g)
    close(conv_c.output(x, weight), y)
    close(conv_c.weight_gradient(g, x, weight), g_w)


@pytest.mark.usefixtures("any_lanes")
def test_weights_and_inputs_of_any_layout():
    x, g = images(2, 3, 6, 6, 1), images(2, 32, 6, 6, 2)
    weight = torch.randn(32, 3, 3, 3, generator=generator(3))
    y, _, g_w = in_float64(x, weight, g)
    close(conv_c.output(x.contiguous(), weight), y)
    close(conv_c.weight_gradient(g, x.contiguous(), weight), g_w)
    x = images(2, 32, 6, 6, 1)
    weight = torch.randn(3, 3, 32, 32, generator=generator(3)).permute(2, 3, 0, 1)
    close(conv_c.output(x, weight), in_float64(x, weight, g)[0])


@pytest.mark.usefixtures("any_lanes")
def test_a_nan_stays_in_its_image():
    x = images(2, 16, 6, 6, 1)
    x[0, 0, 2, 2] = torch.nan
    y = conv_c.output(x, torch.ones(16, 16, 3, 3))
    assert y[0].isnan().any()
    assert y[1].isfinite().all()


def second(tensors: list[Tensor], conv: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, ...]:
    """The derivatives in x, w and g of something that depends on both gradients of a conv."""
    x, w, g = (t.detach().requires_grad_() for t in tensors[:3])
    g_x, g_w = torch.autograd.grad(conv(x, w), (x, w), g, create_graph=True)
    return torch.autograd.grad((g_x * tensors[3]).sum() + g_w.square().sum(), (x, w, g))


def test_second_derivatives_are_those_of_pytorch():
    w = torch.randn(32, 16, 3, 3, generator=generator(4))
    tensors = [images(2, 16, 5, 7, 1), w, images(2, 32, 5, 7, 2), images(2, 16, 5, 7, 3)]
    ours = second(tensors, lambda x, w: Conv.apply(x, w, PLAIN))
    theirs = second(
        [t.double() for t in tensors], lambda x, w: torch.nn.functional.conv2d(x, w, padding=1)
    )
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
        (x, w.to("meta"), PLAIN),
        (x, w[:, :1], ConvShape((1, 1), (1, 1), (1, 1), 16)),
    ]
    assert not any(conv_c.takes(*case) for case in refused)
    torch.set_num_threads(2)
    assert not conv_c.takes(x, w, PLAIN)
    for shape, wide, thin in [
        ((16, 8), False, False),
        ((144, 16), False, False),
        ((32, 4), False, True),
        ((48, 4), False, True),
        ((24, 4), False, False),
    ]:
        weight = torch.zeros(*shape, 3, 3)
        assert (conv_c.is_wide(weight), conv_c.is_thin(weight)) == (wide, thin)


def test_an_input_of_other_channels_is_refused_as_by_pytorch():
    with pytest.raises(RuntimeError, match="to have 16 channels, but got 32 channels"):
        Conv.apply(images(1, 32, 6, 6, 0), torch.zeros(16, 16, 3, 3), PLAIN)


@contextmanager
def defaults(dtype: torch.dtype, device: str) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_default_type_and_device_do_not_matter():
    x, g = images(2, 16, 6, 6, 1), images(2, 32, 6, 6, 2)
    weight = torch.randn(32, 16, 3, 3, generator=generator(3))
    thin, g_thin = images(2, 3, 6, 6, 4), torch.zeros(32, 3, 3, 3)

    def all_of_them() -> list[Tensor]:
        pooled = norm_pool_c.forward(x, weight[0, :, 0, 0], 4, 1e-5)
        x_hat, _, place, mean, r = pooled
        normed = Normed(x, x_hat, place, mean, r, 4)
        g_x, m, a = norm_pool_c.backward(normed, x_hat)
        twice = norm_pool_c.twice(normed, x_hat, m, a, x)
        gradients = [
            conv_c.weight_gradient(g, x, weight),
            conv_c.weight_gradient(g, thin, g_thin),
        ]
        return [
            conv_c.output(x, weight),
            conv_c.input_gradient(g, weight),
            *gradients,
            *pooled,
            g_x,
            *twice,
        ]

    expected = all_of_them()
    with defaults(torch.float64, "meta"):
        found = all_of_them()
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.usefixtures("any_lanes")
def test_a_batch_of_no_images():
    x, w = images(0, 16, 6, 6, 0).requires_grad_(), torch.ones(16, 16, 3, 3, requires_grad=True)
    y = Conv.apply(x, w, PLAIN)
    g_x, g_w = torch.autograd.grad(y, (x, w), torch.empty_like(y))
    assert (y.shape, g_x.shape) == (x.shape, x.shape)
    assert not g_w.any()
    assert not conv_c.weight_gradient(
        images(0, 32, 6, 6, 0), images(0, 3, 6, 6, 0), torch.ones(32, 3, 3, 3)
    ).any()


@pytest.mark.usefixtures("any_lanes")
def test_parts_of_larger_tensors():
    many = torch.randn(2 * 6 * 6 * 16 + 3, generator=generator(1))
    x = many[3:].view(2, 6, 6, 16).permute(0, 3, 1, 2)  # not at a multiple of 16 bytes
    weight = torch.randn(16 * 16 * 9 + 1, generator=generator(2))[1:].view(16, 16, 3, 3)
    close(conv_c.output(x, weight), in_float64(x, weight, x)[0])
    channels = torch.randn(2, 6, 6, 32, generator=generator(3)).permute(0, 3, 1, 2)[:, :16]
    assert not conv_c.takes(channels, weight, PLAIN)
    assert not conv_c.takes(x[:1].expand(3, -1, -1, -1), weight, PLAIN)
