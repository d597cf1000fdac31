"""Learned sparse step sizes (Sec. 3.2, Eqs. 6 to 9): the Lasso, and which layers live."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pmeta.cost.bound import bound_mu_fw
from pmeta.cost.memory import peak_words, stored_words
from pmeta.cost.ops import WORD, input_words, weight_words
from pmeta.method.learned import Meta
from pmeta.method.methods import Method
from pmeta.network.layers import Network


def input_kib(net: Network) -> Tensor:
    """m(x_{l-1}) of every layer in KiB a sample, the weight of its step sizes in the Lasso. (L,)

    A parameter that stands alone needs no stored input: 0. The unit is what lambda = 0.001 goes
    with.
    """
    words = input_words(net.ops)
    return torch.tensor([words.get(layer.name, 0) * WORD / 1024 for layer in net.layers])


def lasso_gradient(alpha: Tensor, kib: Tensor, lam: float) -> Tensor:
    """The gradient of lambda sum_{l,k} m(x_{l-1}) |alpha_l^k| where alpha >= 0 (Eq. 9). (K, L)"""
    return lam * kib.expand_as(alpha)


def freeze(meta: Meta, threshold: float) -> Meta:
    """Set step sizes below `threshold` to zero for good; the largest one stays, whatever it is."""
    keep = meta.updates() & (meta.alpha.detach() >= threshold)
    return with_mask(meta, keep if keep.any() else _largest(meta.alpha.detach(), meta.mask))


def _largest(alpha: Tensor, among: Tensor) -> Tensor:
    """A mask (K, L) of the largest step size alone; of equal ones the last, since late layers take
    the least memory."""
    place = torch.where(among, alpha, -1.0).flatten().flip(0).argmax()  # the first of equal ones
    return torch.arange(alpha.numel(), device=alpha.device).flip(0).view_as(alpha) == place


def with_mask(meta: Meta, mask: Tensor) -> Meta:
    """The same with every step size outside the mask (K, L) at zero, and never computed again."""
    return replace(meta, mask=mask, alpha=torch.where(mask, meta.alpha.detach(), 0.0))


def updated_layers(net: Network, updates: Tensor) -> list[list[str]]:
    """The names of the layers that each step updates, from alpha-hat (K, L). Parameters that stand
    alone cost nothing."""
    tied = [layer.kind != "param" for layer in net.layers]
    rows = (updates.cpu() & torch.tensor(tied)).tolist()
    return [[layer.name for layer, hit in zip(net.layers, row, strict=True) if hit] for row in rows]


def mu_fw_bound(net: Network, method: Method) -> dict[str, float]:
    """The most that mu_fw of each layer can be, whatever the data; layers that are dense are left
    out."""
    clipped = (
        method.scores == "attention"
        and method.sparse_fw == "w"
        and method.clip_ratio_fw is not None
    )
    return bound_mu_fw(net.ops, method.clip_ratio_fw or 0.0) if clipped else {}


def fit_budget(
    net: Network, meta: Meta, method: Method, budget: int, samples: int, batch: int = 1
) -> Meta:
    """Drop layers until the exact peak of every step fits in `budget` bytes, mu_fw being at its
    bound.

    Each time goes the layer whose step size is least for the memory that it takes: the accumulator
    of its gradient, its own input, and all that the backward pass down to it drags along; or, since
    low layers share what they drag along, some lowest layers together. What fits again in the end
    is taken back, the largest step size first.
    """
    memory = Memory(
        net, mu_fw_bound(net, method), method.scores == "attention", samples, min(batch, samples)
    )
    fits = torch.tensor(
        [layer.kind != "param" and memory.peak([layer.name]) <= budget for layer in net.layers]
    )
    if not fits.any():
        cheapest = min(
            (memory.peak([layer.name]), layer.name) for layer in net.layers if layer.kind != "param"
        )
        raise ValueError(
            f"memory budget of {budget} bytes is too small to update any layer: {cheapest[1]} "
            f"alone takes {cheapest[0]}, give at least that."
        )
    alpha, free = meta.alpha.detach(), torch.tensor([layer.kind == "param" for layer in net.layers])
    keep = meta.updates() & (fits | free).to(alpha.device)
    if not (keep & fits.to(alpha.device)).any():
        keep |= _largest(alpha, meta.mask & fits.to(alpha.device))
    for k in range(len(keep)):
        size = {
            name: float(alpha[k, net.index(name)])
            for name in updated_layers(net, keep[k : k + 1])[0]
        }
        for name in size.keys() - memory.fitting(size, budget):
            keep[k, net.index(name)] = False
    return with_mask(meta, keep)


@dataclass(frozen=True)
class Memory:
    """What updating a set of layers takes, in the exact accounting."""

    net: Network
    mu_fw: dict[str, float]
    attention: bool
    samples: int
    batch: int

    def peak(self, update: list[str]) -> int:
        """Bytes."""
        args = (update, self.batch, self.samples, self.mu_fw, "exact", self.attention)
        return math.ceil(peak_words(self.net.ops, *args) * WORD)

    def needed_for(self, names: list[str], update: list[str]) -> float:
        """Words that some layers of `update` alone make a step keep: stored inputs, and the
        accumulators of their gradients."""
        rest = [other for other in update if other not in names]
        both = [
            sum(stored_words(self.net.ops, layers, self.mu_fw, "exact", self.attention))
            for layers in (update, rest)
        ]
        return self.batch * (both[0] - both[1]) + weight_words(self.net.ops, names)

    def fitting(self, size: dict[str, float], budget: int) -> list[str]:
        """Those of the layers, given in their order with a step size each, whose updates fit in
        `budget` bytes together."""
        layers = list(size)
        while self.peak(layers) > budget:
            droppable = [[name] for name in layers] + [layers[:i] for i in range(2, len(layers))]
            worth = [
                sum(size[name] for name in names) / self.needed_for(names, layers)
                for names in droppable
            ]
            dropped = droppable[worth.index(min(worth))]
            layers = [name for name in layers if name not in dropped]
        for name in sorted(size, key=lambda name: (size[name], self.net.index(name)), reverse=True):
            more = [other for other in size if other in layers or other == name]
            layers = more if self.peak(more) <= budget else layers
        return layers
