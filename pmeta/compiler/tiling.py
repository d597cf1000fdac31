"""How a program is laid out: which passes save memory, and how large the parts of each stage are.

Passes that cost no time are always on. The others are tried in the order of their time.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import TypeVar

from pmeta.compiler.arena_layout import live_bytes, place
from pmeta.compiler.fuse import Stage, Tail
from pmeta.compiler.ir import Model, Program, Tiling
from pmeta.compiler.lower.emitter import Emitter
from pmeta.compiler.lower.program import program
from pmeta.compiler.lower.rows import Block, block_of
from pmeta.compiler.lower.stream import blocks

STRIPS = (128, 64, 32)
ROWS = (4, 2, 1)
"""Of the output in a strip; the fastest first."""
STREAMS = ((4, 1), (4, 2), (2, 1), (2, 2), (2, 4), (1, 1), (1, 2), (1, 4))
"""Rows of output a round, and parts of the first conv's channels; the fastest first."""


def free_layouts(model: Model, live: frozenset[str]) -> list[Tiling]:
    """Those that take no more computation than there must be, the fastest first.

    With no norm behind the first conv, streaming runs both convs once."""
    e = Emitter(model, live, Tiling())
    by_rows = _stages_in_rows(e)
    plain = [*(Tiling(by_rows=by_rows, rows=rows) for rows in ROWS if by_rows), Tiling()]
    pair = blocks(e)
    if pair and pair[0].norm is None and not e.needs[pair[1].conv]:  # both convs run once
        return [*plain, *_streamed(pair, by_rows, frozenset())]
    return plain


def layouts(model: Model, live: frozenset[str]) -> Iterator[Tiling]:
    """Everything in the smallest parts; then with passes that take more time, the fastest first."""
    yield from free_layouts(model, live)
    e = Emitter(model, live, Tiling())
    by_rows, again = _stages_in_rows(e), _stages_that_run_again(e)
    for n in range(1, len(again) + 1):
        stages = frozenset(again[:n])
        yield Tiling(again=stages, by_rows=by_rows - stages)
    pair = blocks(e)
    if not pair:
        return
    others = frozenset(s for s in again if s != pair[1].s)  # a streamed block is kept, or runs once
    for stages in dict.fromkeys([frozenset[int](), others]):
        yield from _streamed(pair, by_rows, stages)


def _streamed(
    pair: tuple[Block, Block], by_rows: frozenset[int], again: frozenset[int]
) -> Iterator[Tiling]:
    """Streaming in all its ways, beside stages that run again."""
    rest = by_rows - again - {block.s for block in pair}
    ways = (way for way in STREAMS if pair[0].geom.c_out % way[1] == 0)
    return (Tiling(stream=way, again=again, by_rows=rest) for way in ways)


def _stages_in_rows(e: Emitter) -> frozenset[int]:
    """The stages that take less memory in strips of rows than in parts of their channels."""
    in_rows = []
    for s, stage in enumerate(e.model.stages):
        block = block_of(e, s)
        if block and not e.needs[block.conv]:
            g, rounds = block.geom, e.model.rounds(stage)[-1]
            strip = g.c_out * block.window.sh * g.wo
            in_rows += [s] if strip < g.c_out // rounds * g.ho * g.wo else []
    return frozenset(in_rows)


def _stages_that_run_again(e: Emitter) -> list[int]:
    """The stages whose conv can run again in the backward half, the largest output first."""
    stages, repeatable = e.model.stages, []
    for s, stage in enumerate(stages):
        head = e.nodes[stage.head].geom if stage.head is not None else None
        alone = all(stage.source not in other.reads() for other in stages if other is not stage)
        pooled = Tail.of(e.nodes, stage).pooled_first(e.nodes)
        able = head and head.groups == 1 and pooled and (alone or stage.source < 0)
        if able and e.needs[e.nodes[stage.tail[0]].inputs[0]]:
            repeatable.append(s)
    return sorted(repeatable, key=lambda s: -prod(stages[s].head_shape))


