"""The backward half of a step (Eqs. 13 and 14): down to the first updated layer, one sample added to the accumulators."""

from math import prod

from pmeta.compiler.emitter import Builder
from pmeta.compiler.fuse import Stage
from pmeta.compiler.ir import ACTS, LANES, NOTHING, Instr, Ref, resliced, sliced
from pmeta.compiler.read_model import Node
from pmeta.device.format import FLAGS, float_bits


def stage_backward(b: Builder, s: int, stage: Stage) -> None:
    rounds = b.choices.backward.get(s, b.choices.forward.get(s, b.m.rounds(stage)[-1]))
    head_shape = b.nodes[stage.head].shape if stage.head is not None else b.copied_shape(stage)
    place = sliced(b.grads.pop(stage.value), prod(stage.shape) // rounds)
    body: list[Instr] = []
    before: list[tuple[Node, Ref]] = []
    done = False
    for i in reversed(range(len(stage.tail))):
        t = stage.tail[i]
        node = b.nodes[t]
        shape = b.nodes[stage.tail[i - 1]].shape if i else head_shape
        place, done = _tail_backward(b, stage, i, node, place, shape, rounds, body, before)
        if done:
            break
    gammas = {id(node): b.gamma(node, "fw", xhat, n, False) for node, xhat, n in _norms(b, before)}
    b.emit(body, rounds)
    for node, _, n in _norms(b, before):
        _norm_update(b, node, gammas[id(node)], n)
    if not done:
        _head_backward(b, s, stage, place._replace(size=prod(head_shape) * 4, step=0))


def _norms(b: Builder, before: list[tuple[Node, Ref]]) -> list[tuple[Node, Ref, int]]:
    return [
        (node, xhat._replace(step=0, size=prod(node.shape) * 4), prod(node.shape[1:]))
        for node, xhat in before
    ]


def _tail_backward(
    b: Builder,
    stage: Stage,
    i: int,
    node: Node,
    g: Ref,
    shape: tuple[int, ...],
    rounds: int,
    body: list[Instr],
    norms: list,
) -> tuple[Ref, bool]:
    """Add the backward of tail operation i; where the gradient of its input lies, and whether the stage ends here."""
    t, n = stage.tail[i], prod(shape) // rounds
    passes = b.needs[node.inputs[0]] if node.kind != "add" else _chain_needs(b, stage, i)
    if node.kind == "add":
        other = stage.others[t]
        if b.needs.get(other, False):
            body.append(_contribute(b, other, g, n, rounds))
        return g, not passes
    if node.kind == "norm":
        return _norm_backward(b, t, node, g, shape, rounds, passes, body, norms), not passes
    if not passes:
        return g, True
    if node.kind == "act":
        mask = resliced(b.kept["mask", t], -(-n // 8), rounds)
        body.append(Instr("act_bw", (g, mask), (n, ACTS.index(node.act), float_bits(node.slope))))
        return g, False
    norm_below = any(b.nodes[u].kind == "norm" for u in stage.tail[:i])
    to = b.new("part", n * 4) if norm_below else b.full("g(y)", shape, rounds)
    assert node.geom is not None
    refs: tuple[Ref, ...] = (to, g)
    if node.kind == "maxpool":
        refs += (resliced(b.kept["index", t], b.index_bytes(node, rounds), rounds),)
    flags = FLAGS["count_pad"] * (node.kind == "avgpool" and node.count_pad)
    body.append(Instr(node.kind + "_bw", refs, (t, node.geom.c_in // rounds), flags))
    return to, False


def _chain_needs(b: Builder, stage: Stage, i: int) -> bool:
    if i:
        return b.needs[stage.tail[i - 1]]
    return b.needs[stage.head if stage.head is not None else stage.source]


def _contribute(b: Builder, value: int, g: Ref, n: int, rounds: int) -> Instr:
    """Add one part of a gradient to that of a value that has several readers."""
    if value in b.grads:
        return Instr("add", (sliced(b.grads[value], n), g), (n,))
    b.grads[value] = b.new(f"g(value {value})", n * 4, n * 4)
    return Instr("copy", (b.grads[value], g), (n, n))


def _norm_backward(
    b: Builder,
    t: int,
    node: Node,
    g: Ref,
    shape: tuple[int, ...],
    rounds: int,
    passes: bool,
    body: list[Instr],
    norms: list,
) -> Ref:
    c, per_group = shape[0] // rounds, shape[0] // node.groups
    xhat = sliced(b.kept["xhat", t], prod(shape) // rounds)
    rstd = resliced(b.kept["rstd", t], c // per_group * 4, rounds)
    mean = sums = NOTHING
    if node.name in b.live:
        mean, sums = (b.new(f"sums {node.name}", c * 4, c * 4) for _ in range(2))
        b.kept["sums", node.name] = mean
        b.kept["products", node.name] = sums
        norms.append((node, xhat))
    p = (c, prod(shape[1:]), per_group, float_bits(node.eps))
    refs = (xhat, g, b.param(node, 0, c * 4), rstd, mean, sums)
    body.append(Instr("norm_bw", refs, p, FLAGS["no_dx"] * (not passes), layer=node.name))
    return xhat


def _norm_update(b: Builder, node: Node, gamma_fw: Ref, n: int) -> None:
    c = node.shape[0]
    mean, sums = (b.kept[k, node.name]._replace(size=c * 4, step=0) for k in ("sums", "products"))
    gamma_bw = b.gamma(node, "bw", mean, 1, False)
    w, bias = b.accumulator(node, 0, (1, c, 1)), b.accumulator(node, 1, (1, c, 1))
    b.emit([Instr("norm_acc", (w, bias, mean, sums, gamma_fw, gamma_bw), (c, n), layer=node.name)])


def _head_backward(b: Builder, s: int, stage: Stage, gy: Ref) -> None:
    wants = b.needs[stage.source] if stage.source >= 0 else False
    if stage.head is None:
        if wants and stage.source in b.grads:
            n = gy.size // 4
            b.emit([Instr("add", (sliced(b.grads[stage.source], n)._replace(step=0), gy), (n,))])
        elif wants:
            b.grads[stage.source] = gy
        return
    node = b.nodes[stage.head]
    if node.name in b.live:
        _weight_gradient(b, s, stage, node, gy)
    if wants:
        _input_gradient(b, s, stage, node, gy)


def _weight_gradient(b: Builder, s: int, stage: Stage, node: Node, gy: Ref) -> None:
    assert stage.head is not None
    c, n, rows = b.input_size(node)
    cap, f = b.cap(stage.head), node.shape[-1] if rows else node.shape[0]
    x = b.values[stage.source]._replace(size=(cap or c) * n * 4, step=0)
    gamma_fw = b.kept["gamma", stage.head] if cap else b.gamma(node, "fw", x, n, rows)
    gamma_bw = b.gamma(node, "bw", gy, gy.size // 4 // f, rows)
    g = node.geom
    if g is None:
        acc = b.accumulator(node, 0, (1, f * c, 1))
        b.emit(
            [Instr("fc_bw_w", (acc, gy, x, gamma_fw, gamma_bw), (f, c, n, cap), layer=node.name)]
        )
    else:
        depth, filters, strip = c // g.groups * g.kh * g.kw, f // g.groups, b.strip(s, g.ho * g.wo)
        scratch = b.new("patches", (depth + -(-filters // LANES) * LANES) * strip * 4)
        acc = b.accumulator(node, 0, (g.groups, depth, filters))
        p = (b.geom(s), cap, strip)
        b.emit([Instr("conv_bw_w", (acc, gy, x, gamma_fw, gamma_bw, scratch), p, layer=node.name)])
    if node.params[1]:
        acc = b.accumulator(node, 1, (1, f, 1))
        b.emit(
            [
                Instr(
                    "bias_bw",
                    (acc, gy, gamma_bw),
                    (f, gy.size // 4 // f),
                    FLAGS["rows"] * rows,
                    layer=node.name,
                )
            ]
        )


def _input_gradient(b: Builder, s: int, stage: Stage, node: Node, gy: Ref) -> None:
    c, n, _ = b.input_size(node)
    add = stage.source in b.grads
    gx = b.grads[stage.source] if add else b.new(f"g(value {stage.source})", c * n * 4)
    gx = b.grads[stage.source] = gx._replace(size=c * n * 4, step=0)
    flags, w, g = FLAGS["add"] * add, b.param(node, 0), node.geom
    if g is None:
        b.emit([Instr("fc_bw_x", (gx, gy, w), (node.shape[-1], c, n), flags, layer=node.name)])
        return
    depth, strip = g.c_out // g.groups * g.kh * g.kw, b.strip(s, g.h * g.w)
    scratch = b.new("patches", depth * (strip + 4) * 4)
    b.emit(
        [Instr("conv_bw_x", (gx, gy, w, scratch), (b.geom(s), 0, strip), flags, layer=node.name)]
    )
