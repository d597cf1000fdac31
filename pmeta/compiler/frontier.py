"""Arena against MACs: the plans among which a memory budget chooses."""

from collections.abc import Sequence
from typing import NamedTuple

from pmeta.compiler.arena_layout import in_the_way, macs
from pmeta.compiler.ir import Model, Tiling
from pmeta.compiler.lower.program import program
from pmeta.compiler.tiling import layouts, placed


class Point(NamedTuple):
    """One plan of an adaptation, in its smallest parts."""

    passes: str
    """What it does to save memory."""
    arena_bytes: int
    macs: int
    """Of one sample in the step that takes the most."""
    tensor: str
    """What is in the way of a smaller arena, and its bytes."""
    tensor_bytes: int


def frontier(
    model: Model, updates: Sequence[frozenset[str]], state_bytes: int
) -> tuple[Point, ...]:
    """The plans of which no other is smaller and as fast, the fastest first."""
    masks = dict.fromkeys([frozenset[str](), *updates])
    ways = {live: list(layouts(model, live)) for live in masks}
    names = dict.fromkeys(way for own in ways.values() for way in own)
    points = [_point(model, ways, way, state_bytes) for way in names]
    points.sort(key=lambda p: (p.macs, p.arena_bytes))
    best = [
        p for i, p in enumerate(points) if all(p.arena_bytes < q.arena_bytes for q in points[:i])
    ]
    return tuple(best)


def _point(
    model: Model, ways: dict[frozenset[str], list[Tiling]], way: Tiling, state_bytes: int
) -> Point:
    """Every step with this layout, or with what it has of it."""
    programs = [program(model, live, _like(way, own)) for live, own in ways.items()]
    sizes = [placed(p) for p in programs]
    largest = programs[sizes.index(max(sizes))]
    most = max(macs(p, model) for p in programs)
    return Point(way.passes, state_bytes + max(sizes), most, *in_the_way(largest))


def _like(way: Tiling, own: Sequence[Tiling]) -> Tiling:
    """Of a step's own layouts the one that is most like another step's."""
    same = [w for w in own if w.stream == way.stream and w.rows == way.rows]
    return next((w for w in same if w.again == way.again), (same or own)[0])
