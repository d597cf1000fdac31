"""The program of one inner step on one sample (Sec. 3.2 to 3.5): forward, backward down to the first updated layer, update.

Only what the gradients need is kept from forward to backward: of updated layers the input, of it only the channels with
gamma_fw != 0; of group norms the normalized input; of activations one bit, of pooling windows the place of the maximum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from pmeta.arena import Buffer
from pmeta.flatfile import FLAGS, NONE, float_bits
from pmeta.graph import Node
from pmeta.stages import Stage

LANES = 16
ACTS = ("relu", "leaky", "relu6")


class Ref(NamedTuple):
    """An operand: a buffer of the arena, or with `buffer` None a fixed address. In round r of a loop it lies r * step further."""

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
    convert: bool = False
    """The sample is uint8 and is made float32 first, since something else than a conv reads it."""

    def rounds(self, stage: Stage) -> list[int]:
        """In how many parts a stage can run, the fewest first."""
        channels = stage.shape[0]
        if stage.head is not None and self.nodes[stage.head].kind == "fc":
            return [1]
        norm = next((self.nodes[t] for t in stage.tail if self.nodes[t].kind == "norm"), None)
        parts = norm.groups if norm else channels
        return [r for r in range(1, parts + 1) if parts % r == 0] if len(stage.shape) > 1 or norm or stage.tail else [1]


@dataclass
class Choices:
    """How a program is laid out: parts of each stage forward and backward, and pixels of a conv's strip."""

    forward: dict[int, int] = field(default_factory=dict)
    backward: dict[int, int] = field(default_factory=dict)
    strip: dict[int, int] = field(default_factory=dict)


