"""Laying out programs: how large the parts of each stage are, and the instructions as they stand in the file."""

from itertools import product
from math import prod

from pmeta.compiler.fuse import Stage
from pmeta.compiler.ir import Choices, Instr, Model, Ref
from pmeta.compiler.lower import Program, program
from pmeta.compiler.memory_plan import live_bytes
from pmeta.device.format import NONE, RawInstr, RawProgram

STRIPS = (128, 64, 32)


def lay_out(model: Model, live: frozenset[str]) -> Program:
    """The fastest program among those with the least memory: first everything in the smallest parts, then larger parts
    wherever they do not raise the peak."""
    choices = Choices()
    least = _peak_bytes(program(model, live, choices))
    for s, stage in enumerate(model.stages):
        for parts in _pairs(model, stage):
            trial = Choices(
                {**choices.forward, s: parts[0]}, {**choices.backward, s: parts[1]}, choices.strip
            )
            if _peak_bytes(program(model, live, trial)) <= least:
                choices = trial
                break
    for s in range(len(model.stages)):
        for strip in STRIPS:
            trial = Choices(choices.forward, choices.backward, {**choices.strip, s: strip})
            if _peak_bytes(program(model, live, trial)) <= least:
                choices = trial
                break
    return program(model, live, choices)


def _peak_bytes(p: Program) -> int:
    return live_bytes(p.buffers, p.end)


def _pairs(model: Model, stage: Stage) -> list[tuple[int, int]]:
    """Parts forward and backward, the fewest first. Bits are packed part by part, so both sides must agree on whole bytes."""
    options = model.rounds(stage)
    kept = [
        prod(model.nodes[t].shape) for t in stage.tail if model.nodes[t].kind in ("act", "maxpool")
    ]
    whole = [r for r in options if all(n // r % 8 == 0 for n in kept)]
    pairs = {(r, r) for r in options} | set(product(whole, whole))
    return sorted(pairs, key=lambda p: (p[0] + p[1], p))


def assemble(
    model: Model, programs: list[Program], arenas: list[int], state: int, layers: dict[str, int]
) -> tuple[list[RawProgram], list[RawInstr], list[tuple[int, ...]]]:
    numbers: dict[int, int] = {}
    raws: list[RawProgram] = []
    instrs: list[RawInstr] = []
    for p, arena in zip(programs, arenas, strict=True):
        first = len(instrs)
        counts = []
        for units in (p.forward, p.backward, p.update, p.merge):
            before = len(instrs)
            for unit in units:
                if unit.rounds > 1:
                    instrs.append(RawInstr("loop", p=(unit.rounds, len(unit.body))))
                instrs.extend(_raw(i, numbers, layers) for i in unit.body)
            counts.append(len(instrs) - before)
        acc = [r.buffer for r in p.acc.values() if r.buffer]
        bounds = (
            (min(b.offset for b in acc), sum(b.profile(0)[0][2] for b in acc))
            if acc
            else (state, 0)
        )
        output = _address(p.output)
        g_output = _address(p.g_output) if p.g_output else output
        forward, backward, update, merge = counts
        raws.append(
            RawProgram(first, forward, backward, update, output, g_output, *bounds, arena, merge)
        )
    return raws, instrs, [tuple(model.nodes[n].geom or ()) for n in numbers]


def _raw(instr: Instr, numbers: dict[int, int], layers: dict[str, int]) -> RawInstr:
    p = instr.p
    if instr.op.startswith(("conv", "maxpool", "avgpool")):
        p = (numbers.setdefault(p[0], len(numbers)), *p[1:])
    if instr.op == "update":
        p = (layers[instr.layer], *p)
    at = tuple(_address(r) for r in instr.refs)
    return RawInstr(
        instr.op,
        instr.flags,
        at,
        tuple(r.step if a != NONE else 0 for r, a in zip(instr.refs, at, strict=True)),
        p,
    )


def _address(ref: Ref) -> int:
    return ref.at if ref.buffer is None else ref.buffer.offset


def peak(p: Program, arena: int) -> tuple[str, int]:
    """The layer at which the most bytes are alive."""
    change = [0] * (p.end + 2)
    for buffer in p.buffers:
        for first, last, size in buffer.profile(p.end):
            change[first] += size
            change[last + 1] -= size
    alive, total = [], 0
    for delta in change:
        total += delta
        alive.append(total)
    at = alive.index(max(alive))
    unit = p.units[at]
    name = next((i.layer for i in unit.body if i.layer), unit.body[0].op)
    return f"{name} {'forward' if at <= len(p.forward) else 'backward'}", arena


def macs(p: Program, model: Model) -> int:
    total = 0
    for unit in (*p.forward, *p.backward):
        for i in unit.body:
            g = model.nodes[i.p[0]].geom if i.op.startswith("conv") else None
            if g:
                weights = g.c_out * (g.c_in // g.groups) * g.kh * g.kw
                channels = i.p[1] if i.op == "conv_bw_w" and i.p[1] else g.c_in
                total += (
                    weights
                    * (g.h * g.w if i.op == "conv_bw_x" else g.ho * g.wo)
                    * (channels if i.op == "conv_bw_w" else g.c_in)
                    // g.c_in
                )
            elif i.op.startswith("fc"):
                total += i.p[0] * (i.p[3] if len(i.p) > 3 and i.p[3] else i.p[1]) * i.p[2]
            elif i.op in ("score", "score_sum"):
                total += 2 * i.p[0] ** 2
    return total
