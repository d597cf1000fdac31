"""Which layers fit in a budget of the device's memory: App. A proposes, a plan decides."""

from collections.abc import Callable

import torch
from torch import Tensor

from pmeta.method.learned import Meta
from pmeta.method.memory_budget import fit_budget, memory_of
from pmeta.method.methods import Method
from pmeta.method.step_sizes import with_mask
from pmeta.network.layers import Layer, Network

Arena = Callable[[Tensor], int]
"""The bytes that a device takes to update the layers of a mask (K, L)."""
HALVINGS = 7
"""Of the range of budgets in which a proposal is looked for."""
RETURNS = 12
"""Step sizes that may be tried again once a choice fits, the largest first."""


def fit_arena(
    net: Network, meta: Meta, method: Method, budget: int, arena: Arena, samples: int
) -> Meta:
    """Drop layers until what the device takes, `arena` of the mask, is at most `budget` bytes.

    A plan takes its time, so only a few are made. The exact accounting gives a choice of layers for
    any budget of its own (`fit_budget`); the largest one is searched whose choice the device can
    hold. What fits again in the end is taken back, the largest step size first."""
    check_arena(net, budget, arena, len(meta.alpha))

    def fits(mask: Tensor) -> bool:
        return arena(mask) <= budget

    if meta.updates().any() and fits(meta.updates()):
        return with_mask(meta, meta.updates())
    low, high = _range(net, method, samples)
    chosen: Tensor | None = None
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        proposal = fit_budget(net, meta, method, middle, samples).mask
        if fits(proposal):
            low, chosen = middle, proposal
        else:
            high = middle
    if chosen is None:
        chosen = _one_layer(net, meta, fits)
    return with_mask(meta, _taken_back(net, meta, chosen, fits))


def check_arena(net: Network, budget: int, arena: Arena, steps: int) -> None:
    """Raise ValueError where the budget is too small for any layer; the head is tried first."""
    tied = [layer for layer in net.layers if layer.kind != "param"]
    needs = []
    for layer in reversed(tied):
        needs.append((arena(_alone(net, layer).repeat(steps, 1)), layer.name))
        if needs[-1][0] <= budget:
            return
    least, name = min(needs)
    raise ValueError(
        f"memory budget of {budget:,} bytes is too small to update any layer: {name} alone takes "
        f"{least:,} on the device, give at least that, or a smaller network."
    )


def _range(net: Network, method: Method, samples: int) -> tuple[int, int]:
    """The peaks of the cheapest layer alone and of all layers, in the exact accounting."""
    memory = memory_of(net, method, samples)
    names = [layer.name for layer in net.layers if layer.kind != "param"]
    return min(memory.peak([name]) for name in names), memory.peak(names)


def _alone(net: Network, layer: Layer) -> Tensor:
    return torch.tensor([other is layer for other in net.layers])


def _one_layer(net: Network, meta: Meta, fits: Callable[[Tensor], bool]) -> Tensor:
    """The layer with the largest step sizes among those that fit in all steps."""
    size = meta.alpha.detach().sum(0).cpu()
    order = sorted(range(len(net.layers)), key=lambda l: (float(size[l]), l), reverse=True)
    for l in order:
        mask = _alone(net, net.layers[l]).to(meta.mask.device) & meta.mask
        if net.layers[l].kind != "param" and mask.any() and fits(mask):
            return mask
    raise ValueError("no layer that may be updated fits in the memory budget: give more.")


def _taken_back(net: Network, meta: Meta, mask: Tensor, fits: Callable[[Tensor], bool]) -> Tensor:
    """The mask with dropped step sizes again, of which a few are tried, the largest first."""
    alpha, missing = meta.alpha.detach(), meta.updates() & ~mask
    places = missing.nonzero().tolist()
    free = [layer.kind == "param" for layer in net.layers]
    mask = mask | (meta.updates() & torch.tensor(free, device=mask.device))
    by_size = sorted(places, key=lambda p: float(alpha[p[0], p[1]]), reverse=True)
    for k, l in [place for place in by_size if not free[place[1]]][:RETURNS]:
        more = mask.clone()
        more[k, l] = True
        mask = more if fits(more) else mask
    return mask
