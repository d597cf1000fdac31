"""Where every tensor lies: lifetimes from the program, offsets that never overlap in space and time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(eq=False)
class Buffer:
    """A tensor of the arena. What is needed of it may shrink (a compacted input), never grow."""

    name: str
    persistent: bool = False
    """Lives through the whole program and from sample to sample."""
    uses: list[tuple[int, int]] = field(default_factory=list)
    """(time, bytes from its start that are touched)"""
    offset: int = 0

    def profile(self, end: int) -> list[tuple[int, int, int]]:
        """(first time, last time, bytes) while that much is needed, the largest first."""
        if self.persistent:
            return [(0, end, max(size for _, size in self.uses))]
        steps: list[tuple[int, int, int]] = []
        start, last = min(t for t, _ in self.uses), max(t for t, _ in self.uses)
        later = 0
        for t, size in sorted(self.uses, reverse=True):
            if size > later:
                steps.append((start, t, size))
                later = size
        cut = [(start, last, steps[0][2])] if len(steps) == 1 else _falling(steps)
        return [(a, b, round_up(size)) for a, b, size in cut]


def _falling(steps: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """From "at least `size` until t" to intervals that do not overlap."""
    out, start = [], steps[0][0]
    for _, t, size in reversed(steps):
        out.append((start, t, size))
        start = t + 1
    return out


def round_up(size: int, to: int = 16) -> int:
    return -(-size // to) * to


class Block(NamedTuple):
    buffer: Buffer
    profile: list[tuple[int, int, int]]


def live_bytes(buffers: Sequence[Buffer], end: int) -> int:
    """The most bytes that are alive at one time: no plan can do with less."""
    change = [0] * (end + 2)
    for buffer in buffers:
        for first, last, size in buffer.profile(end):
            change[first] += size
            change[last + 1] -= size
    total = peak = 0
    for delta in change:
        total += delta
        peak = max(peak, total)
    return peak


def place(buffers: Sequence[Buffer], end: int, base: int) -> int:
    """Give every buffer an offset from `base` on and return the end of the arena: the best of a few orders, lowest fit."""
    blocks = [Block(b, b.profile(end)) for b in buffers]
    persistent = [b for b in blocks if b.buffer.persistent]
    others = [b for b in blocks if not b.buffer.persistent]
    for block in persistent:
        block.buffer.offset = base
        base += block.profile[0][2]
    floor = live_bytes([b.buffer for b in others], end)
    best, found = None, {}
    for key in (_by_size, _by_area, _by_start, _by_end):
        offsets = _fit(sorted(others, key=key))
        top = max(
            (o + b.profile[0][2] for b, o in zip(sorted(others, key=key), offsets, strict=True)),
            default=0,
        )
        if best is None or top < best:
            best, found = (
                top,
                dict(zip([id(b.buffer) for b in sorted(others, key=key)], offsets, strict=True)),
            )
        if best <= floor:
            break
    for block in others:
        block.buffer.offset = base + found[id(block.buffer)]
    return base + (best or 0)


def _by_size(b: Block) -> tuple[int, ...]:
    return (-b.profile[0][2], b.profile[0][0])


def _by_area(b: Block) -> tuple[int, ...]:
    return (-sum((last - first + 1) * size for first, last, size in b.profile),)


def _by_start(b: Block) -> tuple[int, ...]:
    return (b.profile[0][0], -b.profile[0][2])


def _by_end(b: Block) -> tuple[int, ...]:
    return (-b.profile[-1][1], -b.profile[0][2])


def _fit(order: list[Block]) -> list[int]:
    placed: list[tuple[Block, int]] = []
    for block in order:
        near = [(other, at, _meetings(block, other)) for other, at in placed]
        near = [n for n in near if n[2]]
        tries = sorted({0} | {at + theirs for _, at, pairs in near for _, theirs in pairs})
        offset = next(o for o in tries if all(_apart(o, at, pairs) for _, at, pairs in near))
        placed.append((block, offset))
    return [at for _, at in placed]


def _meetings(a: Block, b: Block) -> list[tuple[int, int]]:
    """The sizes that two blocks have at times when both live."""
    return [(s, t) for f1, l1, s in a.profile for f2, l2, t in b.profile if f1 <= l2 and f2 <= l1]


def _apart(mine: int, theirs: int, pairs: list[tuple[int, int]]) -> bool:
    return all(mine + s <= theirs or theirs + t <= mine for s, t in pairs)
