"""Layers whose output gradient has no channel means, so that attention would score rounding."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.network.backbones import FourConv, ResNet12
from pmeta.network.take_in import take_in

IMAGE = (3, 32, 32)
NORMED = ["conv1", "conv2", "conv3", "conv4"]


class Keys(nn.Module):
    """Softmax attention over the rows of a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(6, 8, bias=False) for _ in range(3))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:  # (B, rows, 6) -> (B, 4)
        share = (self.query(x) @ self.key(x).transpose(1, 2)).softmax(-1)
        return self.head((share @ self.value(x)).mean(1))


def block(groups: int, zero: bool = False) -> nn.Module:
    """A conv behind which a norm stands; with a head that may be all zeros."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.GroupNorm(groups, 16), nn.ReLU(), nn.Flatten(), nn.Linear(14400, 2)
    )
    if zero:
        nn.init.zeros_(model[4].weight)  # type: ignore[arg-type]
    return model


def unscored(model: nn.Module, shape: tuple[int, ...]) -> list[str]:
    before = {name: p.clone() for name, p in model.named_parameters()}
    net = take_in(model, torch.zeros(1, *shape))
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
    assert all(p.grad is None for p in model.parameters())
    return [layer.name for layer in net.layers if not layer.scored]


@pytest.mark.parametrize(
    ("model", "shape", "names"),
    [
        (block(16), IMAGE, ["0"]),
        (block(16, zero=True), IMAGE, ["0"]),
        (block(8), IMAGE, []),
        (block(1), IMAGE, []),
        (FourConv(5, IMAGE, channels=8), IMAGE, NORMED),
        (FourConv(5, IMAGE, channels=8, groups=4), IMAGE, []),
        (FourConv(5, IMAGE, channels=8, norm="none"), IMAGE, []),
        (ResNet12(5, IMAGE, (16, 32, 64, 128)), IMAGE, []),
        (ResNet12(5, IMAGE, (8, 16, 32, 64)), IMAGE, [f"block1.conv{i}" for i in (1, 2, 3)]),
        (Keys(), (7, 6), ["key"]),
    ],
)
def test_where_the_gradient_has_no_channel_means(
    model: nn.Module, shape: tuple[int, ...], names: list[str]
) -> None:
    found = unscored(model, shape)
    assert [name for name in found if "shortcut" not in name] == names


def test_a_residual_path_leaves_means() -> None:
    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.GroupNorm(8, 8)
            self.fc = nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return self.fc(F.relu(y + self.norm(y)).mean((2, 3)))

    assert unscored(Beside(), (3, 9, 9)) == []


def test_weights_that_are_frozen() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(8, 8), nn.Flatten(), nn.Linear(392, 2))
    for p in model.parameters():
        p.requires_grad_(False)
    assert unscored(model, (3, 9, 9)) == ["0"]
