"""Cheap second derivatives: against PyTorch, and by finite differences (gradcheck)."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from pmeta.base.conv_shape import ConvShape
from pmeta.fast.second_order import Conv, ConvInputGrad, ConvWeightGrad, Gate, group_normalise
from tests.helpers.nets import generator

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], ConvShape]] = {
    "same": ((2, 2, 4, 4), (3, 2, 3, 3), ConvShape((1, 1), (1, 1), (1, 1), 1)),
    "strided": ((2, 2, 5, 4), (3, 2, 3, 2), ConvShape((2, 3), (1, 0), (1, 1), 1)),
    "stride leaves a rest": ((1, 2, 6, 6), (2, 2, 3, 3), ConvShape((2, 2), (0, 0), (1, 1), 1)),
    "dilated": ((1, 2, 5, 5), (2, 2, 2, 2), ConvShape((1, 1), (0, 1), (2, 3), 1)),
    "grouped": ((2, 4, 3, 3), (6, 2, 2, 2), ConvShape((1, 1), (0, 0), (1, 1), 2)),
    "depthwise": ((2, 3, 4, 4), (3, 1, 3, 3), ConvShape((1, 1), (1, 1), (1, 1), 3)),
    "depthwise, two each": ((1, 2, 3, 3), (4, 1, 2, 2), ConvShape((1, 1), (0, 0), (1, 1), 2)),
    "1x1": ((2, 3, 2, 2), (2, 3, 1, 1), ConvShape((1, 1), (0, 0), (1, 1), 1)),
    "Conv1d": ((2, 2, 7), (3, 2, 3), ConvShape((2,), (1,), (1,), 1)),
    "Conv1d, grouped and dilated": ((2, 4, 6), (4, 2, 2), ConvShape((1,), (1,), (2,), 2)),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64).requires_grad_()


def case(name: str) -> tuple[Tensor, Tensor, Tensor, ConvShape, Callable[[Tensor, Tensor], Tensor]]:
    """x, w, a gradient of y, what the conv is, and PyTorch's own conv."""
    x_shape, w_shape, s = CASES[name]
    x, w = draw(*x_shape, seed=1), draw(*w_shape, seed=2)

    def conv(x: Tensor, w: Tensor) -> Tensor:
        torch_conv = F.conv1d if x.dim() == 3 else F.conv2d
        return torch_conv(x, w, None, s.stride, s.padding, s.dilation, s.groups)

    return x, w, draw(*conv(x, w).shape, seed=3), s, conv


@pytest.mark.parametrize("name", CASES)
def test_conv_is_pytorchs(name: str) -> None:
    """The output, and the gradients of a second-order scalar in x, w and g."""
    x, w, g, s, conv = case(name)
    results = []
    for y in (Conv.apply(x, w, s), conv(x, w)):
        gx, gw = torch.autograd.grad((y * g).sum(), [x, w], create_graph=True)
        second = torch.autograd.grad(gx.pow(3).sum() + gw.pow(3).sum() + (y * y).sum(), [x, w, g])
        results.append((y, gx, gw, *second))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_conv_gradients(name: str) -> None:
    """The three derivatives of <conv(x, w), g>, each with its own first and second derivatives: the
    set is closed."""
    x, w, g, s, _ = case(name)
    shape_x, shape_w = x.detach(), w.detach()
    for f, inputs in (
        (lambda x, w: Conv.apply(x, w, s), (x, w)),
        (lambda g, w: ConvInputGrad.apply(g, shape_x, w, s), (g, w)),
        (lambda g, x: ConvWeightGrad.apply(g, x, shape_w, s), (g, x)),
    ):
        assert gradcheck(f, inputs, fast_mode=True)
        assert gradgradcheck(f, inputs, fast_mode=True)


def test_conv_of_integers() -> None:
    """y = w1 x_i + w2 x_{i+1} with w = (1, 2), x = (3, 4, 5), g = (1, 10): three derivatives by
    hand.

    y = (3 + 8, 4 + 10); g(x) = (1, 2 + 10, 20); g(w) = (3 + 40, 4 + 50).
    """
    s = ConvShape((1,), (0,), (1,), 1)
    w, x, g = (
        torch.tensor([[v]], dtype=torch.float32) for v in ([1.0, 2.0], [3.0, 4.0, 5.0], [1.0, 10.0])
    )
    assert Conv.apply(x, w, s).tolist() == [[[11, 14]]]
    assert ConvInputGrad.apply(g, x, w, s).tolist() == [[[1, 12, 20]]]
    assert ConvWeightGrad.apply(g, x, w, s).tolist() == [[[43, 54]]]


