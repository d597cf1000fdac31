"""What every meta-training is told: the outer loop, the memory budget, processes; and checks."""

import dataclasses
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pmeta.method.methods import Method, method


@dataclass(frozen=True)
class RunSettings:
    """Of whatever is trained in a run folder."""

    kind: ClassVar[str]
    """The name of its kind (`pmeta.kinds.KINDS`)."""

    out: str = ""
    """The run folder; a run that is there already goes on."""
    seed: int = 0
    """Seed of the first weights and of the tasks."""
    workers: int = 0
    """Processes that share the work of an update; 0: one for each core, or for each GPU."""
    tensorboard: bool = False
    """Write TensorBoard logs to OUT/tensorboard."""

    def most_workers(self, count: int) -> int:
        """How many of so many processes have something to do."""
        return count

    def check_start(self) -> None:
        """Raise ValueError where the command line has to say more before a training can begin."""
        if not self.out:
            raise ValueError(
                "--out names the run folder, got none: say where to keep the run, as in --out "
                "runs/first."
            )

    def method_row(self) -> Method | None:
        """How it adapts; None: not at all."""
        return None

    @property
    def changes(self) -> list[str]:
        """What this run changes in its method, as in the paper's ablations."""
        return []

    def setup(self, sample: Sequence[int]) -> str:
        """What is learned with which network, in words; runs of one set-up can be compared."""
        return f"{by(sample)}, {self.kind}"

    def paper(self, sample: Sequence[int]) -> dict[str, dict[str, float]]:
        """What the paper prints for this set-up, by method: score, memory_mb and gmac."""
        return {}


