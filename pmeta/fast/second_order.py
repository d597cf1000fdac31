"""Conv and normalisation with cheap second derivatives (Eqs. 2, 7, 8, 15).

A conv is linear in its input x and in its weight w, so <conv(x, w), g> is trilinear in (x, w, g)
and has three derivatives: the output, the input gradient and the weight gradient. Each of them is
again one of the three, which closes the set.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from pmeta.base.conv_shape import ConvShape
from pmeta.fast import conv_c

aten = torch.ops.aten


class Gate:
    """Whether the convs of a forward pass give weight gradients; the inner loop takes those from
    the tape and shuts them out.

    A Function of our own is not told which of its gradients are wanted, and would compute each
    weight gradient twice.
    """

    def __init__(self) -> None:
        self.is_open = True

    @contextmanager
    def shut(self) -> Iterator[None]:
        self.is_open = False
        try:
            yield
        finally:
            self.is_open = True


def _output(x: Tensor, w: Tensor, s: ConvShape) -> Tensor:
    fits = x.shape[1] == w.shape[1]  # else PyTorch says what is wrong
    if fits and conv_c.takes(x, w, s) and (conv_c.is_wide(w) or conv_c.is_thin(w)):
        return conv_c.output(x, w)
    return aten.convolution(
        x, w, None, s.stride, s.padding, s.dilation, False, [0] * len(s.stride), s.groups
    )


def _input_gradient(g: Tensor, x: Tensor, w: Tensor, s: ConvShape) -> Tensor:
    if conv_c.takes(g, w, s) and conv_c.is_wide(w):
        return conv_c.input_gradient(g, w)
    return _gradient(g, x, w, s, 0)


def _weight_gradient(g: Tensor, x: Tensor, w: Tensor, s: ConvShape) -> Tensor:
    if conv_c.takes(g, w, s) and (conv_c.is_wide(w) or conv_c.is_thin(w)):
        return conv_c.weight_gradient(g, x, w)
    return _gradient(g, x, w, s, 1)


def _gradient(g: Tensor, x: Tensor, w: Tensor, s: ConvShape, of: int) -> Tensor:
    """The gradient of the input (0) or of the weight (1), which itself gives but its size."""
    out_pad, mask = [0] * len(s.stride), [of == 0, of == 1, False]
    return aten.convolution_backward(
        g, x, w, None, s.stride, s.padding, s.dilation, False, out_pad, s.groups, mask
    )[of]


def cheap_again(t: Tensor, compute: Callable[[], Tensor]) -> Tensor:
    """t, which `compute` gives again at little cost: a gradient that convs need not keep for the
    second derivative."""
    # on the tensor itself, since nothing else goes from one Function's backward to the next
    t.compute_again = compute  # type: ignore[attr-defined]
    return t


def _keep(ctx: Any, g: Tensor, other: Tensor) -> None:
    """Save g and another tensor for the backward pass, of g only how to compute it where that is
    cheap."""
    ctx.again = getattr(g, "compute_again", None)
    ctx.save_for_backward(g if ctx.again is None else None, other)


def _kept(ctx: Any) -> tuple[Tensor, Tensor]:
    g, other = ctx.saved_tensors
    if ctx.again is None:
        return g, other
    if torch.is_grad_enabled():
        raise NotImplementedError(
            "a gradient that is computed again has no third derivative: set pool_first=False for "
            "one."
        )
    return ctx.again(), other


class Conv(Function):
    """y = conv(x, w)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, shape: ConvShape, gate: Gate | None = None
    ) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.shape, ctx.gate = shape, gate or Gate()
        return _output(x, w, shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor):
        x, w = ctx.saved_tensors
        which = (ctx.needs_input_grad[0], ctx.needs_input_grad[1] and ctx.gate.is_open)
        gx = ConvInputGrad.apply(g, x, w, ctx.shape) if which[0] else None
        gw = ConvWeightGrad.apply(g, x, w, ctx.shape) if which[1] else None
        return gx, gw, None, None


class ConvInputGrad(Function):
    """g(x) from g(y) and w; of x only the size is used."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
        _keep(ctx, g, w)
        ctx.shape = shape
        return _input_gradient(g, x, w, shape)

    @staticmethod
    def backward(ctx: Any, u: Tensor):
        g, w = _kept(ctx)
        d_g = Conv.apply(u, w, ctx.shape) if ctx.needs_input_grad[0] else None
        d_w = ConvWeightGrad.apply(g, u, w, ctx.shape) if ctx.needs_input_grad[2] else None
        return d_g, None, d_w, None


class ConvWeightGrad(Function):
    """g(w) from g(y) and x; of w only the size is used."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
        _keep(ctx, g, x)
        ctx.shape = shape
        return _weight_gradient(g, x, w, shape)

    @staticmethod
    def backward(ctx: Any, v: Tensor):
        g, x = _kept(ctx)
        d_g = Conv.apply(x, v, ctx.shape) if ctx.needs_input_grad[0] else None
        d_x = ConvInputGrad.apply(g, x, v, ctx.shape) if ctx.needs_input_grad[1] else None
        return d_g, d_x, None, None


def group_normalise(x: Tensor, groups: int, eps: float) -> Tensor:
    """x_hat = (x - mean) / sqrt(var + eps) over each group of channels of each sample: a group norm
    without its affine part."""
    return Normalise.apply(x.reshape(x.shape[0], groups, -1), eps).view_as(x)


def _statistics(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x_hat over the last axis of x, and r = 1/std. (B, G, N), (B, G, 1)"""
    var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    r = (var + eps).rsqrt()
    return (x - mean).mul_(r), r


class Normalise(Function):
    """x_hat over the last axis of x (B, G, N)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        x_hat, r = _statistics(x, eps)
        ctx.save_for_backward(x, x_hat, r)
        ctx.eps = eps
        return x_hat

    @staticmethod
    def backward(ctx: Any, g: Tensor):
        x, x_hat, r = ctx.saved_tensors
        return NormaliseGrad.apply(g, x, x_hat.detach(), r, ctx.eps), None


class NormaliseGrad(Function):
    """g(x) = r (g - mean(g) - x_hat mean(g x_hat)), with x_hat and r = 1/std known functions of
    x."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, x_hat: Tensor, r: Tensor, eps: float) -> Tensor:
        ctx.save_for_backward(g, x, x_hat, r)
        ctx.eps = eps
        a = (g * x_hat).mean(-1, keepdim=True)
        return (g - g.mean(-1, keepdim=True)).addcmul_(x_hat, a, value=-1).mul_(r)

    @staticmethod
    def backward(ctx: Any, u: Tensor):
        g, x, x_hat, r = ctx.saved_tensors
        if torch.is_grad_enabled():  # a third derivative is wanted: by ordinary autograd, from x
            x_hat, r = _statistics(x, ctx.eps)
        g, u = g - g.mean(-1, keepdim=True), u - u.mean(-1, keepdim=True)
        a, b = (g * x_hat).mean(-1, keepdim=True), (u * x_hat).mean(-1, keepdim=True)
        d_g = torch.addcmul(u, x_hat, b, value=-1).mul_(r)
        if not ctx.needs_input_grad[1]:
            return d_g, None, None, None, None
        s = (u * g).mean(-1, keepdim=True)  # r s is <u, g(x)> / N
        d_x = (g * b).addcmul_(u, a).addcmul_(x_hat, s - 3 * a * b).mul_(-r * r)
        return d_g, d_x, None, None, None