def test_a_shut_gate_keeps_weight_gradients_out() -> None:
    """While it is shut; the same graph gives them before and after."""
    x, w, g, s, _ = case("same")
    gate = Gate()
    y = Conv.apply(x, w, s, gate)

    def gradients() -> list[bool]:
        gx, gw = torch.autograd.grad(y, [x, w], g, retain_graph=True, allow_unused=True)
        return [gx is not None, gw is not None]

    assert gradients() == [True, True]
    with gate.shut():
        assert gradients() == [True, False]
    assert gradients() == [True, True]


def test_a_gate_opens_after_an_error() -> None:
    gate = Gate()
    with pytest.raises(KeyError), gate.shut():
        raise KeyError
    assert gate.is_open


@pytest.mark.parametrize(
    ("shape", "groups"), [((2, 4, 3, 3), 2), ((2, 6, 5), 3), ((3, 4), 1), ((2, 4, 2, 2), 4)]
)
def test_normalise_is_pytorchs(shape: tuple[int, ...], groups: int) -> None:
    x, g = draw(*shape, seed=1), draw(*shape, seed=2)
    results = []
    for x_hat in (group_normalise(x, groups, 1e-5), F.group_norm(x, groups, eps=1e-5)):
        (gx,) = torch.autograd.grad((x_hat * g).sum(), [x], create_graph=True)
        results.append(
            (x_hat, gx, *torch.autograd.grad(gx.pow(3).sum() + x_hat.pow(3).sum(), [x, g]))
        )
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-10)


def test_normalise_gradients() -> None:
    x = draw(2, 4, 3, seed=1)
    assert gradcheck(lambda x: group_normalise(x, 2, 1e-3), (x,))
    assert gradgradcheck(lambda x: group_normalise(x, 2, 1e-3), (x,))


def test_normalise_of_integers() -> None:
    """(0, 6, 0, 6) has mean 3 and variance 9; with eps = 16 the standard deviation is 5."""
    x_hat = group_normalise(torch.tensor([[0.0, 6.0, 0.0, 6.0]]), 1, 16.0)
    torch.testing.assert_close(x_hat, torch.tensor([[-0.6, 0.6, -0.6, 0.6]]))


def test_normalise_of_a_strided_tensor() -> None:
    x = draw(2, 3, 4, seed=1).transpose(1, 2)  # (2, 4, 3), not contiguous
    torch.testing.assert_close(
        group_normalise(x, 2, 1e-5), F.group_norm(x, 2, eps=1e-5), rtol=1e-12, atol=1e-12
    )


def test_normalise_can_be_differentiated_further() -> None:
    """Eq. 2 needs second derivatives; the third (a Hessian of the outer loss) is right too."""
    x, g = draw(2, 4, 3, seed=1), draw(2, 4, 3, seed=2)

    def input_gradient(x: Tensor, g: Tensor) -> Tensor:
        return torch.autograd.grad((group_normalise(x, 2, 1e-3) * g).sum(), x, create_graph=True)[0]

    assert gradgradcheck(input_gradient, (x, g))


@pytest.mark.parametrize("out_channels", [1, 3])
def test_the_weight_gradient_of_one_input_channel_is_pytorchs_in_any_layout(
    out_channels: int,
) -> None:
    x, w, g = (
        draw(2, 1, 5, 5, seed=1),
        draw(out_channels, 1, 3, 3, seed=2),
        draw(2, out_channels, 5, 5, seed=3).detach(),
    )
    shape = ConvShape((1, 1), (1, 1), (1, 1), 1)
    (expected,) = torch.autograd.grad(F.conv2d(x, w, padding=1), w, g)
    for layout in (torch.contiguous_format, torch.channels_last):
        g_w = ConvWeightGrad.apply(g.contiguous(memory_format=layout), x, w, shape)
        torch.testing.assert_close(g_w, expected, rtol=1e-12, atol=1e-12)