def placed(p: Program) -> int:
    """Bytes of the arena above the weights; gives every buffer its offset from 0 on."""
    return place(p.buffers, p.end, 0)


def choose(model: Model, live: frozenset[str], limit: int | None) -> tuple[Tiling, int]:
    """The fastest layout in at most `limit` bytes, and its bytes; the smallest if none is.

    None: the smallest without passes that take time."""
    smallest: tuple[Tiling, int] | None = None
    for tiling in free_layouts(model, live) if limit is None else layouts(model, live):
        size = placed(program(model, live, tiling))
        if limit is not None and size <= limit:
            return tiling, size
        if smallest is None or size < smallest[1]:
            smallest = tiling, size
    assert smallest is not None
    return smallest


def lay_out(model: Model, live: frozenset[str], tiling: Tiling, limit: int) -> Program:
    """The program of a layout with larger parts wherever `limit` bytes allow it."""
    tight = program(model, live, tiling)
    most = max(limit, placed(tight))
    for exact in (False, True):  # what is alive is quickly known, but may not fit together
        wide = program(model, live, widen(model, live, tiling, most, exact))
        if placed(wide) <= most:
            return wide
    return tight


def widen(
    model: Model, live: frozenset[str], tiling: Tiling, limit: int, exact: bool = False
) -> Tiling:
    """Fewer rounds, then wider strips of pixels.

    `limit` is for the bytes that are alive at one time; if `exact`, for the arena as well."""

    def fits(tiling: Tiling) -> bool:
        p = program(model, live, tiling)
        return live_bytes(p.buffers, p.end) <= limit and (not exact or placed(p) <= limit)

    rounds = [_rounds(model, stage) for stage in model.stages]
    tiling = _enlarge(tiling, rounds, lambda t, s, pair: t.with_rounds(s, *pair), fits)
    convs = [_is_conv(model, stage) for stage in model.stages]
    strips = [STRIPS if conv else () for conv in convs]
    return _enlarge(tiling, strips, Tiling.with_strip, fits)


Option = TypeVar("Option")


def _enlarge(
    tiling: Tiling,
    options: Sequence[Sequence[Option]],
    change: Callable[[Tiling, int, Option], Tiling],
    fits: Callable[[Tiling], bool],
) -> Tiling:
    """Give every stage the first of its options that fits.

    The arena is full at a few stages only: many at a time are tried with their first option, and
    half as many where that is too much."""

    def grow(tiling: Tiling, stages: Sequence[int]) -> Tiling:
        if len(stages) == 1:
            (s,) = stages
            tries = (change(tiling, s, option) for option in options[s])
            return next((larger for larger in tries if fits(larger)), tiling)
        larger = tiling
        for s in stages:
            larger = change(larger, s, options[s][0])
        if fits(larger):
            return larger
        half = len(stages) // 2
        return grow(grow(tiling, stages[:half]), stages[half:])

    stages = [s for s, own in enumerate(options) if own]
    return grow(tiling, stages) if stages else tiling


def _is_conv(model: Model, stage: Stage) -> bool:
    return stage.head is not None and model.nodes[stage.head].kind == "conv"


def _rounds(model: Model, stage: Stage) -> list[tuple[int, int]]:
    """Rounds forward and backward, the fewest first.

    Bits are packed round by round, so both sides must agree on whole bytes."""
    options = model.rounds(stage)
    packed = [t for t in stage.tail if model.nodes[t].kind in ("act", "maxpool")]
    sizes = [prod(model.nodes[t].shape) for t in packed]
    whole = [r for r in options if all(n // r % 8 == 0 for n in sizes)]
    pairs = {(r, r) for r in options} | set(product(whole, whole))
    return sorted(pairs, key=lambda p: (p[0] + p[1], p))
