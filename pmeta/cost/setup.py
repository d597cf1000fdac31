"""A backbone of the paper and how it adapts: what `pmeta cost` and the tables ask for."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from pmeta.cost.adaptation import cost
from pmeta.cost.bound import bound_mu_fw
from pmeta.cost.networks import four_conv, mlp, resnet12
from pmeta.cost.ops import MB, WORD, Op, attended, channels, layer_names, m, weight_words

IMAGES: dict[str, Callable[[int], tuple[Op, ...]]] = {"4conv": four_conv, "resnet12": resnet12}
POLICIES = {"mlp-cheetah": (20, 6), "mlp-navigation": (2, 2)}  # observation, action
NAMES = (*IMAGES, *POLICIES)


@dataclass(frozen=True)
class Setup:
    """One of the paper's backbones, the layers that it updates, and its support set."""

    backbone: str
    part: str = "all"
    """what the method updates: all layers, the head (the output layer), or the body (the others)"""
    rho: float | None = None
    """clip ratio of the forward attention (None: no attention)"""
    shots: int | None = None
    """images of each class (None: 5); for a policy, episodes (None: 20)"""
    ways: int | None = None
    """classes (None: 5); none for a policy"""
    batch: int | str = 1
    """samples at a time, or "all\""""
    update: str | None = None
    """layers and blocks, separated by commas or spaces (None: the method's own)"""

    def __post_init__(self) -> None:
        if self.backbone not in NAMES:
            raise ValueError(
                f"--backbone must be one of {', '.join(NAMES)}, got {self.backbone!r}."
            )
        for name in ("shots", "ways", "batch"):
            number = getattr(self, name)
            if isinstance(number, int) and number < 1:
                raise ValueError(f"--{name} must be a whole number of at least 1, got {number}.")
        if isinstance(self.batch, int) and self.batch > self.samples:
            raise ValueError(
                f"--batch must be at most the {self.samples} samples of a task, got {self.batch}: "
                "say all."
            )
        if self.ways is not None and self.backbone in POLICIES:
            raise ValueError(
                f"--ways counts classes of images, and {self.backbone} has none: leave it out."
            )
        if self.rho is not None and not 0 <= self.rho < 1:
            raise ValueError(
                f"--clip-ratio-fw must be in [0, 1), got {self.rho}: "
                "at 1 no channel is left to update."
            )

    @property
    def attention(self) -> bool:
        return self.rho is not None

    @property
    def n_shot(self) -> int:
        return self.shots or (5 if self.backbone in IMAGES else 20)

    @property
    def n_way(self) -> int:
        return self.ways or 5

    @property
    def samples(self) -> int:
        return self.n_shot * self.n_way if self.backbone in IMAGES else self.n_shot

    @property
    def at_a_time(self) -> int:
        return self.batch if isinstance(self.batch, int) else self.samples

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        if self.backbone in IMAGES:
            return IMAGES[self.backbone](self.n_way)
        return mlp(*POLICIES[self.backbone])

    @property
    def own_layers(self) -> list[str]:
        """The layers that the method updates; for p-Meta all, the most that training can leave."""
        names = layer_names(self.ops)
        return {"all": names, "head": names[-1:], "body": names[:-1]}[self.part]

    @cached_property
    def layers(self) -> list[str]:
        names = layer_names(self.ops)
        return self.own_layers if self.update is None else select(names, self.update)

    @property
    def ratios(self) -> dict[str, float]:
        return bound_mu_fw(self.ops, self.rho)


def select(names: Sequence[str], text: str) -> list[str]:
    """The layers that `text` names, one by one or as a whole block, in the network's order.

    >>> select(["block1.conv1", "block1.norm1", "block2.conv1", "fc"], "block1, fc")
    ['block1.conv1', 'block1.norm1', 'fc']
    """
    wanted = [word for word in re.split(r"[,\s]+", text) if word]
    known = f"the layers are {', '.join(names)}."
    if not wanted:
        raise ValueError(f"--update takes at least one layer, got none: {known}")
    for word in wanted:
        if not any(_within(name, word) for name in names):
            raise ValueError(f"--update takes layers of the backbone, got {word!r}: {known}")
    return [name for name in names if any(_within(name, word) for word in wanted)]


def _within(name: str, word: str) -> bool:
    return name == word or name.startswith(f"{word}.")


def figures(setup: Setup) -> dict[str, float]:
    """The numbers of `pmeta cost`: MB = 10^6 bytes, GMACs of one step over all samples."""
    ops, samples, image = setup.ops, setup.samples, setup.backbone in IMAGES
    # Of a policy: observation, action and reward of every step, for the fit of the baseline.
    kept = 0 if image else samples * (m(ops[0].x) + m(ops[-1].y) + ops[0].x[0])
    how = (samples, setup.at_a_time, setup.ratios, setup.attention, kept)
    costs = cost(ops, [setup.layers], *how)
    # Table 1: all images of a task at a byte a pixel, but one of the episodes at a word a number.
    sample = m(ops[0].x) * (samples if image else WORD)
    numbers = {
        "memory_mb": costs.memory_mb,
        "exact_memory_mb": costs.exact_memory_mb,
        "inference_mb": costs.inference_mb,
        "gmac": costs.gmac,
        "inference_gmac": costs.inference_gmac,
        "static_mb": weight_words(ops) * WORD / MB,
        "sample_mb": sample / MB,
    }
    if setup.attention:
        heads = (c for op in ops if op.name in attended(ops, setup.layers) for c in channels(op))
        numbers["attention_mb"] = sum(2 * c**2 + 2 * c for c in heads) * WORD / MB  # W1, b1, W2, b2
    return {name: round(number, 6) for name, number in numbers.items()}
