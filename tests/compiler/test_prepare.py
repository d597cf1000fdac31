"""pmeta.prepare: the same outputs from plain layers, or all that stands in the way."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pmeta
from pmeta.compiler.read_model import read_graph
from pmeta.method.methods import METHODS
from pmeta.network.take_in import take_in
from tests.helpers.device_golden import check_model

IMAGE = torch.zeros(1, 3, 16, 16)


def trained(model: nn.Module) -> nn.Module:
    """With statistics as after training."""
    generator = torch.Generator().manual_seed(0)
    for m in model.modules():
        if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d) and m.running_mean is not None:
            assert m.running_var is not None
            for t, low in ((m.running_mean, -1.0), (m.running_var, 0.2), (m.weight, 0.5)):
                t.data = torch.rand(t.shape, generator=generator) + low
            m.bias.data = torch.randn(m.bias.shape, generator=generator)
    return model.eval()


class Padded(nn.Conv2d):
    """TensorFlow's padding: one pixel more behind than before."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, (0, 1, 0, 1) if self.kernel_size[0] == 3 else (1, 2, 1, 2)))


class Block(nn.Module):
    """An inverted residual as it comes: batch norm, in-place activations, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn0 = Padded(3, 8, 3, 2, bias=False), nn.BatchNorm2d(8)
        self.expand, self.bn1 = nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16)
        self.depth, self.bn2 = Padded(16, 16, 5, 2, groups=16), nn.BatchNorm2d(16)
        self.project, self.bn3 = nn.Conv2d(16, 8, 1), nn.BatchNorm2d(8)
        self.act, self.drop, self.fc = nn.ReLU6(inplace=True), nn.Dropout(0.5), nn.Linear(8, 5)
        self.bn4 = nn.BatchNorm1d(5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.bn0(self.stem(x)))
        y = self.act(self.bn2(self.depth(self.act(self.bn1(self.expand(x))))))
        y = self.bn3(self.project(y)) + F.avg_pool2d(x, 2)
        return self.bn4(self.fc(self.drop(y.mean((2, 3)))))


def test_outputs_are_the_same_and_layers_are_plain() -> None:
    model = trained(Block())
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    before = {name: t.clone() for name, t in model.state_dict().items()}
    ready = pmeta.prepare(model, IMAGE)
    with torch.no_grad():
        torch.testing.assert_close(ready(x), model(x), rtol=1e-5, atol=1e-5)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    net = take_in(ready, IMAGE)
    assert [layer.kind for layer in net.layers] == ["conv"] * 4 + ["fc"]
    assert {n.kind for n in read_graph(ready, IMAGE)} <= {"conv", "act", "add", "avgpool", "fc"}
    check_model(ready, (3, 16, 16), METHODS["pmeta"])


def test_a_norm_in_front_of_the_conv_becomes_a_conv() -> None:
    model = trained(
        nn.Sequential(
            nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3, padding=1), nn.Flatten(), nn.Linear(1024, 5)
        )
    )
    ready = pmeta.prepare(model, IMAGE)
    x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(ready(x), model(x), rtol=1e-5, atol=1e-5)
    assert len(take_in(ready, IMAGE).layers) == 3


class Branches(nn.Module):
    """A conv that a norm and something else read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x)
        return self.fc((self.bn(h) + F.relu(h)).mean((2, 3)))


def test_a_conv_that_others_read_keeps_its_weights() -> None:
    model = trained(Branches())
    ready = pmeta.prepare(model, IMAGE)
    with torch.no_grad():
        torch.testing.assert_close(ready(IMAGE + 1), model(IMAGE + 1), rtol=1e-5, atol=1e-5)
    assert len(take_in(ready, IMAGE).layers) == 3


class Odd(nn.Module):
    """Much that stands in the way."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.fc = nn.ConvTranspose2d(3, 4, 2), nn.PReLU(), nn.Linear(4, 5)
        self.bn = nn.BatchNorm2d(4, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.bn(self.act(self.up(x)))).amax((2, 3)))


def test_everything_in_the_way_is_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"things stand in the way of adapting Odd") as caught:
        pmeta.prepare(Odd(), IMAGE)
    text = str(caught.value)
    for part in (
        "'bn' has no running statistics",
        "up.weight, up.bias belongs to ConvTranspose2d",
        "act.weight belongs to PReLU",
        "the model calls tanh",
        "the model calls amax",
    ):
        assert part in text


def test_an_empty_example() -> None:
    with pytest.raises(ValueError, match="a batch of at least one input, got none"):
        pmeta.prepare(nn.Linear(3, 2), torch.zeros(0, 3))


def test_functional_in_place_is_named() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(F.relu(self.a(x), inplace=True))

    with pytest.raises(ValueError, match="an in-place operation writes over"):
        pmeta.prepare(InPlace(), torch.zeros(1, 4))
