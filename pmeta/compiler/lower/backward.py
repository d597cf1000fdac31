"""The backward half of a step (Eqs. 13 and 14), which adds one sample to the accumulators.

It goes down to the first updated layer, stage by stage.
"""

from math import prod
from typing import Any, NamedTuple

from pmeta.compiler.fuse import NORMS, Stage
from pmeta.compiler.ir import ACTS, CURVES, LANES, NOTHING, Instr, Ref, instr
from pmeta.compiler.lower.emitter import Emitter, Size
from pmeta.compiler.lower.forward import concat_parts, norm_part
from pmeta.compiler.lower.recompute import head_again
from pmeta.compiler.read_model import Node
from pmeta.device.model_file import Geom


def stage_backward(e: Emitter, s: int, stage: Stage) -> None:
    """Emit the backward of one stage: its tail from the end on, part by part, then its head."""
    if e.nodes[stage.value].kind == "cat":
        _concat_backward(e, stage)
        return
    tail = _TailBackward(e, s, stage)
    reaches_head = tail.walk()
    gammas_fw = [e.gamma(n.node, "fw", n.scored, n.scored_size) for n in tail.norms]
    e.emit_rounds(tail.body, tail.rounds)
    for norm, gamma_fw in zip(tail.norms, gammas_fw, strict=True):
        _update_norm(e, norm, gamma_fw)
    if reaches_head and tail.tail.pools_first:
        head_again(e, s, stage, tail.g, tail.sums, tail.rounds)
    elif reaches_head:
        _head_backward(e, s, stage, tail.g.whole(prod(stage.head_shape) * 4))


def _concat_backward(e: Emitter, stage: Stage) -> None:
    """Give every input of a concatenation that needs it its part of the gradient."""
    whole = e.grads.pop(stage.value)
    for value, before, size in concat_parts(e, stage):
        if not e.needs[value]:
            continue
        g, count = whole.after(before, size), size // 4
        if value in e.grads:
            e.emit("add", y=e.grads[value].whole(size), x=g, count=count)
        else:
            y = e.grads[value] = e.new(f"g(value {value})", size)
            e.emit("copy", y=y, x=g, count=count, plane=count)


class _UpdatedNorm(NamedTuple):
    node: Node
    scored: Ref
    """What gives gamma_fw: xhat, or its means by channel."""
    scored_size: Size
    size: Size
    mean: Ref
    """Of g(y), by channel."""
    products: Ref
    """Sum of g(y) xhat, by channel."""


