"""The forward half of a step: stages in parts, and what the backward half needs of them."""

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

from pmeta.compiler.fuse import NORMS, Stage
from pmeta.compiler.ir import ACTS, CURVES, NOTHING, Instr, Ref, Unit, instr
from pmeta.compiler.lower.emitter import Emitter
from pmeta.compiler.read_model import Node

Shape = tuple[int, ...]


def stage_forward(e: Emitter, s: int, stage: Stage) -> None:
    """Emit one stage: its head, then its tail, part by part."""
    if e.nodes[stage.value].kind == "cat":
        _concat(e, stage)
        return
    forward = StageForward(e, s, stage)
    apart = forward.head_runs_apart()
    body = forward.instructions(head=not apart)
    if apart:  # its patches are gathered once, not in every round
        e.units.append(Unit(1, [forward.whole_head()]))
    e.emit_rounds(body, forward.rounds)


def concat_parts(e: Emitter, stage: Stage) -> Iterator[tuple[int, int, int]]:
    """(value, bytes before it, its bytes) of every input of a concatenation."""
    before = 0
    for value in (stage.source, *stage.others[stage.value]):
        size = prod(e.nodes[value].shape if value >= 0 else e.model.input_shape) * 4
        yield value, before, size
        before += size


def _concat(e: Emitter, stage: Stage) -> None:
    """Copy the inputs behind one another."""
    whole = e.values[stage.value] = e.full(f"value {stage.value}", stage.shape, 1)
    for value, before, size in concat_parts(e, stage):
        x, count = e.values[value].whole(size), size // 4
        e.emit("copy", y=whole.after(before, size), x=x, count=count, plane=count)


