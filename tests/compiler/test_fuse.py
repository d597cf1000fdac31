"""Stages: what runs channel by channel behind a layer, and where a new stage must begin."""

import torch
from torch import Tensor, nn

from pmeta.compiler.fuse import split
from pmeta.compiler.read_model import read_graph
from pmeta.network.backbones import FourConv, ResNet12
from tests.helpers.device_models import norm_first


def described(model: nn.Module, *shape: int) -> list[str]:
    nodes = read_graph(model, torch.zeros(1, *shape))
    return [
        " ".join(
            [nodes[s.head].kind if s.head is not None else "copy", *(nodes[t].kind for t in s.tail)]
        )
        for s in split(nodes)
    ]


def test_4conv_is_five_stages() -> None:
    assert described(FourConv(), 3, 84, 84) == ["conv norm maxpool act"] * 4 + ["fc"]


def test_a_residual_block_joins_in_the_stage_that_runs_last() -> None:
    block = ["conv norm act", "conv norm act", "conv norm"]
    assert described(ResNet12(widths=(8,)), 3, 24, 24) == [
        *block,
        "conv norm add maxpool act avgpool",
        "fc",
    ]


def test_a_second_norm_begins_a_stage() -> None:
    assert described(norm_first(), 3, 16, 16) == ["copy norm", "conv act avgpool norm", "fc"]
    twice = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.GroupNorm(4, 8))
    assert described(twice, 3, 8, 8) == ["conv norm", "copy norm"]


class Reads(nn.Module):
    """The output of the first conv is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        return torch.relu(self.b(torch.relu(y)) + y)


def test_a_value_with_two_readers_is_kept_in_full() -> None:
    assert described(Reads(), 3, 4, 4) == ["conv", "copy act", "conv add act"]
