"""The layout of the arena: where every tensor lies, so that no two overlap in space and time.

Also what a program costs: the layer at which the arena is fullest, and MACs.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from pmeta.compiler.ir import Buffer, Instr, Model, Program


class Span(NamedTuple):
    """A time during which so many bytes of a buffer are needed."""

    first: int
    last: int
    size: int


def profile(buffer: Buffer, end: int) -> list[Span]:
    """The times of a buffer and what is needed of it, one after the other, the largest first."""
    if buffer.persistent:
        return [Span(0, end, max(size for _, size in buffer.uses))]
    start, most, spans = min(t for t, _ in buffer.uses), 0, []
    falling = []  # from the end on: where more is needed than later
    for t, size in sorted(buffer.uses, reverse=True):
        if size > most:
            falling.append((t, size))
            most = size
    for t, size in reversed(falling):
        spans.append(Span(start, t, round_up(size)))
        start = t + 1
    return spans


def round_up(size: int) -> int:
    return -(-size // 16) * 16


def bytes_over_time(buffers: Sequence[Buffer], end: int) -> list[int]:
    """The bytes that are alive at each time."""
    change = [0] * (end + 2)
    for buffer in buffers:
        for first, last, size in profile(buffer, end):
            change[first] += size
            change[last + 1] -= size
    return list(accumulate(change))


def live_bytes(buffers: Sequence[Buffer], end: int) -> int:
    """The most bytes that are alive at one time: no plan can do with less."""
    return max(bytes_over_time(buffers, end))


class Block(NamedTuple):
    buffer: Buffer
    spans: list[Span]

    @property
    def size(self) -> int:
        return self.spans[0].size


def place(buffers: Sequence[Buffer], end: int, base: int) -> int:
    """Give every buffer an offset from `base` on and return the end of the arena.

    Persistent ones come first; for the others it takes the best of a few orders, lowest fit."""
    blocks = [Block(b, profile(b, end)) for b in buffers]
    for block in blocks:
        if block.buffer.persistent:
            block.buffer.offset = base
            base += block.size
    others = [b for b in blocks if not b.buffer.persistent]
    floor = live_bytes([b.buffer for b in others], end)
    best: tuple[int, list[tuple[Block, int]]] | None = None
    for key in (_by_size, _by_area, _by_start, _by_end):
        placed = _fit(sorted(others, key=key))
        top = max((offset + block.size for block, offset in placed), default=0)
        if best is None or top < best[0]:
            best = top, placed
        if best[0] <= floor:
            break
    assert best is not None
    for block, offset in best[1]:
        block.buffer.offset = base + offset
    return base + best[0]


def _by_size(b: Block) -> tuple[int, ...]:
    return (-b.size, b.spans[0].first)


def _by_area(b: Block) -> tuple[int, ...]:
    return (-sum((last - first + 1) * size for first, last, size in b.spans),)


def _by_start(b: Block) -> tuple[int, ...]:
    return (b.spans[0].first, -b.size)


def _by_end(b: Block) -> tuple[int, ...]:
    return (-b.spans[-1].last, -b.size)


def _fit(order: list[Block]) -> list[tuple[Block, int]]:
    placed: list[tuple[Block, int]] = []
    for block in order:
        taken = [
            (at - mine, at + theirs)
            for other, at in placed
            for mine, theirs in _meetings(block, other)
        ]
        placed.append((block, _lowest(sorted(taken))))
    return placed


def _lowest(taken: list[tuple[int, int]]) -> int:
    """The lowest offset that is strictly inside none of these ranges, which rise in their start."""
    offset = 0
    for start, end in taken:
        if offset <= start:
            break
        offset = max(offset, end)
    return offset


def _meetings(a: Block, b: Block) -> list[tuple[int, int]]:
    """The sizes that two blocks have at times when both live."""
    return [
        (s.size, t.size)
        for s in a.spans
        for t in b.spans
        if s.first <= t.last and t.first <= s.last
    ]


def fullest_at(p: Program) -> str:
    """The layer at which the most bytes are alive."""
    alive = bytes_over_time(p.buffers, p.end)
    at = alive.index(max(alive))
    owned = [i.owner for i in p.times[at:] if i.owner]
    forward = sum(len(unit.body) for unit in p.forward)
    return f"{owned[0] if owned else p.times[at].op} {'forward' if at <= forward else 'backward'}"


def in_the_way(p: Program) -> tuple[str, int]:
    """The largest tensor of those that are alive when the arena is fullest, and its bytes."""
    alive = bytes_over_time(p.buffers, p.end)
    at = alive.index(max(alive))
    sizes = {
        (b.name, span.size)
        for b in p.buffers
        for span in profile(b, p.end)
        if span.first <= at <= span.last
    }
    return max(sizes, key=lambda named: named[1])


def macs(p: Program, model: Model) -> int:
    """Multiplications and additions for one sample."""
    units = (*p.forward, *p.backward)
    return sum(_macs(i, unit.rounds, model) for unit in units for i in unit.body)


def _macs(i: Instr, rounds: int, model: Model) -> int:
    n = i.parameters
    if i.op.startswith("conv"):
        g = model.nodes[n["geom"]].geom
        assert g is not None
        pixels = g.h * g.w if i.op == "conv_bw_x" else g.ho * g.wo
        channels = (n["channels"] or g.c_out) * rounds
        if n.get("rows"):
            pixels = min(n["rows"] * rounds, g.ho - n["first"]) * g.wo
            channels = n["channels"] or g.c_out
        return channels * g.depth * pixels * (n.get("stored") or g.c_in) // g.c_in
    if i.op.startswith("fc"):
        return n["outputs"] * (n.get("stored") or n["inputs"]) * n["rows"]
    return 2 * n["channels"] ** 2 if i.op in ("score", "score_sum") else 0
