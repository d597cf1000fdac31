"""`pmeta cost`: memory and computation of adapting one of the paper's backbones, before anything is trained (App. A)."""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from pmeta.cost.adaptation import (
    MB,
    WORD,
    Op,
    attended,
    bound_mu_fw,
    channels,
    cost,
    four_conv,
    layer_names,
    m,
    mlp,
    resnet12,
    weight_words,
)
from pmeta.method.methods import METHODS
from pmeta.paper import note, printed

IMAGES: dict[str, Callable[[int], tuple[Op, ...]]] = {"4conv": four_conv, "resnet12": resnet12}
POLICIES = {"mlp-cheetah": (20, 6), "mlp-navigation": (2, 2)}  # observation, action
BACKBONES = (*IMAGES, *POLICIES)


@dataclass(frozen=True)
class CostConfig:
    """The options of `pmeta cost`."""

    backbone: str
    method: str
    shots: int | None = None
    """images of each class (None: 5); for a policy, episodes (None: 20)"""
    ways: int | None = None
    """classes (None: 5); none for a policy"""
    batch: int | str = 1
    """samples at a time, or "all\""""
    update: str | None = None
    """layers and blocks, separated by commas or spaces (None: the method's own)"""
    clip_ratio_fw: float | None = None
    """rho of the forward attention (None: 0.3); none without attention"""

    def __post_init__(self) -> None:
        for flag, value, known in (
            ("--backbone", self.backbone, BACKBONES),
            ("--method", self.method, tuple(METHODS)),
        ):
            if value not in known:
                raise ValueError(f"{flag} must be one of {', '.join(known)}, got {value!r}.")
        for flag, number in (
            ("--shots", self.shots),
            ("--ways", self.ways),
            ("--batch", self.batch),
        ):
            if isinstance(number, int) and number < 1:
                raise ValueError(f"{flag} must be a whole number of at least 1, got {number}.")
        if isinstance(self.batch, int) and self.batch > self.samples:
            raise ValueError(
                f"--batch must be at most the {self.samples} samples of a task, got {self.batch}: say all."
            )
        if self.ways is not None and self.backbone in POLICIES:
            raise ValueError(
                f"--ways counts classes of images, and {self.backbone} has none: leave it out."
            )
        rho = self.clip_ratio_fw
        if rho is not None and not 0 <= rho < 1:
            raise ValueError(
                f"--clip-ratio-fw must be in [0, 1), got {rho}: at 1 no channel is left to update."
            )
        if rho is not None and not self.attention:
            raise ValueError(
                f"--clip-ratio-fw belongs to the attention of pmeta, got it with {self.method}: leave it out."
            )

    @property
    def attention(self) -> bool:
        return METHODS[self.method].scores == "attention"

    @property
    def rho(self) -> float:
        return 0.3 if self.clip_ratio_fw is None else self.clip_ratio_fw

    @property
    def n_shot(self) -> int:
        return self.shots or (5 if self.backbone in IMAGES else 20)

    @property
    def samples(self) -> int:
        return self.n_shot * (self.ways or 5) if self.backbone in IMAGES else self.n_shot

    @property
    def at_a_time(self) -> int:
        return self.batch if isinstance(self.batch, int) else self.samples

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        return (
            IMAGES[self.backbone](self.ways or 5)
            if self.backbone in IMAGES
            else mlp(*POLICIES[self.backbone])
        )

    @property
    def own_layers(self) -> list[str]:
        """The layers that the method updates; for p-Meta all, the most that training can leave."""
        names = layer_names(self.ops)
        return {"all": names, "head": names[-1:], "body": names[:-1]}[METHODS[self.method].update]

    @cached_property
    def layers(self) -> list[str]:
        return (
            self.own_layers if self.update is None else select(layer_names(self.ops), self.update)
        )

    @property
    def ratios(self) -> dict[str, float]:
        return bound_mu_fw(self.ops, self.rho) if self.attention else {}


def select(names: Sequence[str], text: str) -> list[str]:
    """The layers that `text` names, one by one or as a whole block, in the network's order.

    >>> select(["block1.conv1", "block1.norm1", "block2.conv1", "fc"], "block1, fc")
    ['block1.conv1', 'block1.norm1', 'fc']
    """
    wanted = [word for word in re.split(r"[,\s]+", text) if word]
    if not wanted:
        raise ValueError(
            f"--update takes at least one layer, got none: the layers are {', '.join(names)}."
        )
    for word in wanted:
        if not any(_within(name, word) for name in names):
            raise ValueError(
                f"--update takes layers of the backbone, got {word!r}: the layers are {', '.join(names)}."
            )
    return [name for name in names if any(_within(name, word) for word in wanted)]


