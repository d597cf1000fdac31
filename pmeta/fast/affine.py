"""The affine part of a norm, y = weight * x + bias by channel, with cheap second derivatives.

<weight * x, g> is linear in each of weight, x and g. Its derivatives are such products again, and
sums over the places of each channel, of which one pass gives two.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from pmeta.fast import norm_pool_c
from pmeta.fast.second_order import Gate


class Affine(Function):
    """weight * x + bias, with weight and bias (C,) or None, of x (B, C, H, W)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, gate: Gate | None
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.gate = gate or Gate()
        factor = weight.view(-1, 1, 1)
        return x * factor if bias is None else torch.addcmul(bias.view(-1, 1, 1), x, factor)

    @staticmethod
    def backward(ctx: Any, g: Tensor):
        x, weight = ctx.saved_tensors
        g_x = Affine.apply(g, weight, None, None) if ctx.needs_input_grad[0] else None
        if not (any(ctx.needs_input_grad[1:]) and ctx.gate.is_open):
            return g_x, None, None, None
        products, sums = ChannelSums.apply(g, x)
        g_bias = sums.sum(0) if ctx.needs_input_grad[2] else None
        return g_x, products.sum(0), g_bias, None


class ChannelSums(Function):
    """The sums over the places of each channel of g x and of g. (B, C), (B, C)"""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(g, x)
        if norm_pool_c.takes(x):
            return norm_pool_c.channel_sums(g, x)
        return (g * x).sum((2, 3)), g.sum((2, 3))

    @staticmethod
    def backward(ctx: Any, v: Tensor, v_sums: Tensor):
        g, x = ctx.saved_tensors
        factor, shift = v[:, :, None, None], v_sums[:, :, None, None]
        d_g = torch.addcmul(shift, x, factor) if ctx.needs_input_grad[0] else None
        return d_g, g * factor if ctx.needs_input_grad[1] else None
