"""How large the parts of each stage are: as large as the smallest arena allows."""

from collections.abc import Iterable
from itertools import product
from math import prod

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

    def first_small(larger: Iterable[Tiling], otherwise: Tiling) -> Tiling:
        return next((tiling for tiling in larger if peak(tiling) <= least), otherwise)

    tiling = Tiling()
    least = peak(tiling)
    for s, stage in enumerate(model.stages):
        rounds = _rounds(model, stage)
        tiling = first_small((tiling.with_rounds(s, fw, bw) for fw, bw in rounds), tiling)
    for s in range(len(model.stages)):
        tiling = first_small((tiling.with_strip(s, n) for n in STRIPS), tiling)
    return program(model, live, tiling)


def _rounds(model: Model, stage: Stage) -> list[tuple[int, int]]:
    """Rounds forward and backward, the fewest first.

    Bits are packed round by round, so both sides must agree on whole bytes."""
    options = model.rounds(stage)
    packed = [t for t in stage.tail if model.nodes[t].kind in ("act", "maxpool")]
    sizes = [prod(model.nodes[t].shape) for t in packed]
    whole = [r for r in options if all(n // r % 8 == 0 for n in sizes)]
    pairs = {(r, r) for r in options} | set(product(whole, whole))
    return sorted(pairs, key=lambda p: (p[0] + p[1], p))
