"""Learned sparse step sizes (Sec. 3.2, Eqs. 6 to 9): the memory-weighted Lasso, and which layers live."""

from dataclasses import replace

import torch
from torch import Tensor

from pmeta.cost import peak_words
from pmeta.cost_memory import stored_words
from pmeta.cost_ops import WORD, Ratio, input_words, weight_words
from pmeta.layers import Network
from pmeta.meta import Meta


def input_kib(net: Network) -> Tensor:
    """m(x_{l-1}) of every layer in KiB a sample, the weight of its step sizes in the Lasso. (L,)

    A parameter that stands alone needs no stored input: 0. The unit is what lambda = 0.001 goes with.
    """
    words = input_words(net.ops)
    return torch.tensor([words.get(layer.name, 0) * WORD / 1024 for layer in net.layers])


def lasso_gradient(alpha: Tensor, kib: Tensor, lam: float) -> Tensor:
    """The gradient of lambda sum_{l,k} m(x_{l-1}) |alpha_l^k| where alpha >= 0 (Eq. 9). (K, L)"""
    return lam * kib.expand_as(alpha)


def freeze(meta: Meta, threshold: float) -> Meta:
    """Set step sizes below `threshold` to zero for good; the largest one stays, whatever it is."""
    keep = meta.updates() & (meta.alpha.detach() >= threshold)
    if not keep.any():
        keep = meta.mask & (meta.alpha.detach() == meta.alpha.detach()[meta.mask].max())
    return with_mask(meta, keep)


def with_mask(meta: Meta, mask: Tensor) -> Meta:
    """The same with every step size outside the mask (K, L) at zero, and never computed again."""
    return replace(meta, mask=mask, alpha=torch.where(mask, meta.alpha.detach(), 0.0))


def updated_layers(net: Network, updates: Tensor) -> list[list[str]]:
    """The names of the layers that each step updates, from alpha-hat (K, L). Parameters that stand alone cost nothing."""
    tied = [layer.kind != "param" for layer in net.layers]
    rows = (updates & torch.tensor(tied)).tolist()
    return [[layer.name for layer, hit in zip(net.layers, row, strict=True) if hit] for row in rows]


def fit_budget(net: Network, meta: Meta, budget: int, samples: int, batch: int = 1, mu_fw: Ratio = 1.0) -> Meta:
    """Drop layers until the exact peak of every step fits in `budget` bytes (batch 1 unless said otherwise).

    Each time goes the layer whose step size is least for the memory that it takes: the accumulator of its gradient, its own
    input, and all that the backward pass down to it drags along.
    """
    keep, alpha = meta.updates(), meta.alpha.detach()
    for k in range(len(keep)):
        while (peak := _peak(net, keep[k], samples, batch, mu_fw)) > budget:
            layers = [l for l in keep[k].nonzero().flatten().tolist() if net.layers[l].kind != "param"]
            if not layers:
                raise ValueError(
                    f"memory budget of {budget} bytes is below the {peak} bytes that a forward pass takes: give at least that."
                )
            worth = [float(alpha[k, l]) / _memory_for(net, keep[k], l, batch, mu_fw) for l in layers]
            keep[k, layers[worth.index(min(worth))]] = False
    return with_mask(meta, keep)


def _peak(net: Network, row: Tensor, samples: int, batch: int, mu_fw: Ratio) -> int:
    update = updated_layers(net, row[None])[0]
    return int(peak_words(net.ops, update, min(batch, samples), samples, mu_fw, "exact") * WORD)


def _memory_for(net: Network, row: Tensor, l: int, batch: int, mu_fw: Ratio) -> float:
    """Words that layer l alone makes a step keep: stored inputs, and the accumulator of its gradient."""
    without = row.clone()
    without[l] = False
    both = [sum(stored_words(net.ops, updated_layers(net, r[None])[0], mu_fw, "exact")) for r in (row, without)]
    return batch * (both[0] - both[1]) + weight_words(net.ops, [net.layers[l].name])
