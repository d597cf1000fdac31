"""Group norm pooled first: the same values and derivatives as group norm and then max-pool."""

from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pmeta.fast import norm_pool_c, norm_pool_torch
from pmeta.fast.norm_pool import norm_pool
from pmeta.fast.norm_pool_torch import Normed
from tests.helpers.nets import generator

SIZES = [(2, 6, 6, 6), (2, 6, 7, 5), (1, 6, 2, 2), (3, 3, 4, 9)]


def inputs(size: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    x = torch.randn(size, generator=generator(), dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([0.5, -2.0, 1.0, -0.1, 3.0, 0.7], dtype=torch.float64)[: size[1]]
    return x, weight


def reference(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    x_hat = F.group_norm(x, 3, eps=0.1)
    scale = weight.view(-1, 1, 1)
    return F.max_pool2d(x_hat * scale, 2) / scale, x_hat.mean((2, 3))


@pytest.mark.parametrize("size", SIZES)
def test_values_and_gradients_are_those_of_the_norm_and_the_pool(size):
    x, weight = inputs(size)
    ours, theirs = norm_pool(x, weight, 3, 0.1), reference(x, weight)
    g = [torch.randn(t.shape, generator=generator(1), dtype=t.dtype) for t in theirs]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(ours, x, g), torch.autograd.grad(theirs, x, g), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("size", SIZES)
def test_first_and_second_derivatives_agree_with_finite_differences(size):
    x, weight = inputs(size)
    torch.autograd.gradcheck(lambda x: norm_pool(x, weight, 3, 0.1), x)
    torch.autograd.gradgradcheck(lambda x: norm_pool(x, weight, 3, 0.1).x_hat, x)


def test_of_equal_values_the_first_is_chosen_as_in_pytorch():
    x = torch.zeros(1, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    for weight in (1.0, -1.0, 0.0):
        x_hat, _ = norm_pool(x, torch.full((2,), weight, dtype=x.dtype), 1, 1e-5)
        (g,) = torch.autograd.grad(x_hat[0, 0, 0, 0], x)
        assert g.argmax() == 0


def test_constant_images_give_finite_values():
    x = torch.full((2, 4, 6, 6), 0.3, requires_grad=True)
    x_hat, v = norm_pool(x, torch.ones(4), 2, 1e-5)
    (g,) = torch.autograd.grad(x_hat.sum(), x)
    assert x_hat.isfinite().all()
    assert v.isfinite().all()
    assert g.isfinite().all()


def test_a_third_derivative_is_refused_with_the_way_out():
    x, weight = inputs((2, 6, 4, 4))
    (g,) = torch.autograd.grad(
        (norm_pool(x, weight, 3, 0.1).x_hat ** 2).sum(), x, create_graph=True
    )
    with pytest.raises(NotImplementedError, match="set pool_first=False"):
        torch.autograd.grad((g**2).sum(), x, create_graph=True)


def test_a_second_derivative_of_the_channel_means_is_refused():
    x, weight = inputs((2, 6, 4, 4))
    with pytest.raises(NotImplementedError, match="its channel means once"):
        torch.autograd.grad((norm_pool(x, weight, 3, 0.1).v ** 2).sum(), x, create_graph=True)


def test_memory_layout_of_the_input_does_not_matter():
    x, weight = inputs((2, 6, 6, 6))
    last = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    g = [torch.autograd.grad(norm_pool(t, weight, 3, 0.1).x_hat.sum(), t)[0] for t in (x, last)]
    torch.testing.assert_close(*g, rtol=0, atol=0)


@pytest.mark.usefixtures("any_lanes")
@pytest.mark.parametrize("size", [*SIZES, (2, 36, 9, 8)])
def test_the_c_kernels_give_what_the_eager_passes_give_in_float64(size):
    assert norm_pool_c.takes(torch.zeros(size)), "the C kernels could not be compiled"
    x = torch.randn(size, generator=generator(), dtype=torch.float64).contiguous(
        memory_format=torch.channels_last
    )
    weight = torch.tensor([0.5, -2.0, 1.0, -0.1, 3.0, 0.0], dtype=torch.float64).repeat(6)[
        : size[1]
    ]

    def passes(module: ModuleType, dtype: torch.dtype) -> list[Tensor]:
        draw = generator(1)

        def noise(like: Tensor) -> Tensor:
            return torch.randn(like.shape, generator=draw, dtype=torch.float64).to(dtype)

        x_, weight_ = x.to(dtype), weight.to(dtype)
        x_hat, v, place, mean, r = module.forward(x_, weight_, 3, 0.1)
        normed = Normed(x_, x_hat, place, mean, r, 3)
        g, g_v = noise(x_hat), noise(v)
        g_x, m, a = module.backward(normed, g, v, g_v)
        g_x_alone, *_ = module.backward(normed, g)
        return [
            x_hat,
            v,
            mean,
            r,
            g_x,
            m,
            a,
            g_x_alone,
            *module.twice(normed, g, m, a, noise(x_)),
        ]

    for c, eager in zip(
        passes(norm_pool_c, torch.float32),
        passes(norm_pool_torch, torch.float64),
        strict=True,
    ):
        torch.testing.assert_close(c.double(), eager, rtol=2e-5, atol=2e-5)


@pytest.mark.usefixtures("any_lanes")
def test_the_c_kernels_choose_a_nan_as_pytorch_does():
    x = torch.tensor([[1.0, float("nan")], [3.0, 2.0]]).view(1, 1, 2, 2)
    x_hat, *_ = norm_pool_c.forward(x, torch.ones(1), 1, 1e-5)
    assert x_hat.isnan().all()
