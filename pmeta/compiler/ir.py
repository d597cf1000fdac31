"""Instructions of the device as the compiler handles them: operands that are buffers without an offset yet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pmeta.compiler.fuse import Stage
from pmeta.compiler.memory_plan import Buffer
from pmeta.compiler.read_model import Node
from pmeta.device.format import NONE

LANES = 16
"""Pixels of a panel: a conv's strip is a multiple of it."""
ACTS = ("relu", "leaky", "relu6")


class Ref(NamedTuple):
    """An operand: a buffer of the arena, or with `buffer` None a fixed address; in round r of a loop r * step further on."""

    buffer: Buffer | None
    at: int = NONE
    size: int = 0
    step: int = 0


NOTHING = Ref(None)


@dataclass
class Instr:
    op: str
    refs: tuple[Ref, ...]
    p: tuple[int, ...]
    flags: int = 0
    layer: str = ""


class Unit(NamedTuple):
    """Instructions that run `rounds` times in turn: one unit of time for the planner."""

    rounds: int
    body: list[Instr]


class Score(NamedTuple):
    """Where gamma of one side of a layer comes from: an attention module or static factors, at a fixed address."""

    kind: str
    """module or static."""
    at: int
    channels: int
    threshold: float = 0.0
    """rho - 1e-6 of Alg. 1, 0 to drop none."""
    kept: int = 0
    """At most so many channels have gamma != 0."""


@dataclass(frozen=True)
class Model:
    """All that a program is made from."""

    nodes: Sequence[Node]
    stages: Sequence[Stage]
    root: Sequence[int]
    address: Mapping[str, int]
    """Of every weight and bias: in the file, or in the arena where some step updates it."""
    scores: Mapping[tuple[str, str], Score]
    """By layer and side, fw or bw."""
    input_at: int
    input_shape: tuple[int, ...]
    shares: bool = False
    """Samples of a micro-batch share their attention scores, which are known only when the last of them has been seen."""
    convert: bool = False
    """The sample is uint8 and is made float32 first, since something else than a conv reads it."""

    def rounds(self, stage: Stage) -> list[int]:
        """In how many parts a stage can run, the fewest first: whole groups of its norm, or at least four channels."""
        head = self.nodes[stage.head] if stage.head is not None else None
        norm = next((self.nodes[t] for t in stage.tail if self.nodes[t].kind == "norm"), None)
        pools = any(self.nodes[t].geom for t in stage.tail)
        if (head and head.kind == "fc") or not (head or norm or pools or len(stage.shape) > 1):
            return [1]
        channels = norm.groups if norm else stage.shape[0]
        most = channels if norm else max(1, channels // 4)
        images = [geom.c_in for t in stage.tail if (geom := self.nodes[t].geom)]
        images += (
            [head.geom.c_out] if head and head.geom else []
        )  # a view behind them may have other channels
        return [r for r in range(1, most + 1) if all(c % r == 0 for c in (channels, *images))]


@dataclass
class Choices:
    """How a program is laid out: parts of each stage forward and backward, and pixels of a conv's strip."""

    forward: dict[int, int] = field(default_factory=dict)
    backward: dict[int, int] = field(default_factory=dict)
    strip: dict[int, int] = field(default_factory=dict)


def sliced(ref: Ref, n: int) -> Ref:
    """One part of n words of a full tensor."""
    return ref._replace(size=n * 4, step=n * 4)


def resliced(ref: Ref, size: int, rounds: int) -> Ref:
    """The same buffer in `rounds` parts of `size` bytes."""
    return ref._replace(size=size, step=size if rounds > 1 else 0)
