"""The compiler's form of a program: instructions on buffers that have no offset yet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from pmeta.compiler.fuse import Stage
from pmeta.compiler.read_model import Node
from pmeta.device.instructions import LAYOUTS, NONE

LANES = 16
"""Pixels of a panel: a conv's strip is a multiple of it."""
ACTS = ("relu", "leaky", "relu6", "hardsigmoid")
"""Activations whose derivative has two values: a bit is kept."""
CURVES = ("sigmoid", "silu", "hardswish")
"""Activations of which the backward half needs every number."""


@dataclass(eq=False)
class Buffer:
    """A tensor of the arena. What is needed of it may shrink (a compacted input), never grow."""

    name: str
    persistent: bool = False
    """Lives through the whole program and from sample to sample."""
    local: bool = False
    """Made anew in every round of a loop, and gone behind the last instruction that reads it."""
    uses: list[tuple[int, int]] = field(default_factory=list)
    """(time, bytes from its start that are touched)"""
    offset: int = 0


class Ref(NamedTuple):
    """An operand: a buffer of the arena, or with `buffer` None a fixed address.

    In round r of a loop it lies r * step bytes further on."""

    buffer: Buffer | None
    at: int = NONE
    size: int = 0
    step: int = 0
    skip: int = 0
    """Bytes of the buffer that lie before it."""

    def whole(self, size: int) -> "Ref":
        """The first `size` bytes, the same in every round."""
        return self._replace(size=size, step=0)

    def part(self, size: int) -> "Ref":
        """In each round the next `size` bytes."""
        return self._replace(size=size, step=size)

    def after(self, skip: int, size: int) -> "Ref":
        """The `size` bytes behind the first `skip`."""
        return self._replace(size=size, step=0, skip=self.skip + skip)

    def parts(self, size: int, rounds: int) -> "Ref":
        return self.part(size) if rounds > 1 else self.whole(size)


NOTHING = Ref(None)
"""An operand that is not there."""


