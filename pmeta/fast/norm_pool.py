"""Group norm pooled first: only what the 2x2 max-pool behind it chooses is normalised.

The norm's own gradient is zero wherever its output was not the largest of its window, so all that a
layer needs of x_hat and g(y) is known at those places, a quarter of all. What remains at full size
is one affine map of the input. Tensors are laid out with the channels last, where PyTorch pools ten
times as fast.
"""

from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from pmeta.fast import norm_pool_c, norm_pool_torch
from pmeta.fast.norm_pool_torch import Normed
from pmeta.fast.second_order import cheap_again

TWICE = (
    "a norm that is pooled first is differentiated twice at most, its channel means once: "
    "set pool_first=False for more."
)


class Pooled(NamedTuple):
    """A normalised input after pooling."""

    x_hat: Tensor
    """At the places that the pooling chose. (B, C, H / 2, W / 2)"""
    v: Tensor
    """The channel means of all of x_hat. (B, C)"""


def norm_pool(x: Tensor, weight: Tensor, groups: int, eps: float) -> Pooled:
    """x_hat of x (B, C, H, W) where the 2x2 max-pool of weight * x_hat chooses: with a negative
    weight the smallest."""
    x = x.contiguous(memory_format=torch.channels_last)
    return Pooled(*NormPool.apply(x, weight.detach(), groups, eps))


def _passes(x: Tensor) -> ModuleType:
    return norm_pool_c if norm_pool_c.takes(x) else norm_pool_torch


class NormPool(Function):
    """(x_hat at the chosen places, channel means of x_hat)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, groups: int, eps: float
    ) -> tuple[Tensor, Tensor]:
        x_hat, v, place, mean, r = _passes(x).forward(x, weight, groups, eps)
        ctx.save_for_backward(x, x_hat, v, place, mean, r)
        ctx.groups = groups
        ctx.set_materialize_grads(False)
        return x_hat, v

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, g_v: Tensor | None):
        x, x_hat, v, place, mean, r = ctx.saved_tensors
        g = torch.zeros_like(x_hat) if g is None else g
        normed = Normed(x, x_hat.detach(), place, mean, r, ctx.groups)
        if not torch.is_grad_enabled():
            return _passes(x).backward(normed, g, v, g_v)[0], None, None, None
        if g_v is not None:
            raise NotImplementedError(TWICE)
        return NormPoolGrad.apply(g, *normed), None, None, None


class NormPoolGrad(Function):
    """g(x) = r (G - mean(G) - x_hat mean(G x_hat)), where G is g at the chosen places and zero
    elsewhere."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, *parts: Any) -> Tensor:
        g, normed = g.detach(), Normed._make([*(t.detach() for t in parts[:-1]), parts[-1]])
        g_x, m, a = _passes(normed.x).backward(normed, g)
        ctx.save_for_backward(g, *normed[:-1], m, a)
        ctx.groups = normed.groups
        return cheap_again(g_x, lambda: _passes(normed.x).backward(normed, g)[0])

    @staticmethod
    def backward(ctx: Any, u: Tensor):
        if torch.is_grad_enabled():
            raise NotImplementedError(TWICE)
        g, *parts, m, a = ctx.saved_tensors
        normed = Normed._make([*parts, ctx.groups])
        d_g, d_x = _passes(normed.x).twice(normed, g, m, a, u)
        return d_g, d_x, None, None, None, None, None
