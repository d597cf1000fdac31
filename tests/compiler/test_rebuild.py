"""A model rebuilt from its operations reads as the first one did, and gives the same numbers."""

from dataclasses import asdict

import pytest
import torch
from torch import nn

from pmeta.compiler.read_model import read_graph
from pmeta.compiler.rebuild import Rebuilt

ACTS = (
    nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.2), nn.Hardtanh(0, 6), nn.Hardsigmoid(), nn.Sigmoid(),
    nn.SiLU(), nn.Hardswish(),
)  # fmt: skip
POOLS = (
    nn.MaxPool2d(2), nn.MaxPool2d(3, 1, padding=1), nn.MaxPool2d(2, stride=3, dilation=2),
    nn.MaxPool2d(3, 2, ceil_mode=True), nn.AvgPool2d(2), nn.AvgPool2d((3, 2), 2, ceil_mode=True),
    nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.AdaptiveAvgPool2d((5, 1)),
)  # fmt: skip
CONVS = (
    nn.Conv2d(4, 6, 3), nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 2), 2, bias=False),
    nn.Conv2d(4, 4, 5, padding="same", groups=4), nn.GroupNorm(2, 4, 1e-3),
    nn.GroupNorm(2, 4, affine=False), nn.Flatten(2),
)  # fmt: skip
ROWS = (
    nn.Conv1d(4, 6, 3, 2, 1, 2), nn.MaxPool1d(3, 2, ceil_mode=True), nn.AvgPool1d(2),
    nn.AdaptiveAvgPool1d(5), nn.Linear(20, 3, bias=False), nn.LayerNorm(20),
    nn.LayerNorm(20, bias=False), nn.LayerNorm(20, elementwise_affine=False), nn.Flatten(),
)  # fmt: skip
CASES: list[tuple[nn.Module, tuple[int, ...]]] = [
    *((layer, (4, 10, 9)) for layer in (*ACTS, *POOLS, *CONVS)),
    *((layer, (4, 20)) for layer in ROWS),
]


@pytest.mark.parametrize(("layer", "shape"), CASES, ids=str)
def test_a_rebuilt_model_is_the_model(layer: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    first = (nn.Conv2d if len(shape) == 3 else nn.Conv1d)(4, 4, 1)
    model, x = nn.Sequential(nn.Sequential(first), layer), torch.randn(2, *shape)
    nodes = read_graph(model, x)
    rebuilt = Rebuilt(nodes, shape)
    rebuilt.load_state_dict(model.state_dict())
    assert torch.equal(rebuilt(x), model(x))
    again = read_graph(rebuilt, x)
    assert [asdict(node) for node in again] == [asdict(node) for node in nodes]
