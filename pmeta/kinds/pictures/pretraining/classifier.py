"""The classifier of a pre-training: its loss, its gradient, and AdamW."""

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.data.tasks import ImageSet
from pmeta.kinds.pictures.pretraining.config import PretrainConfig
from pmeta.kinds.pictures.train import new_model
from pmeta.method.adam import Adam, cosine
from pmeta.network.layers import Network, Weights
from pmeta.network.take_in import take_in
from pmeta.network.tape import forward

WARM_UP = 0.1
"""Share of the updates over which the step size rises."""
FIRST_SCALE = 10.0
"""Of the cosines, before the training."""


class Classifier:
    """The network without its head, a head for the training classes, and AdamW.

    The network has batch norms, which train best; `folding` makes plain convs of them."""

    def __init__(self, config: PretrainConfig, images: ImageSet, device: torch.device):
        self.config, self.device = config, device
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
        self.adam = Adam(self.tensors)

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

    @property
    def done(self) -> int:
        """Updates so far."""
        return self.adam.steps

    def update(self, g: dict[str, Tensor], updates: int) -> None:
        """One step of AdamW."""
        rates = dict.fromkeys(self.tensors, self.config.lr * self.rate(self.done / updates))
        self.adam.step(self.tensors, g, rates, self.config.weight_decay)

    @staticmethod
    def rate(share: float) -> float:
        """The step size after this share of the training, as a share of the highest.

        >>> [round(Classifier.rate(share), 2) for share in (0.0, 0.05, 0.1, 0.55, 1.0)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
        """
        if share < WARM_UP:
            return share / WARM_UP
        return cosine(share - WARM_UP, 1 - WARM_UP)

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed training needs, as named tensors."""
        return {**self.tensors, **self.adam.state(), "done": torch.tensor(self.done)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up the training where `state` was taken."""
        for name, t in self.tensors.items():
            t.copy_(state[name])
        self.adam.load(state, int(state["done"]))


def _body(tensors: dict[str, Tensor]) -> Weights:
    return {name[2:]: t for name, t in tensors.items() if name.startswith("w/")}
