"""Parts of a stage: larger than the smallest where they cost nothing, and the same arithmetic."""

from math import prod

import pytest
import torch
from torch import nn

from pmeta.compiler.arena_layout import live_bytes, macs
from pmeta.compiler.fuse import split
from pmeta.compiler.ir import Model, Program, Tiling
from pmeta.compiler.lower.program import program
from pmeta.compiler.read_model import read_graph
from pmeta.compiler.tiling import _enlarge, _rounds, choose, free_layouts, lay_out, placed
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


def test_streaming_is_free_only_without_a_first_norm_and_below_the_updated_layers() -> None:
    def folded(*updated: str) -> tuple[Model, frozenset[str]]:
        blocks = [(nn.Conv2d(c, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)) for c in (3, 8, 8)]
        net = nn.Sequential(*(layer for block in blocks for layer in block), nn.Flatten())
        nodes = read_graph(net.append(nn.Linear(128, 5)).eval(), torch.zeros(1, 3, 32, 32))
        address = {name: 0 for node in nodes for name in node.params}
        return Model(nodes, split(nodes), address, {}, (3, 32, 32)), frozenset(updated)

    m, head = folded("10")
    free = free_layouts(m, head)
    assert any(way.stream for way in free)
    assert len({macs(program(m, head, way), m) for way in free}) == 1
    plain = min(placed(program(m, head, way)) for way in free if not way.stream)
    assert choose(m, head, None)[1] < plain
    assert not any(way.stream for way in free_layouts(*folded("3", "10")))  # the second conv
    assert not any(way.stream for way in free_layouts(model("4conv"), frozenset()))  # norms


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
