"""Parts of a stage: larger than the smallest where they cost nothing, and the same arithmetic."""

from math import prod

import pytest
import torch

from pmeta.compiler.arena_layout import live_bytes
from pmeta.compiler.fuse import split
from pmeta.compiler.ir import Model, Program, Tiling
from pmeta.compiler.lower.program import program
from pmeta.compiler.read_model import read_graph
from pmeta.compiler.tiling import _enlarge, _rounds, lay_out, placed
from tests.helpers.device_models import SHAPES, network


def model(kind: str) -> Model:
    """A network whose weights all lie at address 0."""
    nodes = read_graph(
        network(kind, torch.Generator().manual_seed(0)).model.eval(), torch.zeros(1, *SHAPES[kind])
    )
    address = {name: 0 for node in nodes for name in node.params}
    return Model(nodes, split(nodes), address, {}, SHAPES[kind])


def peak(p: Program) -> int:
    return live_bytes(p.buffers, p.end)


def rounds(p: Program) -> int:
    return sum(unit.rounds for unit in (*p.forward, *p.backward))


@pytest.mark.parametrize("kind", ["4conv", "resnet12"])
def test_the_least_memory_and_then_the_fewest_rounds(kind: str) -> None:
    m = model(kind)
    live = frozenset(node.name for node in m.nodes if node.name)
    smallest = program(m, live, Tiling())
    chosen = lay_out(m, live, Tiling(), placed(smallest))
    whole = Tiling()
    for s in range(len(m.stages)):
        whole = whole.with_rounds(s, 1, 1)
    assert placed(chosen) <= placed(smallest) < placed(program(m, live, whole))
    assert rounds(chosen) < rounds(smallest)


def test_both_halves_agree_on_whole_bytes() -> None:
    """Bits of a mask are packed round by round: 8 a byte, or the same rounds in both halves."""
    m = model("4conv")
    for stage in m.stages:
        sizes = [prod(m.nodes[t].shape) for t in stage.tail if m.nodes[t].kind == "act"]
        for forward, backward in _rounds(m, stage):
            whole = all(n // r % 8 == 0 for n in sizes for r in (forward, backward))
            assert forward == backward or whole


def test_stages_are_enlarged_by_halves() -> None:
    """Where one of eight stages cannot grow, few programs are tried, and all others grow."""
    tried = []

    def fits(tiling: Tiling) -> bool:
        tried.append(tiling)
        return tiling.strip.get(5, 0) <= 32

    found = _enlarge(Tiling(), [(128, 64, 32)] * 8, Tiling.with_strip, fits)
    assert dict(found.strip) == {**dict.fromkeys(range(8), 128), 5: 32}
    assert len(tried) < 12
