"""The outer gradient through the inner loop against float64 finite differences.

The kinks that remain are LeakyReLU and ReLU in the networks, the changes of winner in max-pooling,
and the ReLU in the attention module. Differences over a step h that straddles one are off by far
more than the tolerance, over a smaller step they are not; a wrong gradient is off at every step. So
the derivative must be met at one of three steps.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.method.inner import InnerLoop, Loss, cross_entropy
from pmeta.method.learned import Meta
from pmeta.method.meta_gradient import AnyTask
from pmeta.method.methods import Method
from pmeta.network.backbones import MLPPolicy
from pmeta.network.tape import forward
from tests.helpers.nets import (
    Pooled,
    Residual,
    Separable,
    Signal,
    generator,
    meta_of,
    network,
    task,
)

ATTENTION = Method("dense attention", scores="attention", clip_ratio_fw=0.0, clip_ratio_bw=0.0)
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (Residual, (2, 6, 6)),  # conv, group norm, max-pool, fc
    "separable": (Separable, (2, 8, 8)),  # strided, depthwise, grouped, dilated, average pooling
    "pooled": (
        Pooled,
        (2, 6, 6),
    ),  # group norm right before max-pooling, which is computed pooled first
    "signal": (Signal, (2, 9)),  # Conv1d, strided, grouped, dilated; fc on every place
}


def query_loss(loop: InnerLoop, meta: Meta, task: AnyTask) -> Tensor:
    w = loop.adapt(meta, task[:2]).w
    return loop.loss(forward(loop.net, w, task[2])[0], task[3]).mean()


def central(f: Callable[[float], float], h: float) -> float:
    """f'(0) up to a term in h^4."""
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


def error(f: Callable[[float], float], expected: float) -> float:
    """How far the derivative of f at 0 is from the expected one, relative, at the first of three
    steps that has no kink."""
    errors = []
    for h in (5e-5, 1e-5, 2e-6):
        errors.append(abs(central(f, h) - expected) / abs(expected))
        if errors[-1] < 1e-6:
            break
    return min(errors)


def leaning(g: Tensor) -> Tensor:
    """A random direction that leans to the gradient, lest its derivative vanish."""
    u = torch.randn(g.shape, generator=generator(7), dtype=g.dtype)
    return u / u.norm() + g / g.norm()


def single(g: Tensor) -> Tensor:
    """The coordinate that matters most."""
    return F.one_hot(g.abs().argmax(), g.numel()).reshape(g.shape).to(g.dtype)


def check_outer_gradient(
    loop: InnerLoop,
    meta: Meta,
    task: AnyTask,
    direction: Callable[[Tensor], Tensor] = leaning,
    only: str = "",
) -> None:
    """In each trained tensor whose name begins with `only`, one by one."""
    meta = meta.map(lambda t: t.detach().requires_grad_())
    p = {name: t for name, t in meta.parameters().items() if name.startswith(only)}
    gradients = torch.autograd.grad(query_loss(loop, meta, task), list(p.values()))
    fixed = {name: t.detach() for name, t in meta.parameters().items()}
    forward = replace(loop, second_order=False)  # its values are the same
    for name, g in zip(p, gradients, strict=True):
        u = direction(g)

        def f(h: float, name: str = name, u: Tensor = u) -> float:
            return float(
                query_loss(
                    forward, meta.with_parameters({**fixed, name: fixed[name] + h * u}), task
                )
            )

        assert error(f, float((g * u).sum())) < 1e-6, name


@pytest.mark.parametrize(
    ("name", "batch"), [("residual", None), ("separable", 1), ("signal", 1), ("pooled", 2)]
)
def test_attention(name: str, batch: int | None) -> None:
    """In w, alpha and every attention parameter; micro-batches of 2 leave one of a single sample
    behind."""
    model, shape = NETS[name]
    net = network(model(), shape)
    loop = InnerLoop(net, ATTENTION, batch=batch, second_order=True)
    check_outer_gradient(loop, meta_of(net, ATTENTION, alpha_0=1.0), task(shape))


def test_single_coordinates() -> None:
    net = network(Residual(), (2, 6, 6))
    loop = InnerLoop(net, ATTENTION, batch=1, second_order=True)
    check_outer_gradient(
        loop, meta_of(net, ATTENTION, inner_steps=1, alpha_0=1.0), task((2, 6, 6)), single
    )


@pytest.mark.parametrize(
    "method",
    [
        Method("none"),
        Method("static", scores="static"),
        replace(ATTENTION, sparse_fw="x"),
        replace(ATTENTION, sparse_bw="y"),
        replace(ATTENTION, clip_ratio_fw=None),
    ],
    ids=["none", "static", "x", "y", "bw-only"],
)
def test_ablations(method: Method) -> None:
    net = network(Residual(), (2, 6, 6))
    meta = meta_of(net, method, inner_steps=1, alpha_0=0.5)
    unused = [name for name in meta.attention if method.clip_ratio_fw is None and ".fw." in name]
    meta = replace(
        meta, attention={name: t for name, t in meta.attention.items() if name not in unused}
    )
    check_outer_gradient(InnerLoop(net, method, second_order=True), meta, task((2, 6, 6)))


def test_three_steps_with_frozen_layers() -> None:
    """Different layers live at different steps; a frozen layer still gets its outer gradient
    through the others."""
    net = network(Residual(), (2, 6, 6))
    meta = meta_of(net, ATTENTION, inner_steps=3, alpha_0=0.5)
    mask = torch.ones_like(meta.mask)
    mask[0, net.index("conv1")] = mask[0, net.index("norm1")] = mask[1, net.index("head")] = False
    mask[2] = False
    mask[2, net.index("conv2")] = True
    meta = replace(meta, mask=mask)
    loop = InnerLoop(net, ATTENTION, second_order=True)
    for only in ("w/", "alpha"):
        check_outer_gradient(loop, meta, task((2, 6, 6)), only=only)


def test_policy_with_log_std() -> None:
    """Episodes as samples, and a parameter that belongs to no layer."""
    net = network(MLPPolicy(3, 2, (6, 5)), (4, 3), extra=("log_std",))

    def likelihood(output: tuple[Tensor, Tensor], action: Tensor) -> Tensor:
        mean, log_std = output
        return ((action - mean).square() * (-2 * log_std).exp() / 2 + log_std).sum(-1).mean(-1)

    g = generator(9)
    x = torch.randn(7, 4, 3, generator=g, dtype=torch.float64)
    a = torch.randn(7, 4, 2, generator=g, dtype=torch.float64)
    loss: Loss = likelihood
    loop = InnerLoop(net, ATTENTION, loss=loss, batch=1, second_order=True)
    check_outer_gradient(loop, meta_of(net, ATTENTION, alpha_0=0.3), (x[:3], a[:3], x[3:], a[3:]))


def test_a_wrong_gradient_is_seen() -> None:
    """The check above can fail: the first-order gradient is far off."""
    net = network(Residual(), (2, 6, 6))
    method = Method("none")
    with pytest.raises(AssertionError):
        check_outer_gradient(
            InnerLoop(net, method, loss=cross_entropy),
            meta_of(net, method, alpha_0=0.5),
            task((2, 6, 6)),
        )
