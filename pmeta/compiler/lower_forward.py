"""The forward half of a step: stages in parts, and what the backward half needs of them."""

from math import prod

from pmeta.compiler.emitter import Builder
from pmeta.compiler.fuse import Stage
from pmeta.compiler.ir import ACTS, NOTHING, Instr, Ref, sliced
from pmeta.compiler.read_model import Node
from pmeta.device.format import FLAGS, float_bits


def stage_forward(b: Builder, s: int, stage: Stage) -> None:
    rounds = b.choices.forward.get(s, b.m.rounds(stage)[-1])
    shape = b.nodes[stage.head].shape if stage.head is not None else b.copied_shape(stage)
    breaks = [i for i, t in enumerate(stage.tail) if _breaks(b, t)]
    out = b.full(f"value {stage.value}", stage.shape, rounds)
    body: list[Instr] = []
    if stage.head is None and b.nodes[stage.tail[0]].kind in ("maxpool", "avgpool"):
        place = sliced(b.values[stage.source], prod(shape) // rounds)
    else:
        place = _segment(b, stage, breaks, -1, shape, rounds, out)
        if stage.head is not None:
            body.append(_head(b, s, b.nodes[stage.head], place, rounds))
        else:
            source = sliced(b.values[stage.source], prod(shape) // rounds)
            body.append(Instr("copy", (place, source), (prod(shape) // rounds, prod(shape[1:]))))
    for i, t in enumerate(stage.tail):
        node = b.nodes[t]
        to = place if i not in breaks else _segment(b, stage, breaks, i, node.shape, rounds, out)
        body.append(_tail(b, stage, t, node, place, to, shape, rounds))
        place, shape = to, node.shape
    b.values[stage.value] = out
    b.emit(body, rounds)


def _breaks(b: Builder, t: int) -> bool:
    """Operations that write elsewhere than they read: pooling, and a norm whose normalized input is kept."""
    return b.nodes[t].kind in ("maxpool", "avgpool") or (
        b.nodes[t].kind == "norm" and b.keeps_norm(t)
    )


def _segment(
    b: Builder,
    stage: Stage,
    breaks: list[int],
    at: int,
    shape: tuple[int, ...],
    rounds: int,
    out: Ref,
) -> Ref:
    """Where the value behind tail operation `at` (-1: the head) lies, until the next one that writes elsewhere."""
    following = next((i for i in breaks if i > at), None)
    if following is None:
        return out
    t = stage.tail[following]
    if b.nodes[t].kind == "norm":
        b.kept["xhat", t] = b.full(f"xhat {b.nodes[t].name}", shape, rounds)
        return b.kept["xhat", t]
    return b.new("part", prod(shape) * 4 // rounds)


def _head(b: Builder, s: int, node: Node, y: Ref, rounds: int) -> Instr:
    x, w, bias = b.values[b.m.stages[s].source], b.param(node, 0), b.param(node, 1)
    if node.kind == "fc":
        f, (c, t) = node.shape[-1], b.fc_input(node)
        return Instr(
            "fc", (y, x._replace(size=c * t * 4, step=0), w, bias), (f, c, t), layer=node.name
        )
    g = node.geom
    assert g is not None
    c, depth, strip = g.c_out // rounds, g.c_in // g.groups * g.kh * g.kw, b.strip(s, g.ho * g.wo)
    w, bias = w._replace(step=c * depth * 4), bias._replace(step=c * 4)
    x = x._replace(size=g.c_in * g.h * g.w * 4, step=0)
    return Instr(
        "conv",
        (y, x, w, bias, b.new("patches", depth * strip * 4)),
        (b.geom(s), c, strip),
        layer=node.name,
    )


def _tail(
    b: Builder,
    stage: Stage,
    t: int,
    node: Node,
    x: Ref,
    y: Ref,
    shape: tuple[int, ...],
    rounds: int,
) -> Instr:
    n = prod(shape) // rounds
    passes = b.needs[node.inputs[0]]
    if node.kind == "norm":
        c, per_group = shape[0] // rounds, shape[0] // node.groups
        w, bias = b.param(node, 0, c * 4), b.param(node, 1, c * 4)
        if b.keeps_norm(t):
            size = c // per_group * 4
            b.kept["rstd", t] = b.new(f"1/std {node.name}", size, size)
        rstd = b.kept.get(("rstd", t), NOTHING)
        p = (c, prod(shape[1:]), per_group, float_bits(node.eps))
        return Instr("norm", (x, y, w, bias, rstd), p, layer=node.name)
    if node.kind == "act":
        if passes:
            b.kept["mask", t] = b.new("mask", -(-n // 8), -(-n // 8))
        return Instr(
            "act",
            (x, b.kept.get(("mask", t), NOTHING)),
            (n, ACTS.index(node.act), float_bits(node.slope)),
        )
    if node.kind == "add":
        return Instr("add", (x, sliced(b.values[stage.others[t]], n)), (n,))
    assert node.geom is not None
    c, size = node.geom.c_in // rounds, b.index_bytes(node, rounds)
    if node.kind == "maxpool" and passes:
        b.kept["index", t] = b.new("index", size, size)
    refs = (y, x) if node.kind == "avgpool" else (y, x, b.kept.get(("index", t), NOTHING))
    return Instr(
        node.kind,
        refs,
        (t, c),
        flags=FLAGS["count_pad"] * (node.kind == "avgpool" and node.count_pad),
    )


def compact(b: Builder, value: int) -> None:
    """Once nothing reads x_{l-1} forward any more: keep the channels with gamma_fw != 0, in place (Sec. 3.3.2)."""
    for head in b.updated_readers(value):
        cap = b.cap(head)
        if not cap:
            continue
        node = b.nodes[head]
        c, n, rows = b.input_size(node)
        x = b.values[value]._replace(size=c * n * 4, step=0)
        gamma = b.gamma(node, "fw", x, n, rows)
        b.kept["gamma", head] = gamma
        b.emit([Instr("compact", (x, gamma), (c, n, cap), FLAGS["rows"] * rows, layer=node.name)])
        b.values[value] = x._replace(size=cap * n * 4)
