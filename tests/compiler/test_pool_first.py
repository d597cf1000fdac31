"""A max-pool before its norm: what is kept for the backward half."""

from pmeta.compiler.fuse import Tail
from pmeta.compiler.ir import Program, Tiling
from pmeta.compiler.lower.program import program
from tests.compiler.test_tiling import model


def bytes_of(p: Program, name: str) -> int:
    """Of a buffer by name."""
    return sum(max(size for _, size in b.uses) for b in p.buffers if b.name == name)


def test_a_norm_with_nothing_below_keeps_its_winners_only() -> None:
    m = model("4conv")
    p = program(m, frozenset({"norm2", "fc"}), Tiling())
    assert bytes_of(p, "xhat norm2") == 16 * 7 * 7 * 4  # of 14x14
    assert bytes_of(p, "xhat norm3") == 16 * 7 * 7 * 4  # all of it: its input has a gradient
    assert bytes_of(p, "xhat norm1") == 0


def test_what_comes_first() -> None:
    """An activation between the two waits as well; without a norm nothing is turned around."""
    m = model("4conv")
    norm, pool, act = m.stages[0].tail
    tail = Tail.of(m.nodes, m.stages[0]).pooled_first(m.nodes)
    assert tail is not None
    assert (tail.order, tail.shapes[-1]) == ((norm, pool, act), (16, 14, 14))
    head = m.stages[-1]
    assert Tail.of(m.nodes, head).pooled_first(m.nodes) is None