class StageForward:
    """The instructions of one stage, part by part."""

    def __init__(self, e: Emitter, s: int, stage: Stage):
        self.e, self.s, self.stage = e, s, stage
        self.rounds = e.tiling.forward.get(s, e.model.rounds(stage)[-1])
        self.tail = e.tail(stage)
        self.moves = [i for i in range(len(self.tail.order)) if self._moves(i)]
        self.out = e.values[stage.value] = e.full(self._name(), stage.shape, self.rounds)

    def _name(self) -> str:
        head = self.stage.head
        return (
            f"value {self.stage.value}" if head is None else f"output of {self.e.nodes[head].name}"
        )

    def _moves(self, i: int) -> bool:
        """Whether an operation writes elsewhere than it reads.

        Pooling does, and a norm whose normalized input is kept."""
        t = self.tail.order[i]
        kind, keeps = self.e.nodes[t].kind, self.e.keeps_norm(t) and not self.tail.pools_first
        return kind in ("maxpool", "avgpool", "mul") or (kind in NORMS and keeps)

    def head_runs_apart(self) -> bool:
        """Whether a conv writes what is kept as a whole: it then runs outside of the rounds."""
        kinds = [self.e.nodes[t].kind for t in self.tail.order]
        head = self.e.nodes[self.stage.head] if self.stage.head is not None else None
        is_conv = head is not None and head.geom is not None
        return is_conv and self.rounds > 1 and self.moves[:1] == [0] and kinds[0] in NORMS

    def whole_head(self) -> Instr:
        """The conv of all channels, once the place of its output is known."""
        y = self.e.kept["xhat", self.tail.order[0]].whole(prod(self.stage.head_shape) * 4)
        return self._head(y, rounds=1)

    def instructions(self, head: bool = True) -> list[Instr]:
        """Of one round; without its head where that has run elsewhere."""
        stage, shape = self.stage, self.stage.head_shape
        body: list[Instr] = []
        first = None if stage.head is not None else self.e.nodes[stage.tail[0]]
        if first and (first.geom or first.kind == "mul"):  # these read the source
            place = self._part_of(stage.source, shape)
        else:
            place = self._place(-1, shape)
            if head:
                body.append(self._head(place))
        tail = self.tail
        for i, t in enumerate(tail.order):
            if tail.pools_first and i == 0:
                continue  # together with the max-pool
            to = self._place(i, tail.shapes[i + 1]) if i in self.moves else place
            if tail.pools_first and i == 1:
                body += self._norm_pool(tail.order[0], t, place, to)
            else:
                body.append(self._operation(t, self.e.nodes[t], place, to, tail.shapes[i]))
            place = to
        return body

    def _part_of(self, value: int, shape: Shape) -> Ref:
        return self.e.values[value].part(prod(shape) // self.rounds * 4)

    def _place(self, at: int, shape: Shape) -> Ref:
        """Where the value behind tail operation `at` (-1: the head) lies, until one moves it."""
        following = next((i for i in self.moves if i > at), None)
        if following is None:
            return self.out
        t = self.tail.order[following]
        node = self.e.nodes[t]
        if node.kind not in NORMS:
            return self.e.new("part", prod(shape) * 4 // self.rounds, local=True)
        self.e.kept["xhat", t] = self.e.full(f"xhat {node.name}", shape, self.rounds)
        return self.e.kept["xhat", t]

    def _head(self, y: Ref, rounds: int = 0) -> Instr:
        if self.stage.head is None:
            shape = self.stage.head_shape
            x, count = self._part_of(self.stage.source, shape), prod(shape) // self.rounds
            return instr("copy", y=y, x=x, count=count, plane=prod(shape[1:]))
        node, x = self.e.nodes[self.stage.head], self.e.values[self.stage.source]
        bias, g = self.e.param(node.bias), node.geom
        if g is None:
            inputs, rows = self.e.fc_input(node)
            x, sizes = x.whole(inputs * rows * 4), {"inputs": inputs, "rows": rows}
            sizes["outputs"] = node.shape[-1]
            return instr("fc", node.name, y=y, x=x, bias=bias, **self.e.weights(node), **sizes)
        channels = g.c_out // (rounds or self.rounds)
        strip = self.e.strip(self.s, g.ho * g.wo)
        return instr(
            "conv",
            node.name,
            y=y,
            x=x.whole(g.c_in * g.h * g.w * 4),
            bias=bias._replace(step=channels * 4),
            patches=self.e.patches(node, strip),
            **self.e.weights(node, channels),
            geom=self.stage.head,
            channels=channels,
            strip=strip,
        )

    def _operation(self, t: int, node: Node, x: Ref, y: Ref, shape: Shape) -> Instr:
        """Operation t of the tail, from x (of this shape) to y."""
        count = prod(shape) // self.rounds
        if node.kind in NORMS:
            return self._norm(t, node, x, y, shape)
        if node.kind == "act":
            mask = self._keep("mask", t, -(-count // 8))
            kind = ACTS.index(node.act)
            return instr("act", x=x, mask=mask, count=count, kind=kind, slope=node.slope)
        if node.kind == "curve":
            kept, kind = self._keep("curve", t, count * 4), CURVES.index(node.act)
            return instr("curve", x=x, kept=kept, count=count, kind=kind)
        if node.kind == "add":
            (other,) = self.stage.others[t]
            return instr("add", y=x, x=self._part_of(other, shape), count=count)
        if node.kind == "mul":
            (other,), factors = self.stage.others[t], node.factors // self.rounds
            s = self.e.values[other].part(factors * 4)
            return instr("mul", y=y, x=x, s=s, factors=factors, each=count // factors)
        assert node.geom is not None
        channels = node.geom.c_in // self.rounds
        if node.kind == "avgpool":
            pad = node.count_pad
            return instr("avgpool", y=y, x=x, geom=t, channels=channels, count_pad=pad)
        index = self._keep("index", t, node.geom.index_bytes(channels))
        return instr("maxpool", y=y, x=x, index=index, geom=t, channels=channels)

    def _norm(self, t: int, node: Node, x: Ref, y: Ref, shape: Shape) -> Instr:
        part = norm_part(node, shape, self.rounds)
        rstd = NOTHING
        if self.e.needs[node.inputs[0]]:
            size = part.groups * 4
            rstd = self.e.kept["rstd", t] = self.e.new(f"1/std {node.name}", size, size)
        return instr(
            node.kind,
            node.name,
            xhat=x,
            y=y,
            w=self.e.param(node.weight, part.channels * 4),
            bias=self.e.param(node.bias, part.channels * 4),
            rstd=rstd,
            **part.sizes,
        )

    def _norm_pool(self, t: int, pool: int, x: Ref, y: Ref) -> list[Instr]:
        """Norm t behind its max-pool: statistics of all, the winners, and these normalized.

        A norm under adaptation keeps the normalized winners, and the means of its scores."""
        node, geom = self.e.nodes[t], self.e.nodes[pool].geom
        assert geom is not None
        channels, per_group = geom.c_in // self.rounds, geom.c_in // node.groups
        plane, pooled = geom.h * geom.w, geom.ho * geom.wo
        w, bias = (self.e.param(name, channels * 4) for name in (node.weight, node.bias))
        again = self.e.needs[node.inputs[0]]  # its conv runs again in the backward half
        stat = self.e.new("statistics", channels * 8, channels * 8 if again else 0, local=not again)
        xhat, means, index = y, NOTHING, NOTHING
        if self.e.keeps_norm(t):
            shape = (geom.c_in, geom.ho, geom.wo)
            xhat = self.e.kept["xhat", t] = self.e.full(f"xhat {node.name}", shape, self.rounds)
            means = self.e.new(f"means {node.name}", channels * 4, channels * 4)
            self.e.kept["means", t] = means
        if again:
            self.e.kept["stat", t] = stat
            index = self._keep("index", pool, geom.index_bytes(channels))
        sizes: dict[str, Any] = {"channels": channels, "per_group": per_group}
        rows = {"channels": channels, "width": pooled, "rows": 1, "window": 1}
        return [
            instr("moments", node.name, stat=stat, x=x, channels=channels, plane=plane),
            instr("group_stat", stat=stat, means=means, count=plane, eps=node.eps, **sizes),
            instr("maxpool", y=xhat, x=x, index=index, w=w, geom=pool, channels=channels),
            instr("normalise", node.name, xhat=xhat, y=y, stat=stat, w=w, bias=bias, **rows),
        ]

    def _keep(self, what: str, t: int, size: int) -> Ref:
        """A place for `size` bytes a round, if the backward half needs them."""
        if not self.e.needs[self.e.nodes[t].inputs[0]]:
            return NOTHING
        self.e.kept[what, t] = self.e.new(what, size, size)
        return self.e.kept[what, t]


class NormPart(NamedTuple):
    """What a norm sees in one round."""

    channels: int
    groups: int
    """Of a layer norm: rows."""
    sizes: dict[str, Any]
    """The parameters of its instructions."""


def norm_part(node: Node, shape: Shape, rounds: int) -> NormPart:
    """The channels and groups of a norm on a tensor of this shape."""
    if node.kind == "layer_norm":
        channels, rows = prod(shape) // node.groups, node.groups
        return NormPart(channels, rows, {"channels": channels, "rows": rows, "eps": node.eps})
    channels, per_group = shape[0] // rounds, shape[0] // node.groups
    sizes = {"channels": channels, "plane": prod(shape[1:]), "per_group": per_group}
    return NormPart(channels, channels // per_group, {**sizes, "eps": node.eps})


def compact(e: Emitter, value: int) -> None:
    """Keep the channels of x_{l-1} with gamma_fw != 0, in place (Sec. 3.3.2).

    To be called once nothing reads the value forward any more."""
    for head in e.updated_readers(value):
        stored = e.stored_channels(head)
        if stored is None:
            continue
        node = e.nodes[head]
        size = e.input_size(node)
        x = e.values[value].whole(size.bytes())
        gamma = e.kept["gamma", head] = e.gamma(node, "fw", x, size)
        e.emit("compact", node.name, x=x, gamma=gamma, stored=stored, **size._asdict())
        e.values[value] = x.whole(size.bytes(stored))
