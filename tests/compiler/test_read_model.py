"""Reading any model: the numbers of its operations, and a no to what the device cannot run."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.compiler.read_model import read_graph
from pmeta.device.model_file import Geom
from pmeta.network.backbones import FourConv, MLPPolicy, ResNet12
from tests.helpers.device_models import Depthwise, Signal


def kinds(model: nn.Module, *shape: int) -> list[str]:
    return [node.kind for node in read_graph(model, torch.zeros(1, *shape))]


def test_backbones() -> None:
    block = ["conv", "norm", "maxpool", "act"]
    assert kinds(FourConv(), 3, 84, 84) == block * 4 + ["view", "fc"]
    residual = ["conv", "norm", "act"] * 2 + [
        "conv",
        "norm",
        "conv",
        "norm",
        "add",
        "maxpool",
        "act",
    ]
    assert kinds(ResNet12(widths=(8, 16)), 3, 24, 24) == residual * 2 + ["avgpool", "fc"]
    assert kinds(MLPPolicy(6, 2), 7, 6) == ["fc", "act", "fc", "act", "fc"]


def test_numbers_of_a_conv() -> None:
    node = read_graph(
        nn.Conv2d(4, 6, (3, 5), (2, 1), (1, 2), (1, 2), groups=2), torch.zeros(1, 4, 9, 20)
    )[0]
    assert node.geom == Geom(4, 9, 20, 6, 5, 16, 3, 5, 2, 1, 1, 2, 1, 2, 2)
    assert (node.weight, node.bias) == ("weight", "bias")
    same = read_graph(
        nn.Conv1d(4, 6, 5, padding="same", dilation=2, bias=False), torch.zeros(1, 4, 20)
    )[0]
    assert same.geom == Geom(4, 1, 20, 6, 1, 20, 1, 5, 1, 1, 0, 4, 1, 2, 1)
    assert (same.weight, same.bias) == ("weight", "")


def test_numbers_of_pooling_and_activations() -> None:
    nodes = read_graph(Signal(), torch.zeros(1, 4, 33))
    assert nodes[3].geom == Geom(8, 1, 33, 8, 1, 16, 1, 2, 1, 2, 0, 0, 1, 1, 1)
    nodes = read_graph(Depthwise(), torch.zeros(1, 3, 32, 32))
    assert [(n.act, n.slope) for n in nodes if n.kind == "act"] == [
        ("relu6", 0),
        ("leaky", 0.2),
        ("relu", 0),
        ("relu", 0),
    ]
    pooled = read_graph(
        nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Dropout(), nn.Hardtanh(0, 6)).eval(),
        torch.zeros(1, 3, 8, 6),
    )
    assert [n.kind for n in pooled] == ["avgpool", "act"]
    assert pooled[0].geom == Geom(3, 8, 6, 3, 2, 2, 4, 3, 4, 3, 0, 0, 1, 1, 1)


class Calls(nn.Module):
    """A model of one call."""

    def __init__(self, call) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (torch.tanh, "the model calls tanh"),
        (lambda x: x * 2, "multiplies the outputs of two operations, got 2"),
        (lambda x: F.max_pool2d(x, 17), "holds at most 256 pixels, got 17x17"),
        (lambda x: F.avg_pool2d(x, 2, divisor_override=3), "divisor_override"),
        (lambda x: x * x[:, :1], "slice"),
        (lambda x: F.relu(x) * x.mean((1, 2), True), "the mean over all of space"),
        (lambda x: F.relu(x) + x.mean((2, 3), True).expand(-1, -1, 20, 20), "leave expand out"),
        (lambda x: torch.cat([x, F.relu(x)], 2), "concatenates channels, axis 1, got axis 2"),
        (lambda x: F.layer_norm(x, (20, 20)), "over the last axis"),
        (lambda x: F.adaptive_avg_pool2d(x, 7), "sides that divide the input's"),
        (lambda x: F.hardtanh(x, -1, 1), r"from 0 to 6 \(ReLU6\) alone, got -1"),
        (lambda x: x.mean(1), "the mean over all of space"),
        (lambda x: x + 1.0, "adds the outputs of two operations, got 1.0"),
        (lambda x: F.relu(x) + F.relu(x)[:, :1], "slice"),
        (lambda x: torch.add(F.relu(x), F.relu(x), alpha=2), "adds two tensors of the same shape"),
        (lambda x: (F.relu(x), F.relu6(x)), "gives one output, its last operation, got 2"),
    ],
)
def test_what_the_device_cannot_run(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_graph(Calls(call), torch.zeros(1, 3, 20, 20))


def test_what_is_too_large() -> None:
    with pytest.raises(ValueError, match="at most 255 for the device, got Geom"):
        read_graph(nn.Conv2d(3, 1, 1, stride=300), torch.zeros(1, 3, 20, 20))
    with pytest.raises(ValueError, match="32767 pixels a side, got"):
        read_graph(Calls(lambda x: x.mean(2)), torch.zeros(1, 3, 40000))
