"""Learned sparse step sizes (Sec. 3.2, Eqs. 6 to 9): the Lasso, and which layers live."""

from dataclasses import replace

import torch
from torch import Tensor

from pmeta.cost.ops import WORD, input_words
from pmeta.method.learned import Meta
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
    return with_mask(meta, keep if keep.any() else largest(meta.alpha.detach(), meta.mask))


def largest(alpha: Tensor, among: Tensor) -> Tensor:
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
