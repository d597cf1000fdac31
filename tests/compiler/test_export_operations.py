"""The operations of MobileNetV3, EfficientNet and their like: the engine equals PyTorch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.compiler.ir import Model, Program, Tiling
from pmeta.compiler.lower.program import program
from pmeta.compiler.read_model import read_graph
from pmeta.cost.memory import stored_words
from pmeta.device.model_file import Geom
from pmeta.method.methods import METHODS
from pmeta.network.take_in import take_in
from tests.helpers.device_golden import check_model
from tests.helpers.device_models import Squeeze

IMAGE = (3, 7, 7)
Wiring = Callable[[Any, Tensor], Tensor]


class Wired(nn.Module):
    """Two convs and a head, and what stands between them."""

    def __init__(self, between: Wiring, width: int = 8):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(width, 6, 1)
        self.c, self.d, self.fc = nn.Linear(8, 8), nn.Conv2d(3, 8, 1), nn.Linear(6, 5)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.relu(self.b(self.between(self, x))).mean((2, 3)))


def excited(m: Any, x: Tensor) -> Tensor:
    """Squeeze-and-excitation with a linear layer and expand_as, as in the first public code."""
    h = m.a(x) + m.d(x)
    s = torch.sigmoid(m.c(h.mean((2, 3)))).view(-1, 8, 1, 1)
    return h * s.expand_as(h)


def with_use(own: Callable[[Tensor], Tensor]) -> Wiring:
    """Both convs and the linear layer in use, then `own`."""

    def between(m: Any, x: Tensor) -> Tensor:
        h = m.a(x) + m.d(x)
        return own(h * F.hardsigmoid(m.c(h.mean((2, 3)))).view(-1, 8, 1, 1))

    return between


BETWEEN: dict[str, tuple[Wiring, int]] = {
    "sigmoid": (with_use(torch.sigmoid), 8),
    "silu": (with_use(F.silu), 8),
    "hardswish": (with_use(F.hardswish), 8),
    "hardsigmoid": (with_use(F.hardsigmoid), 8),
    "relu6": (with_use(F.relu6), 8),
    "x sigmoid(x)": (with_use(lambda h: h * torch.sigmoid(h)), 8),
    "x x": (with_use(lambda h: h * h), 8),
    "excitation first": (excited, 8),
    "max-pool": (with_use(lambda h: F.max_pool2d(F.silu(h), 3, 2, 1, ceil_mode=True)), 8),
    "average": (with_use(lambda h: F.avg_pool2d(F.silu(h), 2, ceil_mode=True)), 8),
    "average, edges": (with_use(lambda h: F.avg_pool2d(h, 3, 2, 1, True, False)), 8),
    "cat": (with_use(lambda h: torch.cat([F.silu(h), h, F.relu(h)], 1)), 24),
    "cat, then act": (with_use(lambda h: F.relu(torch.cat([h, F.hardswish(h)], 1))), 16),
    "cat with the image": (lambda m, x: torch.cat([excited(m, x), x], 1), 11),
}


@pytest.mark.parametrize("method", ["maml", "pmeta"])
@pytest.mark.parametrize("name", BETWEEN)
def test_the_engine_equals_pytorch(name: str, method: str) -> None:
    between, width = BETWEEN[name]
    check_model(Wired(between, width), IMAGE, METHODS[method])


@pytest.mark.parametrize("name", ["x x", "max-pool", "cat"])
def test_the_smallest_parts_are_equal_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no part can grow; a stage may then have rounds with nothing to do."""

    def tight(model: Model, live: frozenset[str], tiling: Tiling, limit: int) -> Program:
        return program(model, live, tiling)

    monkeypatch.setattr("pmeta.compiler.export.lay_out", tight)
    between, width = BETWEEN[name]
    check_model(Wired(between, width), IMAGE, METHODS["pmeta"])


@pytest.mark.parametrize("live", [["expand", "fc"], ["excite", "project"], ["ln"], ["reduce"]])
@pytest.mark.parametrize("kind", [(nn.SiLU, nn.Sigmoid), (nn.Hardswish, nn.Hardsigmoid)])
def test_some_layers_of_a_block(kind: tuple[type, type], live: list[str]) -> None:
    check_model(Squeeze(*kind), (3, 12, 12), METHODS["pmeta"], live=live)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("method", ["maml", "pmeta"])
def test_layer_norm_of_rows(method: str, batch: int) -> None:
    """Seven rows of six numbers, each normalised by itself."""
    model = nn.Sequential(
        nn.Linear(6, 9), nn.LayerNorm(9), nn.SiLU(), nn.Flatten(), nn.Linear(63, 5)
    )
    check_model(model, (7, 6), METHODS[method], batch)


def test_numbers_of_the_operations() -> None:
    nodes = read_graph(Squeeze(), torch.zeros(1, 3, 16, 16))
    kinds = [n.kind for n in nodes]
    assert kinds.count("curve") == 4
    assert [n.factors for n in nodes if n.kind == "mul"] == [16]
    (pool,) = [n for n in nodes if n.kind == "maxpool"]
    assert pool.geom == Geom(8, 8, 8, 8, 4, 4, 3, 3, 2, 2, 0, 0, 1, 1, 1)
    (norm,) = [n for n in nodes if n.kind == "layer_norm"]
    assert (norm.groups, norm.name) == (1, "ln")


def test_what_is_stored_is_counted() -> None:
    """SiLU and sigmoid keep every number, hardsigmoid a bit; a product keeps its two factors."""
    net = take_in(Squeeze(nn.SiLU, nn.Hardsigmoid), torch.zeros(1, 3, 16, 16))
    by_kind: dict[str, list[float]] = {}
    for op, words in zip(net.ops, stored_words(net.ops, {"expand"}, 1.0, "exact"), strict=True):
        by_kind.setdefault(op.kind, []).append(words)
    assert by_kind["other"] == [0.0, 1024.0, 1024.0]  # below the first updated layer: nothing
    assert by_kind["relu"] == [1.0, 1.0]  # 4 and 16 bits
    assert by_kind["mul"] == [1024.0 + 16.0]
    assert sum(stored_words(net.ops, {"project"}, 1.0, "exact")[: len(net.ops) // 2]) == 0.0
