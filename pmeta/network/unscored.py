"""The layers that backward attention cannot score: the gradient g(y) has no channel means there."""

from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

from pmeta.network.layers import Layer, evaluating

ROUNDING = 1e-5
"""Channel means below this fraction of g(y) are rounding; with n places others are near
1 / sqrt(n)."""


def unscored(model: nn.Module, example: Tensor, layers: Collection[Layer]) -> frozenset[str]:
    """The names of the layers whose g(y) sums to zero over the places of every channel.

    A norm with one channel a group takes the sum out of it, and so does a softmax over the places
    out of the gradient of its keys. Weights and input are drawn at random: a model may come with a
    head of zeros, behind which every gradient is zero."""
    numbers = torch.Generator().manual_seed(0)
    w = {name: p.detach() + _noise(p, numbers) for name, p in model.named_parameters()}
    x = example[:1]
    if x.is_floating_point():
        x = torch.randn(x.shape, generator=numbers).to(x)
    outputs: dict[str, Tensor] = {}

    def hold(name: str, y: Tensor) -> None:
        outputs[name] = y if y.requires_grad else y.requires_grad_()

    kept = [layer for layer in layers if layer.kind != "param"]
    handles = [
        layer.module.register_forward_hook(lambda m, x, y, name=layer.name: hold(name, y))
        for layer in kept
    ]
    try:
        with torch.enable_grad(), evaluating(model):
            results = tree_leaves(functional_call(model, w, (x,)))
    finally:
        for handle in handles:
            handle.remove()
    ends = [y for y in results if isinstance(y, Tensor) and y.requires_grad]
    if not ends:
        return frozenset()
    sent = [torch.randn(y.shape, generator=numbers).to(y) for y in ends]
    g = torch.autograd.grad(ends, list(outputs.values()), sent, allow_unused=True)
    gradients = dict(zip(outputs, g, strict=True))
    return frozenset(l.name for l in kept if _sums_to_zero(l, gradients[l.name]))


def _noise(p: Tensor, numbers: torch.Generator) -> Tensor:
    width = p[0].numel() ** -0.5 if p.dim() > 1 else 0.1
    return (torch.randn(p.shape, generator=numbers) * width).to(p)


def _sums_to_zero(layer: Layer, g: Tensor | None) -> bool:
    if g is None or g.dim() == 2:
        return False
    means = g.flatten(1, -2).mean(1) if layer.reads_rows else g.flatten(2).mean(2)
    return bool(means.norm() / means.numel() ** 0.5 < ROUNDING * g.norm() / g.numel() ** 0.5)
