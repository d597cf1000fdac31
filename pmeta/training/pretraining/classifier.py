"""The classifier of a pre-training: its loss, its gradient, and AdamW."""

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.data.tasks import ImageSet
from pmeta.method.outer import adam_step
from pmeta.network.layers import Network, Weights
from pmeta.network.take_in import take_in
from pmeta.network.tape import forward
from pmeta.training.pretraining.config import PretrainConfig
from pmeta.training.train import new_model

WARM_UP = 0.1
"""Share of the updates over which the step size rises."""
FIRST_SCALE = 10.0
"""Of the cosines, before the training."""


class Classifier:
    """The network without its head, a head for the training classes, and the moments of AdamW.

    The network has batch norms, which train best; `folding` makes plain convs of them."""

    def __init__(self, config: PretrainConfig, images: ImageSet, device: torch.device):
        self.config, self.device, self.done = config, device, 0
        self.per_epoch = int(images.counts.sum()) // config.batch
        generator = torch.Generator().manual_seed(config.seed)
        crop = (images.shape[0], config.crop_size, config.crop_size)
        model: Any = new_model(config, len(images.classes), crop, "batch", generator)
        head, model.fc, model.norm5 = model.fc, nn.Identity(), nn.Identity()
        example = torch.zeros(1, *crop, device=device)
        self.net: Network = take_in(model.to(device), example, batch_norm=True)
        body = {f"w/{name}": t for name, t in self.net.weights().items()}
        scale = torch.tensor(math.log(FIRST_SCALE))
        own = {"head/weight": head.weight.detach(), "head/log_scale": scale}
        self.tensors = {name: t.clone().to(device) for name, t in {**body, **own}.items()}
        self.moments = {
            name: (torch.zeros_like(t), torch.zeros_like(t)) for name, t in self.tensors.items()
        }

    def body(self) -> Weights:
        """The weights of the network."""
        return _body(self.tensors)

    def gradient(
        self, parts: Iterable[tuple[Tensor, Tensor]], n: int
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """The part of these images (x, y) in the gradient of the mean loss of n images, in that
        loss, and in the hits."""
        leaves = {name: t.detach().requires_grad_() for name, t in self.tensors.items()}
        total = [torch.zeros_like(t) for t in leaves.values()]
        loss, hits = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for x, y in parts:
            target = y.to(self.device)
            logits = self.logits(leaves, x.to(self.device))
            smoothing = self.config.label_smoothing
            part = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="sum") / n
            for sum_, g in zip(
                total, torch.autograd.grad(part, list(leaves.values())), strict=True
            ):
                sum_ += g
            loss += part.detach().double().cpu()
            hits += (logits.argmax(1) == target).sum().double().cpu() / n
        return dict(zip(leaves, total, strict=True)), loss, hits

    def logits(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        """Cosines times a learned scale, so that only directions tell the classes apart (Gidaris &
        Komodakis 2018)."""
        embedding, _ = forward(self.net, _body(tensors), x, pool_first=True)
        cosines = F.linear(F.normalize(embedding), F.normalize(tensors["head/weight"]))
        return tensors["head/log_scale"].exp() * cosines

    @torch.no_grad()
    def update(self, g: dict[str, Tensor], updates: int) -> None:
        """One step of AdamW (Loshchilov & Hutter 2019): norms and biases do not decay."""
        rate = self.config.lr * self.rate(self.done / updates)
        self.done += 1
        for name, t in self.tensors.items():
            if t.dim() > 1:
                t.mul_(1 - rate * self.config.weight_decay)
            adam_step(t, g[name], *self.moments[name], rate, self.done)

    @staticmethod
    def rate(share: float) -> float:
        """The step size after this share of the training, as a share of the highest.

        >>> [round(Classifier.rate(share), 2) for share in (0.0, 0.05, 0.1, 0.55, 1.0)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
        """
        if share < WARM_UP:
            return share / WARM_UP
        return 0.5 * (1 + math.cos(math.pi * (share - WARM_UP) / (1 - WARM_UP)))

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed training needs, as named tensors."""
        first = {f"adam/first/{name}": m for name, (m, _) in self.moments.items()}
        second = {f"adam/second/{name}": v for name, (_, v) in self.moments.items()}
        return {**self.tensors, **first, **second, "done": torch.tensor(self.done)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up the training where `state` was taken."""
        for name, t in self.tensors.items():
            t.copy_(state[name])
            self.moments[name][0].copy_(state[f"adam/first/{name}"])
            self.moments[name][1].copy_(state[f"adam/second/{name}"])
        self.done = int(state["done"])


def _body(tensors: dict[str, Tensor]) -> Weights:
    return {name[2:]: t for name, t in tensors.items() if name.startswith("w/")}