@dataclass(frozen=True)
class Settings(RunSettings, ABC):
    """Of a meta-training; each kind adds its own."""

    method: str = "pmeta"
    """The method to train."""
    inner_steps: int = 5
    """Steps of an adaptation, K in the paper."""
    alpha_0: float = 0.01
    """The first inner step size."""
    meta_batch: int = 4
    """Tasks in one outer update."""
    alpha_lr: float = 1e-3
    """Outer step size of the step sizes."""
    lam: float = 0.001
    """lambda of Eq. 9, with inputs counted in KiB."""
    warm_up: float = 0.2
    """Share of the training over which lambda rises from 0."""
    freeze_at: float = 0.7
    """Share of the training after which small step sizes are set to zero for good and the penalty
    ends."""
    freeze_below: float = 0.1
    """What is small, as a share of alpha_0."""
    memory_budget: str = ""
    """Instead of lambda: adapting to one sample at a time must fit in this much memory (such as
    1MB, 800kB, 1.5MiB), or in this share of what MAML takes (such as 50%)."""

    def __post_init__(self) -> None:
        check_counts(self, "inner_steps", "meta_batch")
        check(self, "positive", "alpha_0", "alpha_lr")
        check(self, "share", "warm_up", "freeze_at")
        check_not_negative(self, lam="the penalty off", freeze_below="the threshold off")
        check_processes(self)
        check_budget(self.memory_budget, self.method_row())

    def method_row(self) -> Method:
        """The method with what this run changes in it."""
        return method(self.method)

    @property
    def changes(self) -> list[str]:
        """What this run changes in its method, as in the paper's ablations."""
        own, usual = dataclasses.asdict(self.method_row()), dataclasses.asdict(method(self.method))
        return [f"{name} = {value}" for name, value in own.items() if value != usual[name]]

    @property
    @abstractmethod
    def tasks(self) -> int:
        """Tasks to train on in all."""

    @property
    @abstractmethod
    def epoch_tasks(self) -> int:
        """Tasks between two validations."""

    @property
    def updates(self) -> int:
        """Outer updates in all."""
        return -(-self.tasks // self.meta_batch)

    def most_workers(self, count: int) -> int:
        """How many of so many processes have something to do: each takes a task of a batch."""
        return min(count, self.meta_batch)


@dataclass(frozen=True)
class AdamSettings(Settings):
    """Where Adam trains the weights too: on images and on recordings."""

    clip_ratio_fw: float | None = 0.3
    """rho of the forward attention; None turns it off."""
    clip_ratio_bw: float | None = 0.0
    """rho of the backward attention; None turns it off."""
    tasks: int = 100_000
    """Tasks to train on in all."""
    epoch_tasks: int = 1000
    """Tasks in a meta epoch, after which the model is validated."""
    lr: float = 1e-3
    """Outer step size beta of the weights; 0 leaves them as they are."""
    attention_lr: float = 1e-3
    """Outer step size of the attention weights."""
    attention_bias_lr: float = 1e-2
    """Outer step size of the last bias of each attention module, and of alpha^Ch."""
    ema: float = 0.0
    """Keep the average over the updates of all that is trained, with this decay (such as 0.99);
    0: no average."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "tasks", "epoch_tasks")
        check_not_negative(self, lr="the training of weights off")
        check(self, "positive", "attention_lr", "attention_bias_lr")
        check(self, "below one", "ema")

    def method_row(self) -> Method:
        """The method with what this run changes in it."""
        return dataclasses.replace(
            super().method_row(),
            clip_ratio_fw=self.clip_ratio_fw,
            clip_ratio_bw=self.clip_ratio_bw,
        )


NO_PICTURES = (
    "--data names the pictures, got none: give --data DIR, or --data glyphs for the embedded set."
)
MOST = {"inner_steps": 1000, "n_way": 65_535, "n_shot": 10**6, "n_query": 10**6, "channels": 2**16}
"""Of what a task or a network has; of all else a thousand million."""


def by(shape: Sequence[int]) -> str:
    """
    >>> by((84, 84))
    '84x84'
    """
    return "x".join(map(str, shape))


def flag(name: str) -> str:
    """
    >>> flag("alpha_0")
    '--alpha-0'
    """
    return f"--{name.replace('_', '-')}"


def check_counts(config: Any, *names: str) -> None:
    """Raise ValueError for a setting that is no whole number from 1 to the most there may be."""
    for name in names:
        value, most = getattr(config, name), MOST.get(name, 10**9)
        if type(value) is not int or value < 1:
            raise ValueError(f"{flag(name)} must be at least 1, got {value}.")
        if value > most:
            raise ValueError(f"{flag(name)} must be at most {most:,}, got {value}.")


RULES: dict[str, tuple[Callable[[float], bool], str]] = {
    "positive": (lambda v: 0 < v < math.inf, "must be positive, got {}."),
    "not negative": (lambda v: 0 <= v < math.inf, "must not be negative, got {}."),
    "below one": (lambda v: 0 <= v < 1, "must be in [0, 1), got {}: 0 turns it off."),
    "share": (lambda v: 0 <= v <= 1, "is a share of the training in [0, 1], got {}."),
}


def check(config: Any, rule: str, *names: str) -> None:
    """Raise ValueError for a setting that breaks one of the RULES."""
    fits, text = RULES[rule]
    for name in names:
        if not fits(getattr(config, name)):
            raise ValueError(f"{flag(name)} {text.format(getattr(config, name))}")


def check_not_negative(config: Any, **off: str) -> None:
    """Raise ValueError for a setting below 0, and say what 0 turns off."""
    for name, what in off.items():
        value = getattr(config, name)
        if not 0 <= value < math.inf:
            raise ValueError(f"{flag(name)} must not be negative, got {value}: 0 turns {what}.")


def check_processes(config: Any) -> None:
    """Raise ValueError for a negative seed or number of processes."""
    if config.seed < 0 or config.workers < 0:
        raise ValueError(
            f"--seed and --workers must not be negative, got {config.seed} and {config.workers}."
        )


def check_budget(budget: str, row: Method) -> None:
    """Raise ValueError when a --memory-budget is no amount of memory, or the method cannot meet
    one."""
    if budget and not row.sparse_alpha:
        raise ValueError(
            f"a memory budget is met by dropping layers, which {row.title} does not: use pmeta-lr "
            "or pmeta."
        )
    if budget and parse_share(budget) is None:
        parse_bytes(budget)


def parse_bytes(text: str) -> int:
    """Bytes from plain units, decimal as in the paper's figures (kB, MB) or binary (KiB, MiB).

    >>> parse_bytes("1MB"), parse_bytes("0.5 MiB"), parse_bytes("800k")
    (1000000, 524288, 800000)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(?:([kmg])(i?))?b?\s*", text, re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise ValueError(
            "a memory budget is a size such as 1MB, 800kB or 1.5MiB, or a share of what MAML takes "
            f"such as 50%, got {text!r}."
        )
    power = " kmg".index((match[2] or " ").lower())
    return round(float(match[1]) * (1024 if match[3] else 1000) ** power)


def parse_share(text: str) -> float | None:
    """A share of something, None where it is none.

    >>> parse_share("50%"), parse_share("50kB")
    (0.5, None)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*%\s*", text)
    return float(match[1]) / 100 if match and 0 < float(match[1]) <= 100 else None