class Program:
    """The instructions for one set of updated layers (none: inference). Buffers have their uses filled in, offsets not yet."""

    def __init__(self, model: Model, live: frozenset[str], choices: Choices):
        self.m, self.live, self.choices = model, live, choices
        self.nodes = model.nodes
        self.forward: list[Unit] = []
        self.backward: list[Unit] = []
        self.update: list[Unit] = []
        self.buffers: list[Buffer] = []
        self.values: dict[int, Ref] = {-1: Ref(None, model.input_at)}
        self.kept: dict[tuple, Ref] = {}
        self.grads: dict[int, Ref] = {}
        self.acc: dict[str, Ref] = {}
        self.needs = self._needs()
        self._units = self.forward
        self._build()

    # -- what is needed -------------------------------------------------------------------------------------------------

    def _needs(self) -> dict[int, bool]:
        """Which values need a gradient: those with an updated layer at or below them."""
        needs = {-1: False}
        for i, node in enumerate(self.nodes):
            needs[i] = node.name in self.live or any(needs[v] for v in node.inputs)
        return needs

    def _updated_readers(self, value: int) -> list[int]:
        return [
            s.head for s in self.m.stages if s.head is not None and s.source == value and self.nodes[s.head].name in self.live
        ]

    def _cap(self, head: int) -> int:
        """Channels of the layer's input that are stored, 0 for all of them in place."""
        node, score = self.nodes[head], self.m.scores.get((self.nodes[head].name, "fw"))
        source = self._source(head)
        alone = len(self._updated_readers(source)) == 1
        sparse = score is not None and score.kept < score.channels
        return score.kept if score and sparse and alone and source >= 0 and node.name in self.live else 0

    def _source(self, head: int) -> int:
        v = self.nodes[head].inputs[0]
        return v if v < 0 else self.m.root[v]

    # -- building blocks ------------------------------------------------------------------------------------------------

    def new(self, name: str, size: int, step: int = 0, persistent: bool = False) -> Ref:
        self.buffers.append(Buffer(name, persistent))
        return Ref(self.buffers[-1], size=size, step=step)

    def emit(self, body: list[Instr], rounds: int = 1) -> None:
        self._units.extend([Unit(1, [i]) for i in body] if rounds == 1 else [Unit(rounds, body)])

    def param(self, node: Node, which: int, step: int = 0) -> Ref:
        name = node.params[which] if node.params else ""
        return Ref(None, self.m.address[name], step=step) if name else NOTHING

    def _build(self) -> None:
        last = len(self.m.stages) - 1
        if self.m.convert:
            words, plane = prod(self.m.input_shape), prod(self.m.input_shape[1:])
            self.values[-1] = self.new("input", words * 4)
            self.emit([Instr("copy", (self.values[-1], Ref(None, self.m.input_at)), (words, plane))])
        for s, stage in enumerate(self.m.stages):
            self._stage_forward(s, stage)
            for value in stage.reads():
                if all(value not in later.reads() for later in self.m.stages[s + 1 :]):
                    self._compact(value)
        out = self.m.stages[last].value
        self.output = self.values[out]._replace(size=prod(self.m.stages[last].shape) * 4, step=0)
        self.g_output: Ref | None = None
        self._units = self.backward
        if self.live:
            self.g_output = self.grads[out] = self.new("g(output)", self.output.size)
            for s, stage in reversed(list(enumerate(self.m.stages))):
                if self.needs[stage.value]:
                    self._stage_backward(s, stage)
        self._fill_uses()

    def _fill_uses(self) -> None:
        t = 0
        for units in (self.forward, None, self.backward, self.update):
            if units is None:  # the loss, between forward and backward
                for ref in (self.output, self.g_output):
                    _use(ref, t, 1)
                t += 1
                continue
            for unit in units:
                for instr in unit.body:
                    for ref in instr.refs:
                        _use(ref, t, unit.rounds)
                t += 1
        self.end = t

    # -- forward --------------------------------------------------------------------------------------------------------

    def _stage_forward(self, s: int, stage: Stage) -> None:
        rounds = self.choices.forward.get(s, self.m.rounds(stage)[-1])
        shape = self.nodes[stage.head].shape if stage.head is not None else self._copied_shape(stage)
        breaks = [i for i, t in enumerate(stage.tail) if self._breaks(t)]
        out = self._full(f"value {stage.value}", stage.shape, rounds)
        place = self._segment(stage, breaks, -1, shape, rounds, out)
        body: list[Instr] = []
        if stage.head is not None:
            body.append(self._head(s, self.nodes[stage.head], place, rounds))
        elif stage.tail and self.nodes[stage.tail[0]].kind in ("maxpool", "avgpool"):
            place = _sliced(self.values[stage.source], prod(shape) // rounds)
        else:
            source = _sliced(self.values[stage.source], prod(shape) // rounds)
            body.append(Instr("copy", (place, source), (prod(shape) // rounds, prod(shape[1:]))))
        for i, t in enumerate(stage.tail):
            node = self.nodes[t]
            to = place if i not in breaks else self._segment(stage, breaks, i, node.shape, rounds, out)
            body.append(self._tail(stage, t, node, place, to, shape, rounds))
            place, shape = to, node.shape
        self.values[stage.value] = out
        self.emit(body, rounds)

    def _copied_shape(self, stage: Stage) -> tuple[int, ...]:
        first = self.nodes[stage.tail[0]]
        return (first.geom.c_in, first.geom.h, first.geom.w) if first.geom else first.shape

    def _breaks(self, t: int) -> bool:
        """Operations that write elsewhere than they read: pooling, and a norm whose normalized input is kept."""
        return self.nodes[t].kind in ("maxpool", "avgpool") or (self.nodes[t].kind == "norm" and self._keeps_norm(t))

    def _keeps_norm(self, t: int) -> bool:
        return self.nodes[t].name in self.live or self.needs[self.nodes[t].inputs[0]]

    def _full(self, name: str, shape: tuple[int, ...], rounds: int) -> Ref:
        size = prod(shape) * 4 // rounds
        return self.new(name, size, size if rounds > 1 else 0)

    def _segment(self, stage: Stage, breaks: list[int], at: int, shape: tuple[int, ...], rounds: int, out: Ref) -> Ref:
        """Where the value behind tail operation `at` (-1: the head) lies, until the next one that writes elsewhere."""
        following = next((i for i in breaks if i > at), None)
        if following is None:
            return out
        t = stage.tail[following]
        if self.nodes[t].kind == "norm":
            self.kept["xhat", t] = self._full(f"xhat {self.nodes[t].name}", shape, rounds)
            return self.kept["xhat", t]
        return self.new("part", prod(shape) * 4 // rounds)

    def _head(self, s: int, node: Node, y: Ref, rounds: int) -> Instr:
        x, (w, b) = self.values[self.m.stages[s].source], (self.param(node, 0), self.param(node, 1))
        if node.kind == "fc":
            f, (c, t) = node.shape[-1], self._fc_input(node)
            return Instr("fc", (y, x._replace(size=c * t * 4, step=0), w, b), (f, c, t), layer=node.name)
        g = node.geom
        assert g is not None
        c, depth, strip = g.c_out // rounds, g.c_in // g.groups * g.kh * g.kw, self._strip(s, g.ho * g.wo)
        w, b = w._replace(step=c * depth * 4), b._replace(step=c * 4 if b.at != NONE else 0)
        x = x._replace(size=g.c_in * g.h * g.w * 4, step=0)
        return Instr("conv", (y, x, w, b, self.new("patches", depth * strip * 4)), (self._geom(s), c, strip), layer=node.name)

    def _geom(self, s: int) -> int:
        """Geometries are numbered by their node; the writer packs them."""
        head = self.m.stages[s].head
        assert head is not None
        return head

    def _strip(self, s: int, pixels: int) -> int:
        return min(self.choices.strip.get(s, LANES), -(-pixels // LANES) * LANES)

    def _fc_input(self, node: Node) -> tuple[int, int]:
        """(C, rows) of the layer's input."""
        rows = prod(node.shape[:-1])
        v = node.inputs[0]
        return prod(self.nodes[v].shape if v >= 0 else self.m.input_shape) // rows, rows

    def _tail(self, stage: Stage, t: int, node: Node, x: Ref, y: Ref, shape: tuple[int, ...], rounds: int) -> Instr:
        n = prod(shape) // rounds
        passes = self.needs[node.inputs[0]]
        if node.kind == "norm":
            c, per_group = shape[0] // rounds, shape[0] // node.groups
            w, b = self.param(node, 0, c * 4), self.param(node, 1, c * 4)
            if self._keeps_norm(t):
                size = c // per_group * 4
                self.kept["rstd", t] = self.new(f"1/std {node.name}", size, size)
            rstd = self.kept.get(("rstd", t), NOTHING)
            p = (c, prod(shape[1:]), per_group, float_bits(node.eps))
            return Instr("norm", (x, y, w, b, rstd), p, layer=node.name)
        if node.kind == "act":
            if passes:
                self.kept["mask", t] = self.new("mask", -(-n // 8), -(-n // 8))
            return Instr("act", (x, self.kept.get(("mask", t), NOTHING)), (n, ACTS.index(node.act), float_bits(node.slope)))
        if node.kind == "add":
            return Instr("add", (x, _sliced(self.values[stage.others[t]], n)), (n,))
        assert node.geom is not None
        c, size = node.geom.c_in // rounds, self._index_bytes(node, rounds)
        if node.kind == "maxpool" and passes:
            self.kept["index", t] = self.new("index", size, size)
        refs = (y, x) if node.kind == "avgpool" else (y, x, self.kept.get(("index", t), NOTHING))
        return Instr(node.kind, refs, (t, c), flags=FLAGS["count_pad"] * (node.kind == "avgpool" and node.count_pad))

    def _index_bytes(self, node: Node, rounds: int) -> int:
        assert node.geom is not None
        g = node.geom
        n = g.c_in // rounds * g.ho * g.wo
        return -(-n // 4) if g.kh * g.kw <= 4 else n

    def _compact(self, value: int) -> None:
        """Once nothing reads x_{l-1} forward any more: keep the channels with gamma_fw != 0, in place (Sec. 3.3.2)."""
        for head in self._updated_readers(value):
            cap = self._cap(head)
            if not cap:
                continue
            node = self.nodes[head]
            c, n, rows = self._input_size(node)
            x = self.values[value]._replace(size=c * n * 4, step=0)
            gamma = self._gamma(node, "fw", x, n, rows)
            self.kept["gamma", head] = gamma
            self.emit([Instr("compact", (x, gamma), (c, n, cap), FLAGS["rows"] * rows, layer=node.name)])
            self.values[value] = x._replace(size=cap * n * 4)

    def _input_size(self, node: Node) -> tuple[int, int, bool]:
        """(channels, numbers a channel, whether rows come first) of a conv's or fc's input."""
        if node.geom:
            return node.geom.c_in, node.geom.h * node.geom.w, False
        c, t = self._fc_input(node)
        return c, t, True

    def _gamma(self, node: Node, side: str, x: Ref, n: int, rows: bool) -> Ref:
        """gamma of one side from the tensor x (channels, n), Eqs. 10 and 11; NOTHING stands for 1."""
        score = self.m.scores.get((node.name, side))
        if score is None:
            return NOTHING
        if score.kind == "static":
            return Ref(None, score.at)
        c = score.channels
        gamma, scratch = self.new(f"gamma {side} {node.name}", c * 4), self.new("score", 3 * c * 4)
        flags = FLAGS["rows"] * rows + FLAGS["backward"] * (side == "bw")
        p = (c, n, float_bits(score.threshold))
        self.emit([Instr("score", (gamma, x, Ref(None, score.at), scratch), p, flags, layer=node.name)])
        return gamma

    # -- backward -------------------------------------------------------------------------------------------------------

    def _stage_backward(self, s: int, stage: Stage) -> None:
        rounds = self.choices.backward.get(s, self.choices.forward.get(s, self.m.rounds(stage)[-1]))
        head_shape = self.nodes[stage.head].shape if stage.head is not None else self._copied_shape(stage)
        place = _sliced(self.grads.pop(stage.value), prod(stage.shape) // rounds)
        body: list[Instr] = []
        before: list[tuple[Node, Ref]] = []
        done = False
        for i in reversed(range(len(stage.tail))):
            t = stage.tail[i]
            node = self.nodes[t]
            shape = self.nodes[stage.tail[i - 1]].shape if i else head_shape
            place, done = self._tail_backward(stage, i, node, place, shape, rounds, body, before)
            if done:
                break
        gammas = {id(node): self._gamma(node, "fw", xhat, n, False) for node, xhat, n in self._norms(before)}
        self.emit(body, rounds)
        for node, _, n in self._norms(before):
            self._norm_update(node, gammas[id(node)], n)
        if not done:
            self._head_backward(s, stage, place._replace(size=prod(head_shape) * 4, step=0))

    def _norms(self, before: list[tuple[Node, Ref]]) -> list[tuple[Node, Ref, int]]:
        return [(node, xhat._replace(step=0, size=prod(node.shape) * 4), prod(node.shape[1:])) for node, xhat in before]

    def _tail_backward(
        self, stage: Stage, i: int, node: Node, g: Ref, shape: tuple[int, ...], rounds: int, body: list[Instr], norms: list
    ) -> tuple[Ref, bool]:
        """Add the backward of tail operation i; where the gradient of its input lies, and whether the stage ends here."""
        t, n = stage.tail[i], prod(shape) // rounds
        passes = self.needs[node.inputs[0]] if node.kind != "add" else self._chain_needs(stage, i)
        if node.kind == "add":
            other = stage.others[t]
            if self.needs.get(other, False):
                body.append(self._contribute(other, g, n, rounds))
            return g, not passes
        if node.kind == "norm":
            return self._norm_backward(t, node, g, shape, rounds, passes, body, norms), not passes
        if not passes:
            return g, True
        if node.kind == "act":
            mask = self._reslice(self.kept["mask", t], -(-n // 8), rounds)
            body.append(Instr("act_bw", (g, mask), (n, ACTS.index(node.act), float_bits(node.slope))))
            return g, False
        norm_below = any(self.nodes[u].kind == "norm" for u in stage.tail[:i])
        to = self.new("part", n * 4) if norm_below else self._full("g(y)", shape, rounds)
        assert node.geom is not None
        refs: tuple[Ref, ...] = (to, g)
        if node.kind == "maxpool":
            refs += (self._reslice(self.kept["index", t], self._index_bytes(node, rounds), rounds),)
        flags = FLAGS["count_pad"] * (node.kind == "avgpool" and node.count_pad)
        body.append(Instr(node.kind + "_bw", refs, (t, node.geom.c_in // rounds), flags))
        return to, False

    def _reslice(self, ref: Ref, size: int, rounds: int) -> Ref:
        return ref._replace(size=size, step=size if rounds > 1 else 0)

    def _chain_needs(self, stage: Stage, i: int) -> bool:
        if i:
            return self.needs[stage.tail[i - 1]]
        return self.needs[stage.head if stage.head is not None else stage.source]

    def _contribute(self, value: int, g: Ref, n: int, rounds: int) -> Instr:
        """Add one part of a gradient to that of a value that has several readers."""
        if value in self.grads:
            return Instr("add", (_sliced(self.grads[value], n), g), (n,))
        self.grads[value] = self.new(f"g(value {value})", n * 4, n * 4)
        return Instr("copy", (self.grads[value], g), (n, n))

    def _norm_backward(
        self, t: int, node: Node, g: Ref, shape: tuple[int, ...], rounds: int, passes: bool, body: list[Instr], norms: list
    ) -> Ref:
        c, per_group = shape[0] // rounds, shape[0] // node.groups
        xhat = _sliced(self.kept["xhat", t], prod(shape) // rounds)
        rstd = self._reslice(self.kept["rstd", t], c // per_group * 4, rounds)
        mean = sums = NOTHING
        if node.name in self.live:
            mean, sums = (self.new(f"sums {node.name}", c * 4, c * 4) for _ in range(2))
            self.kept["sums", node.name] = mean
            self.kept["products", node.name] = sums
            norms.append((node, xhat))
        p = (c, prod(shape[1:]), per_group, float_bits(node.eps))
        refs = (xhat, g, self.param(node, 0, c * 4), rstd, mean, sums)
        body.append(Instr("norm_bw", refs, p, FLAGS["no_dx"] * (not passes), layer=node.name))
        return xhat

    def _norm_update(self, node: Node, gamma_fw: Ref, n: int) -> None:
        c = node.shape[0]
        mean, sums = (self.kept[k, node.name]._replace(size=c * 4, step=0) for k in ("sums", "products"))
        gamma_bw = self._gamma(node, "bw", mean, 1, False)
        w, b = self._acc(node, 0, (1, c, 1)), self._acc(node, 1, (1, c, 1))
        self.emit([Instr("norm_acc", (w, b, mean, sums, gamma_fw, gamma_bw), (c, n), layer=node.name)])

    def _acc(self, node: Node, which: int, layout: tuple[int, int, int]) -> Ref:
        """The accumulator of one parameter, (groups, depth, filters), and the update that empties it (Eq. 14)."""
        name = node.params[which]
        if not name:
            return self.new(f"unused {node.name}", prod(layout) * 4)
        self.acc[name] = self.new(f"acc {name}", prod(layout) * 4, persistent=True)
        w = Ref(None, self.m.address[name])
        self.update.append(Unit(1, [Instr("update", (w, self.acc[name]), layout, layer=node.name)]))
        return self.acc[name]

    def _head_backward(self, s: int, stage: Stage, gy: Ref) -> None:
        wants = self.needs[stage.source] if stage.source >= 0 else False
        if stage.head is None:
            if wants and stage.source in self.grads:
                n = gy.size // 4
                self.emit([Instr("add", (_sliced(self.grads[stage.source], n)._replace(step=0), gy), (n,))])
            elif wants:
                self.grads[stage.source] = gy
            return
        node = self.nodes[stage.head]
        if node.name in self.live:
            self._weight_gradient(s, stage, node, gy)
        if wants:
            self._input_gradient(s, stage, node, gy)

    def _weight_gradient(self, s: int, stage: Stage, node: Node, gy: Ref) -> None:
        assert stage.head is not None
        c, n, rows = self._input_size(node)
        cap, f = self._cap(stage.head), node.shape[-1] if rows else node.shape[0]
        x = self.values[stage.source]._replace(size=(cap or c) * n * 4, step=0)
        gamma_fw = self.kept["gamma", stage.head] if cap else self._gamma(node, "fw", x, n, rows)
        gamma_bw = self._gamma(node, "bw", gy, gy.size // 4 // f, rows)
        g = node.geom
        if g is None:
            acc = self._acc(node, 0, (1, f * c, 1))
            self.emit([Instr("fc_bw_w", (acc, gy, x, gamma_fw, gamma_bw), (f, c, n, cap), layer=node.name)])
        else:
            depth, filters, strip = c // g.groups * g.kh * g.kw, f // g.groups, self._strip(s, g.ho * g.wo)
            scratch = self.new("patches", (depth + -(-filters // LANES) * LANES) * strip * 4)
            acc = self._acc(node, 0, (g.groups, depth, filters))
            p = (self._geom(s), cap, strip)
            self.emit([Instr("conv_bw_w", (acc, gy, x, gamma_fw, gamma_bw, scratch), p, layer=node.name)])
        if node.params[1]:
            acc = self._acc(node, 1, (1, f, 1))
            self.emit([Instr("bias_bw", (acc, gy, gamma_bw), (f, gy.size // 4 // f), FLAGS["rows"] * rows, layer=node.name)])

    def _input_gradient(self, s: int, stage: Stage, node: Node, gy: Ref) -> None:
        c, n, rows = self._input_size(node)
        add = stage.source in self.grads
        gx = self.grads[stage.source] if add else self.new(f"g(value {stage.source})", c * n * 4)
        gx = self.grads[stage.source] = gx._replace(size=c * n * 4, step=0)
        flags, w, g = FLAGS["add"] * add, self.param(node, 0), node.geom
        if g is None:
            self.emit([Instr("fc_bw_x", (gx, gy, w), (node.shape[-1], c, n), flags, layer=node.name)])
            return
        depth, strip = g.c_out // g.groups * g.kh * g.kw, self._strip(s, g.h * g.w)
        scratch = self.new("patches", depth * (strip + 4) * 4)
        self.emit([Instr("conv_bw_x", (gx, gy, w, scratch), (self._geom(s), 0, strip), flags, layer=node.name)])


def _sliced(ref: Ref, n: int) -> Ref:
    """One part of n words of a full tensor."""
    return ref._replace(size=n * 4, step=n * 4)


def _use(ref: Ref | None, time: int, rounds: int) -> None:
    if ref is not None and ref.buffer is not None:
        ref.buffer.uses.append((time, ref.size + ref.step * (rounds - 1)))
