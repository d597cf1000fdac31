"""The part of a network above features that are kept: it alone is trained and updated."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.data.tasks import ImageSet
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.pictures.features import cache_features, cut, stages
from pmeta.method.learned import Meta
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from pmeta.training.workers import Group


@dataclass(frozen=True)
class UpperPart:
    """The upper part of a network that is a chain of stages, and its place in the whole."""

    lower: nn.Sequential
    net: Network
    """The upper part. Its layers are the last ones of the whole."""
    whole: Meta
    """Of the whole network, before the training."""

    def features(self, group: Group, images: ImageSet) -> ImageSet:
        """What the lower part gives for the images of a split; process 0 computes it."""
        group.from_first(lambda: len(cache_features(self.lower, images).classes))
        return cache_features(self.lower, images)

    def narrowed(self, meta: Meta) -> Meta:
        """What belongs to the upper part."""
        count = len(self.net.layers)
        own = {name for name, _ in self.net.model.named_parameters()}
        layers = tuple(f"{layer.name}." for layer in self.net.layers)
        return dataclasses.replace(
            meta,
            w={name: t for name, t in meta.w.items() if name in own},
            alpha=meta.alpha[:, -count:],
            mask=meta.mask[:, -count:],
            attention={n: t for n, t in meta.attention.items() if n.startswith(layers)},
        )

    def widened(self, meta: Meta) -> Meta:
        """The whole with what the upper part has learned; nothing below it is ever updated."""
        return dataclasses.replace(
            meta,
            w={**self.whole.w, **meta.w},
            alpha=self._padded(meta.alpha),
            mask=self._padded(meta.mask),
            attention={**self.whole.attention, **meta.attention},
        )

    def _padded(self, part: Tensor) -> Tensor:  # (K, l) -> (K, L)
        return F.pad(part, (self.whole.alpha.shape[1] - part.shape[1], 0))

    def choice(self, choose: Callable[[Meta], Meta]) -> Callable[[Meta], Meta]:
        """`choose`, which counts the whole network, for the upper part alone."""
        return lambda meta: self.narrowed(choose(self.widened(meta)))


def cut_at_stage(net: Network, meta: Meta, at: int) -> UpperPart:
    """The network with the weights of `meta`, cut below stage number `at`."""
    net.model.load_state_dict(meta.w, strict=False)  # a head from prototypes has none
    lower, upper = cut(net.model, at)
    where = next(iter(meta.w.values())).device
    with torch.no_grad():
        features = lower(torch.zeros(1, *net.ops[0].x, device=where))
    part = take_in(upper, features)
    names = [layer.name for layer in part.layers]
    if names != [layer.name for layer in net.layers[-len(names) :]]:
        raise ValueError(
            "the layers above the features run last, but the stages of this network share some: "
            "leave out --cache-features."
        )
    return UpperPart(lower, part, meta)


def stage_number(model: nn.Module, name: str, option: str = "--cut-at") -> int:
    """The place of a stage in the chain."""
    names = stages(model)
    if name not in names:
        raise ValueError(f"{option} is one of the stages {', '.join(names)}, got {name!r}.")
    return names.index(name)


def fixed_weights(config: ImageConfig, model: nn.Module) -> frozenset[str]:
    """The names of the weights that a training leaves as they came: all with --lr 0, else those
    below --train-from."""
    names = [name for name, _ in model.named_parameters()]
    if not config.lr:
        return frozenset(names)
    if not config.train_from:
        return frozenset()
    below = stages(model)[: stage_number(model, config.train_from, "--train-from")]
    return frozenset(name for name in names if name.partition(".")[0] in below)
