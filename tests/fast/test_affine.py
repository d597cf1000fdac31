"""The affine part of a norm: PyTorch's values and derivatives, and sums in one pass."""

import pytest
import torch
from torch import Tensor

from pmeta.fast.affine import Affine, ChannelSums
from pmeta.fast.second_order import Gate
from tests.helpers.nets import generator


def tensors(*sizes: tuple[int, ...]) -> list[Tensor]:
    draw = generator(1)
    return [
        torch.randn(size, generator=draw, dtype=torch.float64, requires_grad=True) for size in sizes
    ]


def test_first_and_second_derivatives_agree_with_finite_differences():
    x, weight, bias, g = tensors((2, 3, 4, 3), (3,), (3,), (2, 3, 4, 3))
    torch.autograd.gradcheck(lambda *t: Affine.apply(*t, None), (x, weight, bias))
    torch.autograd.gradgradcheck(lambda *t: Affine.apply(*t, None), (x, weight, bias))
    torch.autograd.gradcheck(ChannelSums.apply, (g, x))
    torch.autograd.gradgradcheck(ChannelSums.apply, (g, x))


def test_without_a_bias():
    x, weight = tensors((2, 3, 4, 3), (3,))
    torch.testing.assert_close(Affine.apply(x, weight, None, None), x * weight.view(-1, 1, 1))
    torch.autograd.gradgradcheck(lambda *t: Affine.apply(*t, None, None), (x, weight))


def test_a_shut_gate_gives_the_gradient_of_the_input_alone():
    x, weight, bias = tensors((2, 3, 4, 3), (3,), (3,))
    gate = Gate()
    y = Affine.apply(x, weight, bias, gate)
    with gate.shut():
        g = torch.autograd.grad(y.sum(), (x, weight, bias), allow_unused=True)
    assert g[0] is not None
    assert g[1:] == (None, None)


@pytest.mark.usefixtures("any_lanes")
@pytest.mark.parametrize("size", [(2, 32, 9, 7), (3, 36, 1, 5), (1, 3, 4, 4)])
def test_sums_by_the_c_kernel_are_those_in_float64(size):
    g, x = (t.detach() for t in tensors(size, size))
    last = [t.float().contiguous(memory_format=torch.channels_last) for t in (g, x)]
    for layout in (last, [t.contiguous() for t in last]):
        for ours, right in zip(
            ChannelSums.apply(*layout), ((g * x).sum((2, 3)), g.sum((2, 3))), strict=True
        ):
            torch.testing.assert_close(ours.double(), right, rtol=1e-5, atol=1e-5)