def _within(name: str, word: str) -> bool:
    return name == word or name.startswith(f"{word}.")


def figures(config: CostConfig) -> dict[str, float]:
    """The numbers of the command: MB = 10^6 bytes, GMACs of one step over all support samples."""
    ops = config.ops
    kept = 0
    if (
        config.backbone in POLICIES
    ):  # observation, action and reward of every step, for the baseline fit
        kept = config.samples * (m(ops[0].x) + m(ops[-1].y) + ops[0].x[0])
    found = cost(
        ops,
        [config.layers],
        config.samples,
        config.at_a_time,
        config.ratios,
        1.0,
        config.attention,
        kept,
    )
    # Table 1 counts the samples of a task at a byte a pixel, and of the episodes one, at a word a number.
    sample = m(ops[0].x) * (config.samples if config.backbone in IMAGES else WORD)
    numbers = {
        "memory_mb": found.memory_mb,
        "exact_memory_mb": found.exact_memory_mb,
        "inference_mb": found.inference_mb,
        "gmac": found.gmac,
        "inference_gmac": found.inference_gmac,
        "static_mb": weight_words(ops) * WORD / MB,
        "sample_mb": sample / MB,
    }
    if config.attention:
        heads = (c for op in ops if op.name in attended(ops, config.layers) for c in channels(op))
        numbers["attention_mb"] = sum(2 * c**2 + 2 * c for c in heads) * WORD / MB  # W1, b1, W2, b2
    return {name: round(number, 6) for name, number in numbers.items()}


def paper_figures(config: CostConfig) -> dict[str, float]:
    """What the paper prints for the same set-up. For p-Meta it has the layers that its training left, unknown to us."""
    if (config.ways or 5) != 5:
        return {}
    found = printed(config.backbone, config.n_shot, config.method, config.at_a_time, config.samples)
    same = config.layers == config.own_layers and not METHODS[config.method].sparse_alpha
    return (
        found
        if same
        else {name: x for name, x in found.items() if name not in ("memory_mb", "gmac")}
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see pmeta cost --help).")


def _batch(text: str) -> int | str:
    if text != "all" and not re.fullmatch(r"-?\d+", text):
        raise argparse.ArgumentTypeError(f"takes a whole number of samples, or all, got {text!r}")
    return text if text == "all" else int(text)


def parse(argv: Sequence[str]) -> tuple[CostConfig, bool]:
    """The options, and whether JSON is wanted. (argparse: tyro alone would take half of the start-up time.)"""
    parser = _Parser(prog="pmeta cost", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--backbone", required=True, metavar="NAME", help=", ".join(BACKBONES))
    add("--method", required=True, metavar="NAME", help=", ".join(METHODS))
    add(
        "--shots",
        type=int,
        metavar="N",
        help="images of each class (5); for the MLPs episodes of 200 steps (20)",
    )
    add("--ways", type=int, metavar="N", help="classes of a task (5)")
    add(
        "--batch",
        type=_batch,
        default=1,
        metavar="N",
        help="samples that go through the network at a time, or all (1)",
    )
    add(
        "--update",
        nargs="+",
        metavar="LAYER",
        help="layers or blocks to update instead of the method's own: conv4,fc",
    )
    add("--clip-ratio-fw", type=float, metavar="RHO", help="rho of pmeta's forward attention (0.3)")
    add("--json", action="store_true", help="print one JSON object")
    options = vars(parser.parse_args(argv))
    as_json = options.pop("json")
    if options["update"] is not None:
        options["update"] = " ".join(options["update"])
    return CostConfig(**options), as_json


def main(argv: Sequence[str]) -> None:
    """Run `pmeta cost` with these arguments."""
    config, as_json = parse(argv)
    ours, paper = figures(config), paper_figures(config)
    if as_json:
        setup: dict[str, object] = {
            "backbone": config.backbone,
            "method": config.method,
            "update": config.layers,
        }
        setup |= {"samples": config.samples, "batch": config.at_a_time}
        print(
            json.dumps(
                setup | ours | {"paper": paper} | ({"note": note(paper)} if note(paper) else {})
            )
        )
    else:
        from pmeta.cli.cost_table import show

        show(config, ours, paper)