class _TailBackward:
    """The tail of a stage from its end on: where the gradient lies, and what is emitted so far."""

    def __init__(self, e: Emitter, s: int, stage: Stage):
        self.e, self.stage = e, stage
        same = e.tiling.forward.get(s, e.model.rounds(stage)[-1])
        self.rounds = 1 if s in e.streamed else e.tiling.backward.get(s, same)
        self.tail = e.tail(stage)
        self.g = e.grads.pop(stage.value).part(prod(stage.shape) // self.rounds * 4)
        self.body: list[Instr] = []
        self.norms: list[_UpdatedNorm] = []
        self.sums = NOTHING, NOTHING
        """Of a norm behind its max-pool."""

    def walk(self) -> bool:
        """Emit every operation whose gradient is needed; whether the head's is needed too."""
        for i in reversed(range(len(self.tail.order))):
            passes = self.e.needs[self._below(i)]
            if not (self.tail.pools_first and i == 1):  # the winners' gradient is all there is
                self._operation(i, passes and not (self.tail.pools_first and i == 0))
            if not passes:
                return False
        return True

    def _below(self, i: int) -> int:
        """The value that tail operation i reads from its own stage."""
        head = self.stage.source if self.stage.head is None else self.stage.head
        return self.tail.order[i - 1] if i else head

    def _operation(self, i: int, passes: bool) -> None:
        """Add the backward of tail operation i, and move on to the gradient of its input."""
        t = self.tail.order[i]
        node, first = self.e.nodes[t], self.tail.pools_first and i == 0
        shape = self.tail.shapes[2 if first else i]
        count = prod(shape) // self.rounds
        if node.kind == "add":
            self._add(self.stage.others[t][0], count)
        elif node.kind == "mul":
            factors = node.factors // self.rounds
            self._multiply(self.stage.others[t][0], factors, count, passes)
        elif node.kind in NORMS:
            self._norm(t, node, shape, passes)
        elif passes and node.kind == "act":
            mask = self.e.kept["mask", t].parts(-(-count // 8), self.rounds)
            kind = ACTS.index(node.act)
            self._append("act_bw", g=self.g, mask=mask, count=count, kind=kind, slope=node.slope)
        elif passes and node.kind == "curve":
            kept = self.e.kept["curve", t].parts(count * 4, self.rounds)
            kind = CURVES.index(node.act)
            self._append("curve_bw", g=self.g, kept=kept, count=count, kind=kind)
        elif passes:
            self._pool(t, node, self._place(i, shape))

    def _place(self, i: int, shape: tuple[int, ...]) -> Ref:
        """For the gradient of a pool's input: a norm below it takes one part after the other."""
        if any(self.e.nodes[u].kind in NORMS for u in self.tail.order[:i]):
            return self.e.new("part", prod(shape) // self.rounds * 4, local=True)
        return self.e.full("g(y)", shape, self.rounds)

    def _append(self, op: str, owner: str = "", **named: Any) -> None:
        self.body.append(instr(op, owner, **named))

    def _add(self, other: int, count: int) -> None:
        """The other input of an add: the gradient is added to that of its other readers."""
        if not self.e.needs.get(other, False):
            return
        if other in self.e.grads:
            y = self.e.grads[other].part(count * 4)
            self._append("add", y=y, x=self.g, count=count)
        else:
            y = self.e.grads[other] = self.e.new(f"g(value {other})", count * 4, count * 4)
            self._append("copy", y=y, x=self.g, count=count, plane=count)

    def _multiply(self, other: int, factors: int, count: int, passes: bool) -> None:
        """The gradient of the factors needs x, that of x needs the factors."""
        sizes: dict[str, Any] = {"factors": factors, "each": count // factors}
        if self.e.needs[other]:
            x, add = self.e.values[self.stage.source].part(count * 4), other in self.e.grads
            if not add:
                self.e.grads[other] = self.e.new(f"g(value {other})", factors * 4)
            gs = self.e.grads[other].part(factors * 4)
            self._append("mul_bw", gs=gs, gy=self.g, x=x, add=add, **sizes)
        if passes:
            s = self.e.values[other].part(factors * 4)
            self._append("mul", y=self.g, x=self.g, s=s, **sizes)

    def _pool(self, t: int, node: Node, to: Ref) -> None:
        assert node.geom is not None
        channels = node.geom.c_in // self.rounds
        named: dict[str, Any] = {"gx": to, "gy": self.g, "geom": t, "channels": channels}
        if node.kind == "maxpool":
            index = self.e.kept["index", t].parts(node.geom.index_bytes(channels), self.rounds)
            self._append("maxpool_bw", index=index, **named)
        else:
            self._append("avgpool_bw", count_pad=node.count_pad, **named)
        self.g = to

    def _norm(self, t: int, node: Node, shape: tuple[int, ...], passes: bool) -> None:
        part = norm_part(node, shape, self.rounds)
        xhat = self.e.kept["xhat", t].part(prod(shape) // self.rounds * 4)
        rstd = mean = products = NOTHING
        if passes:
            rstd = self.e.kept["rstd", t].parts(part.groups * 4, self.rounds)
        size, channels = part.channels * 4, part.channels * self.rounds
        if node.name in self.e.live or self.tail.pools_first:
            mean, products = (self.e.new(f"sums {node.name}", size, size) for _ in range(2))
            self.sums = mean.whole(channels * 4), products.whole(channels * 4)
        if node.name in self.e.live:
            seen = Size(channels, prod(shape) // channels, rows_first=node.kind == "layer_norm")
            scored, scored_size = xhat.whole(seen.bytes()), seen
            if self.tail.pools_first:
                scored, scored_size = self.e.kept["means", t].whole(channels * 4), Size(channels, 1)
            self.norms.append(_UpdatedNorm(node, scored, scored_size, seen, *self.sums))
        self._append(
            f"{node.kind}_bw",
            node.name,
            xhat=xhat,
            gy=self.g,
            w=self.e.param(node.weight, part.channels * 4),
            rstd=rstd,
            mean=mean,
            products=products,
            no_dx=not passes,
            **part.sizes,
        )
        self.g = self.g if self.tail.pools_first else xhat


def _update_norm(e: Emitter, norm: _UpdatedNorm, gamma_fw: Ref) -> None:
    node, channels = norm.node, norm.size.channels
    gamma_bw = e.gamma(node, "bw", norm.mean, Size(channels, 1))
    acc_w, acc_b = (e.accumulator(node, w, (1, channels, 1)) for w in (node.weight, node.bias))
    sums = {"mean": norm.mean, "products": norm.products}
    gammas = {"gamma_fw": gamma_fw, "gamma_bw": gamma_bw}
    sizes = {"channels": channels, "plane": norm.size.plane}
    e.emit("norm_acc", node.name, acc_w=acc_w, acc_b=acc_b, **sums, **gammas, **sizes)


def _head_backward(e: Emitter, s: int, stage: Stage, gy: Ref) -> None:
    wants = stage.source >= 0 and e.needs[stage.source]
    if stage.head is not None:
        node = e.nodes[stage.head]
        if node.name in e.live:
            _weight_gradient(e, s, stage, node, gy)
        if wants:
            _input_gradient(e, s, stage, node, gy)
    elif wants and stage.source in e.grads:
        e.emit("add", y=e.grads[stage.source].whole(gy.size), x=gy, count=gy.size // 4)
    elif wants:
        e.grads[stage.source] = gy


def _weight_gradient(e: Emitter, s: int, stage: Stage, node: Node, gy: Ref) -> None:
    """Eq. 13 with scores, and the bias."""
    assert stage.head is not None
    size, stored = e.input_size(node), e.stored_channels(stage.head)
    filters = node.shape[-1] if size.rows_first else node.shape[0]
    g_size = Size(filters, gy.size // 4 // filters, size.rows_first)
    if e.streams_again and stage.source not in e.values:
        _streamed_weight_gradient(e, node, gy, g_size)
        return
    x = e.values[stage.source].whole(size.bytes(stored))
    gamma_fw = e.gamma(node, "fw", x, size) if stored is None else e.kept["gamma", stage.head]
    gamma_bw = e.gamma(node, "bw", gy, g_size)
    named = {"gy": gy, "x": x, "gamma_fw": gamma_fw, "gamma_bw": gamma_bw, "stored": stored or 0}
    if node.geom is None:
        sizes = {"outputs": filters, "inputs": size.channels, "rows": size.plane}
        acc = e.accumulator(node, node.weight, (1, filters * size.channels, 1))
        e.emit("fc_bw_w", node.name, acc=acc, **named, **sizes)
    else:
        _conv_weight_gradient(e, s, node, node.geom, {**named, "geom": stage.head})
    _bias_gradient(e, node, gy, gamma_bw, g_size)


def _streamed_weight_gradient(e: Emitter, node: Node, gy: Ref, g_size: Size) -> None:
    """The same of a conv whose input was never there as a whole."""
    assert e.streams_again is not None
    assert node.geom is not None
    gamma_fw = e.gamma(node, "fw", e.seen, Size(node.geom.c_in, 1))
    gamma_bw = e.gamma(node, "bw", gy, g_size)
    acc = e.accumulator(node, node.weight, (1, node.geom.depth, node.geom.c_out))
    e.streams_again(gy, gamma_bw, acc, gamma_fw)
    _bias_gradient(e, node, gy, gamma_bw, g_size)


def _bias_gradient(e: Emitter, node: Node, gy: Ref, gamma_bw: Ref, g_size: Size) -> None:
    if node.bias:
        acc = e.accumulator(node, node.bias, (1, g_size.channels, 1))
        e.emit("bias_bw", node.name, acc=acc, gy=gy, gamma_bw=gamma_bw, **g_size._asdict())


def _conv_weight_gradient(e: Emitter, s: int, node: Node, g: Geom, named: dict) -> None:
    filters, strip = g.c_out // g.groups, e.strip(s, g.ho * g.wo)
    lanes = -(-filters // LANES) * LANES
    patches = e.new("patches", (g.depth + lanes) * strip * 4)
    acc = e.accumulator(node, node.weight, (g.groups, g.depth, filters))
    e.emit("conv_bw_w", node.name, acc=acc, patches=patches, strip=strip, **named)


def _input_gradient(e: Emitter, s: int, stage: Stage, node: Node, gy: Ref) -> None:
    size, add, g = e.input_size(node), stage.source in e.grads, node.geom
    gx = e.grads[stage.source] if add else e.new(f"g(value {stage.source})", size.bytes())
    gx = e.grads[stage.source] = gx.whole(size.bytes())
    named = {"gx": gx, "gy": gy, **e.weights(node), "add": add}
    if g is None:
        sizes = {"outputs": node.shape[-1], "inputs": size.channels, "rows": size.plane}
        e.emit("fc_bw_x", node.name, **named, **sizes)
        return
    strip = e.strip(s, g.h * g.w)
    patches = e.new("patches", g.c_out // g.groups * g.kh * g.kw * (strip + 4) * 4)
    e.emit("conv_bw_x", node.name, **named, patches=patches, geom=stage.head, strip=strip)
