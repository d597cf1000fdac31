"""A program under construction: buffers, instructions, and which values need a gradient."""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from pmeta.compiler.fuse import NORMS, Stage, Tail
from pmeta.compiler.ir import LANES, NOTHING, Buffer, Instr, Model, Ref, Tiling, Unit, instr
from pmeta.compiler.packing import ITEM
from pmeta.compiler.read_model import Node, root_of
from pmeta.device.instructions import NONE
from pmeta.device.model_file import INPUT_SPACE


class Size(NamedTuple):
    """A tensor of channels, each of `plane` numbers: (C, n), or with rows first (n, C)."""

    channels: int
    plane: int
    rows_first: bool = False

    def bytes(self, channels: int | None = None) -> int:
        """Of so many channels, None: all."""
        return (self.channels if channels is None else channels) * self.plane * 4


class Emitter:
    """What the forward and the backward half of a program share."""

    def __init__(self, model: Model, live: frozenset[str], tiling: Tiling):
        self.model, self.live, self.tiling = model, live, tiling
        self.nodes = model.nodes
        self.units: list[Unit] = []
        self.updates: list[Unit] = []
        self.merges: list[Unit] = []
        """What ends a micro-batch: scores from all its samples, and its gradients times these."""
        self.buffers: list[Buffer] = []
        self.values: dict[int, Ref] = {-1: Ref(None, INPUT_SPACE)}
        """Where each value that still is needed lies."""
        self.kept: dict[tuple[str, int], Ref] = {}
        """What the forward half leaves for the backward half: ("xhat", node) and the like."""
        self.grads: dict[int, Ref] = {}
        self.acc: dict[str, Ref] = {}
        self.shared: dict[tuple[str, str], Ref] = {}
        """Gamma of a micro-batch, by layer and side."""
        self.streamed: frozenset[int] = frozenset()
        """Stages whose forward half ran in strips of rows, so that bits are packed in one piece."""
        self.streams_again: Callable[[Ref, Ref, Ref, Ref], None] | None = None
        """Emits the weight gradient of a streamed conv from g(y), gamma_bw, its accumulator and
        gamma_fw."""
        self.seen = NOTHING
        """Means by channel of the input of that conv, for its scores."""
        self.needs = self._needs_gradient()
        self.factors = self._factors()

    def _needs_gradient(self) -> dict[int, bool]:
        """Which values need a gradient: those with an updated layer at or below them."""
        needs = {-1: False}
        for i, node in enumerate(self.nodes):
            needs[i] = node.name in self.live or any(needs[v] for v in node.inputs)
        return needs

    def _factors(self) -> set[int]:
        """The values that the backward half of a product reads, each for the other's gradient."""
        read = set()
        for node in self.nodes:
            if node.kind == "mul":
                x, s = (root_of(self.nodes, v) for v in node.inputs)
                read |= {s} if self.needs[x] else set()
                read |= {x} if self.needs[s] else set()
        return read

    def updated_readers(self, value: int) -> list[int]:
        """The updated conv and fc layers that read a value."""
        heads = self.model.heads_of.get(value, [])
        return [head for head in heads if self.nodes[head].name in self.live]

    def stored_channels(self, head: int) -> int | None:
        """Channels of a layer's input that are stored; None: it is left as it is."""
        node = self.nodes[head]
        gamma, source = (
            self.model.gammas.get((node.name, "fw")),
            root_of(self.nodes, node.inputs[0]),
        )
        if gamma is None or gamma.kept >= gamma.channels or source < 0 or self.shares(node):
            return None
        alone = self.updated_readers(source) == [head] and source not in self.factors
        alone &= not any(
            stage.head == head and self.runs_again(stage) for stage in self.model.stages
        )
        return gamma.kept if alone else None

    def tail(self, stage: Stage) -> Tail:
        """The tail of a stage as this program runs it: pooling first where that is the same."""
        plain = Tail.of(self.nodes, stage)
        pooled = plain.pooled_first(self.nodes)
        if pooled is None:
            return plain
        needed = self.needs[self.nodes[stage.tail[0]].inputs[0]]
        return plain if needed and not self.runs_again(stage) else pooled

    def runs_again(self, stage: Stage) -> bool:
        """Whether a stage's conv is computed once more in the backward half."""
        again = self.tiling.again
        return bool(again) and self.model.stages.index(stage) in again

    def keeps_norm(self, t: int) -> bool:
        return self.nodes[t].name in self.live or self.needs[self.nodes[t].inputs[0]]

    def new(
        self, name: str, size: int, step: int = 0, persistent: bool = False, local: bool = False
    ) -> Ref:
        self.buffers.append(Buffer(name, persistent, local))
        return Ref(self.buffers[-1], size=size, step=step)

    def full(self, name: str, shape: tuple[int, ...], rounds: int) -> Ref:
        """A new tensor that the rounds of a loop write part by part."""
        size = prod(shape) * 4 // rounds
        return self.new(name, size).parts(size, rounds)

    def emit(self, op: str, owner: str = "", **named: Any) -> None:
        self.units.append(Unit(1, [instr(op, owner, **named)]))

    def emit_rounds(self, body: list[Instr], rounds: int) -> None:
        """Append a loop, which is never empty: a stage may have nothing to do in its rounds."""
        loop = rounds > 1 and body
        self.units.extend([Unit(rounds, body)] if loop else [Unit(1, [i]) for i in body])

    def param(self, name: str, step: int = 0) -> Ref:
        return Ref(None, self.model.address[name], step=step) if name else NOTHING

    def weights(self, node: Node, channels: int = 0, first: int = 0) -> dict[str, Any]:
        """The operands and flags of a layer's weights, from filter `first` on.

        Each round takes the next `channels` filters."""
        packed = self.model.packed.get(node.weight)
        flag = packed.flag if packed else ""
        row = (node.geom.depth if node.geom else self.fc_input(node)[0]) * ITEM[flag]
        at = self.model.address[node.weight] + first * row
        named: dict[str, Any] = {"w": Ref(None, at, step=channels * row)}
        if packed and packed.scale != NONE:
            named["scale"] = Ref(None, packed.scale + first * 4, step=channels * 4)
        return named | ({flag: True} if flag else {})

    def patches(self, node: Node, strip: int) -> Ref:
        """Of a conv forward: packed weights become float32 there, four filters at a time."""
        assert node.geom is not None
        rows = strip + (4 if node.weight in self.model.packed else 0)
        return self.new("patches", node.geom.depth * rows * 4, local=True)

    def strip(self, s: int, pixels: int) -> int:
        return min(self.tiling.strip.get(s, LANES), -(-pixels // LANES) * LANES)

    def fc_input(self, node: Node) -> tuple[int, int]:
        """(numbers a row, rows) of an fc layer's input."""
        rows, v = prod(node.shape[:-1]), node.inputs[0]
        return prod(self.nodes[v].shape if v >= 0 else self.model.input_shape) // rows, rows

    def input_size(self, node: Node) -> Size:
        """Of a conv's or fc's input."""
        if node.geom:
            return Size(node.geom.c_in, node.geom.h * node.geom.w)
        return Size(*self.fc_input(node), rows_first=True)

    def gamma(self, node: Node, side: str, x: Ref, size: Size) -> Ref:
        """gamma of one side from a tensor x, Eqs. 10 and 11; NOTHING: it is 1, or not known yet."""
        source = self.model.gammas.get((node.name, side))
        if source is None:
            return NOTHING
        if source.kind == "static":
            return Ref(None, source.at)
        c = source.channels
        gamma, scratch = self.new(f"gamma {side} {node.name}", c * 4), self.new("score", 3 * c * 4)
        named = {"x": x, "module": Ref(None, source.at), "scratch": scratch, "channels": c}
        named |= {"plane": size.plane, "rows_first": size.rows_first, "backward": side == "bw"}
        named |= {source.packed: True} if source.packed else {}
        if not self.shares(node):
            self.emit("score", node.name, gamma=gamma, threshold=source.threshold, **named)
            return gamma
        total = self.new(f"z {side} {node.name}", c * 4, persistent=True)
        self.acc[f"z {side} {node.name}"] = total
        self.emit("score_sum", node.name, sum=total, threshold=source.threshold, **named)
        refs = {"gamma": gamma, "sum": total, "order": self.new("order", c * 4)}
        sizes = {"channels": c, "plane": 1, "threshold": source.threshold}
        self.merges.append(Unit(1, [instr("score_mean", node.name, **refs, **sizes)]))
        self.shared[node.name, side] = gamma
        return NOTHING

    def shares(self, node: Node) -> bool:
        """Whether the layer's scores come from all samples of a micro-batch."""
        return self.model.shares and any(
            source.kind == "module"
            for (name, _), source in self.model.gammas.items()
            if name == node.name
        )

    def accumulator(self, node: Node, name: str, shape: tuple[int, int, int]) -> Ref:
        """Where the gradient of a parameter (groups, depth, filters) is summed up over samples.

        Emits the update that ends a step with it (Eq. 14). `name` "": there is no parameter."""
        if not name:
            return self.new(f"unused {node.name}", prod(shape) * 4)
        acc = self.acc[name] = self.new(f"acc {name}", prod(shape) * 4, persistent=True)
        sizes = dict(zip(("groups", "depth", "filters"), shape, strict=True))
        w = self.param(name)
        update = instr("update", node.name, w=w, acc=acc, layer=node.name, **sizes)
        self.updates.append(Unit(1, [update]))
        return self._merged(node, name, shape) if self.shares(node) else acc

    def _merged(self, node: Node, name: str, shape: tuple[int, int, int]) -> Ref:
        """Where the gradients of one micro-batch are summed up without gamma.

        Emits the merge that ends the micro-batch: gamma times these is accumulated."""
        fw, bw = (self.shared.get((node.name, side), NOTHING) for side in ("fw", "bw"))
        part = self.new(f"part {name}", prod(shape) * 4, persistent=True)
        self.acc[f"part {name}"] = part
        row, column, taps, (groups, depth, filters) = fw, bw, 1, shape
        if name == node.bias:
            row, column = bw, NOTHING
        elif node.kind in NORMS:
            groups, depth = depth, 1
        elif node.kind == "fc":
            row, column, depth, filters = bw, fw, node.shape[-1], depth // node.shape[-1]
        elif node.geom:
            taps = node.geom.kh * node.geom.kw
        refs = {"acc": self.acc[name], "part": part, "row": row, "column": column}
        sizes = {"groups": groups, "depth": depth, "filters": filters, "taps": taps}
        self.merges.append(Unit(1, [instr("merge", node.name, **refs, **sizes)]))
        return part