@dataclass
class Instr:
    """One instruction, everything by the names of `pmeta.device.instructions`.

    Two parameters are symbols until `assemble`: `geom` is a node's number, `layer` its name."""

    op: str
    operands: dict[str, Ref]
    parameters: dict[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    owner: str = ""
    """The layer that it belongs to, for people."""


def instr(op: str, owner: str = "", **named: Any) -> Instr:
    """An instruction from its operands, parameters and flags (True or False) by name."""
    layout = LAYOUTS[op]
    flags = tuple(name for name in layout.flags if named.pop(name, False))
    parameters = {name: named.pop(name, 0) for name in layout.parameters}
    if not named.keys() <= set(layout.operands):
        raise ValueError(f"{op} has {', '.join(layout.operands)}, got {', '.join(named)}.")
    return Instr(op, named, parameters, flags, owner)


class Unit(NamedTuple):
    """Instructions that run `rounds` times in turn."""

    rounds: int
    body: list[Instr]


@dataclass
class Program:
    """The instructions for one set of updated layers (none: inference)."""

    forward: list[Unit]
    backward: list[Unit]
    update: list[Unit]
    merge: list[Unit]
    """Behind the last sample of a micro-batch whose samples share their scores."""
    buffers: list[Buffer]
    output: Ref
    g_output: Ref | None
    acc: dict[str, Ref]
    """Accumulators, zeroed before a step: gradients by parameter; sums of one micro-batch."""
    end: int = 0
    """The last time."""
    arena_bytes: int = 0
    """Set by the memory plan, as are the offsets of the buffers."""

    def __post_init__(self) -> None:
        """Times: one instruction after the other, the loss between the two halves."""
        ends = {"output": self.output, **({"g_output": self.g_output} if self.g_output else {})}
        loss = Unit(1, [Instr("loss", ends)])
        self.times: list[Instr] = []
        """The instruction at each time."""
        for unit in (*self.forward, loss, *self.backward, *self.merge, *self.update):
            self._use(unit)
        self.end = len(self.times)

    def _use(self, unit: Unit) -> None:
        """In a loop a buffer is in use from its first to its last instruction, unless local."""
        first, last = len(self.times), len(self.times) + len(unit.body) - 1
        self.times += unit.body
        for t, i in enumerate(unit.body, first):
            for ref in i.operands.values():
                if ref.buffer is not None:
                    size = ref.skip + ref.step * (unit.rounds - 1) + ref.size
                    times = (t,) if ref.buffer.local or unit.rounds == 1 else (first, last)
                    ref.buffer.uses += [(at, size) for at in times]


class GammaSource(NamedTuple):
    """Where gamma of one side of a layer comes from, at a fixed address."""

    kind: str
    """module (attention) or static (factors)."""
    at: int
    channels: int
    threshold: float = 0.0
    """rho - 1e-6 of Alg. 1, 0 to drop none."""
    kept: int = 0
    """At most so many channels have gamma != 0."""
    packed: str = ""
    """The flag of a module that is not float32."""


class PackedWeight(NamedTuple):
    """A constant weight that is not float32 in the file."""

    flag: str
    scale: int
    """Address of a scale for each row, NONE for halves."""


@dataclass(frozen=True)
class Model:
    """All that a program is made from."""

    nodes: Sequence[Node]
    stages: Sequence[Stage]
    address: Mapping[str, int]
    """Of every weight and bias: in the file, or in the arena where some step updates it."""
    gammas: Mapping[tuple[str, str], GammaSource]
    """By layer and side, fw or bw."""
    input_shape: tuple[int, ...]
    shares: bool = False
    """Samples of a micro-batch share their scores, which are known when the last has been seen."""
    packed: Mapping[str, PackedWeight] = field(default_factory=dict)
    """The weights that are not float32."""
    convert: bool = False
    """The sample is uint8 and becomes float32 first, since something else than a conv reads it."""

    @cached_property
    def last_reader(self) -> dict[int, int]:
        """The number of the last stage that reads a value."""
        return {value: s for s, stage in enumerate(self.stages) for value in stage.reads()}

    @cached_property
    def heads_of(self) -> dict[int, list[int]]:
        """The conv and fc layers that read a value, by number of their node."""
        heads: dict[int, list[int]] = {}
        for stage in self.stages:
            if stage.head is not None:
                heads.setdefault(stage.source, []).append(stage.head)
        return heads

    @cached_property
    def _rounds(self) -> dict[int, list[int]]:
        return {stage.value: self._rounds_of(stage) for stage in self.stages}

    def rounds(self, stage: Stage) -> list[int]:
        """In how many rounds a stage can run, the fewest first.

        A round takes whole groups of its norm, or at least four channels."""
        return self._rounds[stage.value]

    def _rounds_of(self, stage: Stage) -> list[int]:
        if any(self.nodes[t].kind in ("cat", "layer_norm") for t in stage.tail):
            return [1]  # the one runs by inputs, the other by rows
        head = self.nodes[stage.head] if stage.head is not None else None
        norm = next((self.nodes[t] for t in stage.tail if self.nodes[t].kind == "norm"), None)
        pooled = [geom.c_in for t in stage.tail if (geom := self.nodes[t].geom)]
        if (head and head.kind == "fc") or not (head or norm or pooled or len(stage.shape) > 1):
            return [1]
        channels = norm.groups if norm else stage.shape[0]
        most = channels if norm else max(1, channels // 4)
        # a view behind them may have other channels
        images = [*pooled, *([head.geom.c_out] if head and head.geom else [])]
        return [r for r in range(1, most + 1) if all(c % r == 0 for c in (channels, *images))]


@dataclass(frozen=True)
class Tiling:
    """How large the parts of a program are, by stage; what is not named is as small as can be."""

    forward: Mapping[int, int] = field(default_factory=dict, hash=False)
    """Rounds forward."""
    backward: Mapping[int, int] = field(default_factory=dict, hash=False)
    strip: Mapping[int, int] = field(default_factory=dict, hash=False)
    """Pixels of a conv that are gathered at a time."""
    stream: tuple[int, int] | None = None
    """The first two blocks in strips: rows of output a round, parts of the first's channels."""
    by_rows: frozenset[int] = frozenset()
    """Stages of conv, norm and max-pool that run in strips of rows, with all channels each."""
    rows: int = 1
    """Of their output in a strip."""
    again: frozenset[int] = frozenset()
    """Stages whose conv runs again in the backward half, instead of keeping what a norm needs."""

    def with_rounds(self, s: int, forward: int, backward: int) -> "Tiling":
        return replace(
            self, forward={**self.forward, s: forward}, backward={**self.backward, s: backward}
        )

    @property
    def passes(self) -> str:
        """What it does to save memory, in words."""
        names = [f"stream by {self.stream[0]}, {self.stream[1]} parts"] if self.stream else []
        if self.by_rows and not names:
            names += [f"strips of {self.rows} rows"]
        names += [f"{len(self.again)} recomputed"] if self.again else []
        return "; ".join(names) or "plain"

    def with_strip(self, s: int, pixels: int) -> "Tiling":
        return replace(self, strip={**self.strip, s: pixels})
