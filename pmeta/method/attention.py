"""Sparse meta attention (Sec. 3.3, Fig. 3, Alg. 1, Eqs. 10 to 12): which channels to update."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pmeta.method.methods import Method
from pmeta.method.weight_gradient import channel_means
from pmeta.network.layers import Layer, Network


def clip(pi: Tensor, rho: float) -> Tensor:
    """Alg. 1: set the smallest scores that together reach rho to zero, and scale the others to mean
    1.

    `pi` (R, C) holds rows that sum to 1. The last channel is never dropped: as printed, the
    algorithm divides 0 by 0 where one channel holds more than 1 - rho.

    >>> clip(torch.tensor([[0.1, 0.2, 0.3, 0.4]]), rho=0.3)
    tensor([[0.0000, 0.0000, 1.7143, 2.2857]])
    """
    n_channels = pi.shape[-1]
    if rho > 0:
        pi_sorted, order = pi.sort(dim=-1, stable=True)
        # the smallest c with a sum of at least rho
        c = (pi_sorted.cumsum(-1) < rho - 1e-6).sum(-1, keepdim=True) + 1
        places = torch.arange(n_channels, device=pi.device).expand_as(order)
        rank = torch.empty_like(order).scatter_(-1, order, places)
        pi = pi * (rank >= c.clamp(max=n_channels - 1))
    return pi / pi.sum(-1, keepdim=True) * n_channels


def sparsify(pi: Tensor, rho: float) -> Tensor:
    """Alg. 1 with the straight-through estimator: the clipped value forward, the gradient of C * pi
    backward."""
    return clip(pi.detach(), rho) + pi.shape[-1] * (pi - pi.detach())


def scores(module: dict[str, Tensor], v: Tensor, rho: float, batch: int | None) -> Tensor:
    """The attention module h (Eqs. 10 and 11): pi = softmax(mean_b(W2 relu(W1 v + b1) + b2)), made
    sparse by Alg. 1.

    `v` (B, C) are channel means. The mean runs over micro-batches of `batch` samples, None for all
    of them. Returns gamma, a row for each micro-batch. (ceil(B / batch), C)
    """
    # (B, C)
    z = F.linear(F.relu(F.linear(v, module["W1"], module["b1"])), module["W2"], module["b2"])
    if batch is None or batch >= len(z):
        z = z.mean(0, keepdim=True)
    elif batch > 1:
        z = torch.stack([part.mean(0) for part in z.split(batch)])
    return sparsify(z.softmax(-1), rho)


def unit_rms(v: Tensor) -> Tensor:
    """v / sqrt(mean_c v^2): gradients are tiny and shrink with the batch, their pattern over
    channels does not."""
    return v * (v.square().mean(-1, keepdim=True) + 1e-20).rsqrt()


def init_attention(layers: list[Layer], generator: torch.Generator) -> dict[str, Tensor]:
    """Modules with W2 = 0, so that gamma starts near 1; b2 breaks the ties that would drop the same
    channels for ever."""
    params = {}
    for name, c in _sides(layers):
        params[f"{name}.W1"] = (torch.rand(c, c, generator=generator) * 2 - 1) * c**-0.5
        params[f"{name}.b1"] = torch.zeros(c)
        params[f"{name}.W2"] = torch.zeros(c, c)
        params[f"{name}.b2"] = torch.randn(c, generator=generator) * 0.01
    return params


def init_static(layers: list[Layer]) -> dict[str, Tensor]:
    """alpha^Ch of Table 4: one static factor for each input and output channel, 1 at first."""
    return {f"{name}.alpha": torch.ones(c) for name, c in _sides(layers)}


def _sides(layers: list[Layer]) -> list[tuple[str, int]]:
    """The names of both sides of each layer, and their channels."""
    return [(f"{l.name}.{s}", c) for l in layers for s, c in (("fw", l.c_in), ("bw", l.c_out))]


def has_scores(net: Network, layer: Layer) -> bool:
    """Attention is on every layer but the output layer (Sec. 4.1) and parameters that stand
    alone."""
    return layer.kind != "param" and layer != net.head


def check_scored(layers: list[Layer], method: Method) -> None:
    """Raise ValueError where backward attention would look at rounding errors."""
    names = ", ".join(layer.name for layer in layers if not layer.scored)
    if names and method.scores == "attention" and method.clip_ratio_bw is not None:
        raise ValueError(
            "attention looks at the means over each channel of the gradients of a layer, and those "
            f"of {names} are zero but for rounding, since a norm with one channel a group follows, "
            "or a softmax over places: give the norm fewer groups (--groups), or choose p-Meta "
            "(LR) (--method pmeta-lr)."
        )


@dataclass(frozen=True)
class Gammas:
    """The scores of one inner step: gamma_fw from x_{l-1} and gamma_bw from g(y_l), for any layer
    of a network."""

    net: Network
    method: Method
    params: dict[str, Tensor]
    """w^atten, or alpha^Ch."""
    batch: int | None
    """Samples in a micro-batch, which share their scores; None: all."""

    def __call__(
        self, layer: Layer, side: str, tensor: Tensor, share: float = 1.0
    ) -> Tensor | None:
        """gamma of one side of a layer, (1, C) for all samples or a row for each (B, C); None
        stands for 1 everywhere.

        `share`: where `tensor` leaves out places at which it is zero, the share of those that it
        has."""
        rho = self.method.clip_ratio_fw if side == "fw" else self.method.clip_ratio_bw
        if self.method.scores == "none" or not has_scores(self.net, layer):
            return None
        if self.method.scores == "static":
            return self.params[f"{layer.name}.{side}.alpha"][None]
        if rho is None:
            return None
        v = channel_means(layer, tensor)  # (B, C)
        v = v if share == 1 else v * share
        module = {
            key: self.params[f"{layer.name}.{side}.{key}"] for key in ("W1", "b1", "W2", "b2")
        }
        # Eq. 10, Eq. 11
        gamma = scores(module, v if side == "fw" else unit_rms(v), rho, self.batch)
        return gamma if len(gamma) == 1 else gamma.repeat_interleave(self.batch or 1, 0)[: len(v)]
