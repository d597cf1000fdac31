"""What adaptation takes with the layers that live, and which layers fit in a memory budget."""

import math
from dataclasses import dataclass

import torch

from pmeta.cost.adaptation import Cost, cost
from pmeta.cost.bound import bound_mu_fw
from pmeta.cost.memory import peak_words, stored_words
from pmeta.cost.ops import WORD, weight_words
from pmeta.method.learned import Meta
from pmeta.method.methods import Method
from pmeta.method.step_sizes import largest, updated_layers, with_mask
from pmeta.network.layers import Network


def live_cost(net: Network, meta: Meta, method: Method, samples: int, batch: int = 1) -> Cost:
    """What adapting to `samples` samples would take now, with mu_fw at its bound."""
    masks, mu_fw = updated_layers(net, meta.updates()), bound_mu_fw(net.ops, method.stored_rho)
    return cost(net.ops, masks, samples, batch, mu_fw, attention=method.scores == "attention")


def fit_budget(
    net: Network,
    meta: Meta,
    method: Method,
    budget: int,
    samples: int,
    batch: int = 1,
    accounting: str = "exact",
) -> Meta:
    """Drop layers until the peak of every step fits in `budget` bytes of the accounting, mu_fw
    being at its bound.

    Each time goes the layer whose step size is least for the memory that it takes: the accumulator
    of its gradient, its own input, and all that the backward pass down to it drags along; or, since
    low layers share what they drag along, some lowest layers together. What fits again in the end
    is taken back, the largest step size first.
    """
    memory = memory_of(net, method, samples, min(batch, samples), accounting)
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
        keep |= largest(alpha, meta.mask & fits.to(alpha.device))
    for k in range(len(keep)):
        size = {
            name: float(alpha[k, net.index(name)])
            for name in updated_layers(net, keep[k : k + 1])[0]
        }
        for name in size.keys() - memory.fitting(size, budget):
            keep[k, net.index(name)] = False
    return with_mask(meta, keep)


def memory_of(
    net: Network, method: Method, samples: int, batch: int = 1, accounting: str = "exact"
) -> "Memory":
    """What updating layers with this method takes at most."""
    attention = method.scores == "attention"
    return Memory(
        net, bound_mu_fw(net.ops, method.stored_rho), attention, samples, batch, accounting
    )


@dataclass(frozen=True)
class Memory:
    """What updating a set of layers takes, in the paper's accounting or in the exact one."""

    net: Network
    mu_fw: dict[str, float]
    attention: bool
    samples: int
    batch: int
    accounting: str = "exact"

    def peak(self, update: list[str]) -> int:
        """Bytes."""
        args = (update, self.batch, self.samples, self.mu_fw, self.accounting, self.attention)
        return math.ceil(peak_words(self.net.ops, *args) * WORD)

    def needed_for(self, names: list[str], update: list[str]) -> float:
        """Words that some layers of `update` alone make a step keep: stored inputs, and the
        accumulators of their gradients."""
        rest = [other for other in update if other not in names]
        both = [
            sum(stored_words(self.net.ops, layers, self.mu_fw, self.accounting, self.attention))
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
