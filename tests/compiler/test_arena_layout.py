"""Plans of the arena: nothing that lives at the same time overlaps, and little is wasted."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from pmeta.compiler.arena_layout import _lowest, live_bytes, place, profile
from pmeta.compiler.ir import Buffer

uses = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 1000)), min_size=1, max_size=4)


@settings(max_examples=150)
@given(st.lists(uses, min_size=1, max_size=15), st.integers(0, 64).map(lambda n: 16 * n))
def test_buffers_never_overlap_in_space_and_time(
    lists: list[list[tuple[int, int]]], base: int
) -> None:
    buffers = [Buffer(str(i), persistent=i % 7 == 3, uses=list(u)) for i, u in enumerate(lists)]
    top = place(buffers, 20, base)
    assert top - base >= live_bytes(buffers, 20)
    for t in range(21):
        taken = sorted(
            (b.offset, b.offset + s)
            for b in buffers
            for first, last, s in profile(b, 20)
            if first <= t <= last
        )
        assert all(end <= start for (_, end), (start, _) in pairwise(taken))
        assert all(base <= start and end <= top for start, end in taken)
    for b in buffers:  # every use is covered
        for t, size in b.uses:
            assert any(first <= t <= last and size <= s for first, last, s in profile(b, 20))


def test_what_shrinks_makes_room() -> None:
    """An input of 1000 bytes of which 304 are kept: another buffer moves in behind it."""
    x, y = (
        Buffer("x", uses=[(0, 1000), (1, 1000), (5, 304)]),
        Buffer("y", uses=[(2, 600), (3, 600)]),
    )
    assert profile(x, 5) == [(0, 1, 1008), (2, 5, 304)]
    assert place([x, y], 5, 0) == 1008


def test_persistent_buffers_lie_first_and_live_always() -> None:
    a, b = Buffer("a", persistent=True, uses=[(3, 100)]), Buffer("b", uses=[(0, 64)])
    assert place([b, a], 5, 32) == 32 + 100 + 64
    assert (a.offset, b.offset) == (32, 132)


def test_the_lowest_offset_between_what_is_taken() -> None:
    assert _lowest([]) == 0
    assert _lowest([(-4, 8)]) == 8  # four bytes before, or right behind
    assert _lowest([(-4, 8), (4, 16)]) == 16
    assert _lowest([(-4, 8), (8, 16)]) == 8  # it just fits between the two
    assert _lowest([(-8, 2), (-4, 8), (1, 4)]) == 8
