"""The passes of norm_pool.py by PyTorch: any device, any precision, and the derivation.

Over the N values of a group, x_hat = (x - mean) r with r = 1 / sqrt(var + eps). G is the gradient
at x_hat: g at the places that the pooling chose, zero elsewhere.

Backward. With m = mean(G) and a = mean(G x_hat)

    g(x) = r (G - m - a x_hat).

All but r G is affine in x: of_x * x + rest, where of_x = -a r^2 and rest = -m r - of_x * mean.

Twice. For a direction u the outer loop asks for the derivatives of F = <u, g(x)>. With
b = mean(u x_hat) and s = mean((u - mean(u)) (G - m)), which does not depend on x,

    F = N r (s - a b).

In G it is linear: dF/dG = r (u - mean(u) - b x_hat), wanted at the chosen places. In x

    dr/dx = -r^2 x_hat / N,  da/dx = r (G - m - a x_hat) / N,  db/dx = dF/dG / N

give dF/dx = -r^2 (b (G - m) + a (u - mean(u)) + (s - 3 a b) x_hat), again affine in x but for u
and G.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

aten = torch.ops.aten


class Normed(NamedTuple):
    """What the forward pass leaves for the passes back."""

    x: Tensor
    """(B, C, H, W)"""
    x_hat: Tensor
    """At the chosen places. (B, C, H / 2, W / 2)"""
    place: Tensor
    """The chosen places, as the passes that chose them write it down."""
    mean: Tensor
    """Of the group of each channel. (B, C)"""
    r: Tensor
    """1/std of the group of each channel. (B, C)"""
    groups: int

    @property
    def pixels(self) -> int:
        return self.x.shape[2] * self.x.shape[3]

    @property
    def over_group(self) -> Tensor:
        return _over_group(self.x.shape[1], self.groups, self.x.dtype, self.x.device)


def forward(x: Tensor, weight: Tensor, groups: int, eps: float) -> tuple[Tensor, ...]:
    """x_hat at the chosen places, its channel means v, the places in the memory of x, mean, r."""
    over_group = _over_group(x.shape[1], groups, x.dtype, x.device)
    rows = _rows(x)
    mean_c = rows.mean(1)
    mean = mean_c @ over_group
    var = (rows * rows).mean(1) @ over_group - mean.square()
    r = var.clamp_(min=0).add_(eps).rsqrt_()
    chosen, place = _pool(x, weight)
    return chosen.sub_(_at(mean)).mul_(_at(r)), (mean_c - mean) * r, place, mean, r


def backward(
    normed: Normed, g: Tensor, v: Tensor | None = None, g_v: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """g(x), m and a; the gradient g_v of the channel means v adds g_v / (H W) to all of G."""
    x, x_hat, place, mean, r, _ = normed
    n = normed.pixels
    m, a = _rows(g).sum(1), _rows(g * x_hat).sum(1)
    if g_v is not None and v is not None:
        m, a = m + g_v, a + g_v * v
    m, a = (m @ normed.over_group).div_(n), (a @ normed.over_group).div_(n)
    of_x = -a * r * r
    rest = -m * r - of_x * mean
    if g_v is not None:
        rest += g_v * r / n
    return _scatter(_affine(x, of_x, rest), place, g * _at(r)), m, a


def twice(normed: Normed, g: Tensor, m: Tensor, a: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """The derivatives of <u, g(x)> in g and in x."""
    x, x_hat, place, mean, r, _ = normed
    u = u.contiguous(memory_format=torch.channels_last)
    mean_u = _rows(u).mean(1) @ normed.over_group
    b = ((_rows(u) * _rows(x)).mean(1) @ normed.over_group - mean * mean_u) * r
    chosen = _like(u.permute(0, 2, 3, 1).reshape(-1).index_select(0, place), x_hat)
    s = (_rows(chosen * g).sum(1) @ normed.over_group) / normed.pixels - mean_u * m
    d_g = chosen.sub_(_at(mean_u)).addcmul_(x_hat, _at(b), value=-1).mul_(_at(r))
    of_x = (3 * a * b - s) * r**3
    d_x = _affine(x, of_x, (m * b + mean_u * a) * r * r - of_x * mean).addcmul_(u, _at(-a * r * r))
    return d_g, _scatter(d_x, place, g * _at(-b * r * r))


def _pool(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The values of x that the 2x2 max-pool of weight * x chooses, and their places in the memory
    of x."""
    rising = bool((weight > 0).all())
    chosen, place = aten.max_pool2d_with_indices(
        x if rising else x * _at(weight.sign()[None]), [2, 2], [2, 2]
    )
    place = (
        place.mul_(x.shape[1])
        .add_(_first_places(*x.shape, x.device))
        .permute(0, 2, 3, 1)
        .reshape(-1)
    )
    if rising:
        return chosen, place
    return _like(x.permute(0, 2, 3, 1).reshape(-1).index_select(0, place), chosen), place


@lru_cache(maxsize=64)
def _first_places(b: int, c: int, h: int, w: int, device: torch.device) -> Tensor:
    """Where each sample and channel begins in memory. (B, C, 1, 1)"""
    first = torch.arange(0, b * c * h * w, c * h * w, device=device)[:, None] + torch.arange(
        c, device=device
    )
    return _at(first)


def _affine(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a x + b with a factor and a summand for each sample and channel, laid out as x."""
    return torch.addcmul(_at(b), x, _at(a), out=torch.empty_like(x))


def _scatter(out: Tensor, place: Tensor, values: Tensor) -> Tensor:
    """Add the values of the pooled size to `out`, both with the channels last."""
    flat = values.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1).reshape(-1)
    out.permute(0, 2, 3, 1).view(-1).scatter_add_(0, place, flat)
    return out


@lru_cache(maxsize=64)
def _over_group(channels: int, groups: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The matrix that gives every channel the mean over its group. (C, C)"""
    group = torch.arange(channels, device=device) // (channels // groups)
    return (group[:, None] == group).to(dtype) * (groups / channels)


def _rows(x: Tensor) -> Tensor:  # (B, C, H, W) -> (B, H * W, C), in the order of memory
    return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, x.shape[1])


def _like(flat: Tensor, x: Tensor) -> Tensor:  # (B * H * W * C,) -> (B, C, H, W)
    b, c, h, w = x.shape
    return flat.view(b, h, w, c).permute(0, 3, 1, 2)


def _at(t: Tensor) -> Tensor:  # (B, C) -> (B, C, 1, 1)
    return t[:, :, None, None]
