"""How large the parts of each stage are: as large as the smallest arena allows."""

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import TypeVar

from pmeta.compiler.fuse import Stage
from pmeta.compiler.ir import Model, Program, Tiling
from pmeta.compiler.lower.program import program
from pmeta.compiler.memory_plan import live_bytes

STRIPS = (128, 64, 32)


def lay_out(model: Model, live: frozenset[str]) -> Program:
    """The fastest program among those with the least memory.

    First everything in the smallest parts, then larger parts wherever they do not raise the
    peak."""

    def peak(tiling: Tiling) -> int:
        p = program(model, live, tiling)
        return live_bytes(p.buffers, p.end)

    tiling = Tiling()
    least = peak(tiling)

    def fits(tiling: Tiling) -> bool:
        return peak(tiling) <= least

    rounds = [_rounds(model, stage) for stage in model.stages]
    tiling = _enlarge(tiling, rounds, lambda t, s, pair: t.with_rounds(s, *pair), fits)
    convs = [_is_conv(model, stage) for stage in model.stages]
    strips = [STRIPS if conv else () for conv in convs]
    return program(model, live, _enlarge(tiling, strips, Tiling.with_strip, fits))


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
