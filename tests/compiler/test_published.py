"""Networks as they are published, whole: from batch norms to a file for the device in seconds."""

from collections.abc import Sequence
from time import process_time

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pmeta
from pmeta import device

SIDE = 64


class Excitation(nn.Module):
    """Hu et al., Squeeze-and-Excitation Networks."""

    def __init__(self, channels: int, inner: int, gate: nn.Module):
        super().__init__()
        self.pool, self.act, self.gate = nn.AdaptiveAvgPool2d(1), nn.ReLU(), gate
        self.reduce, self.expand = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.expand(self.act(self.reduce(self.pool(x)))))


class Inverted(nn.Module):
    """An inverted residual of `hidden` channels."""

    def __init__(
        self,
        sizes: tuple[int, int, int],
        kernel: int,
        stride: int,
        act: type[nn.Module],
        excitation: Sequence[nn.Module] = (),
    ):
        super().__init__()
        inputs, hidden, outputs = sizes
        expand = [*normed(inputs, hidden, 1), act()] if hidden != inputs else []
        depthwise = [*normed(hidden, hidden, kernel, stride, hidden), act()]
        self.body = nn.Sequential(*expand, *depthwise, *excitation, *normed(hidden, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


def normed(i: int, o: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    padding = kernel // 2
    return [nn.Conv2d(i, o, kernel, stride, padding, groups=groups, bias=False), nn.BatchNorm2d(o)]


def mobilenet_v2() -> nn.Module:
    """Sandler et al., Table 2."""
    parts, i = [*normed(3, 32, 3, 2), nn.ReLU6()], 32
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
    for t, o, n, s in (*rows, (6, 160, 3, 2), (6, 320, 1, 1)):
        for k in range(n):
            parts.append(Inverted((i, t * i, o), 3, s if k == 0 else 1, nn.ReLU6))
            i = o
    parts += [*normed(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Dropout(0.2), nn.Linear(1280, 5))


def mobilenet_v3() -> nn.Module:
    """Howard et al., Table 2 (small)."""
    relu, hard = nn.ReLU, nn.Hardswish
    parts, i = [*normed(3, 16, 3, 2), hard()], 16
    for k, h, o, se, act, s in (
        *((3, 16, 16, 8, relu, 2), (3, 72, 24, 0, relu, 2), (3, 88, 24, 0, relu, 1)),
        *((5, 96, 40, 24, hard, 2), (5, 240, 40, 64, hard, 1), (5, 240, 40, 64, hard, 1)),
        *((5, 120, 48, 32, hard, 1), (5, 144, 48, 40, hard, 1), (5, 288, 96, 72, hard, 2)),
        *((5, 576, 96, 144, hard, 1), (5, 576, 96, 144, hard, 1)),
    ):
        excitation = [Excitation(h, se, nn.Hardsigmoid())] if se else []
        parts.append(Inverted((i, h, o), k, s, act, excitation))
        i = o
    parts += [*normed(96, 576, 1), hard(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(576, 1024), hard(), nn.Dropout(0.2), nn.Linear(1024, 5))


def efficientnet_b0() -> nn.Module:
    """Tan and Le, Table 1."""
    parts, i = [*normed(3, 32, 3, 2), nn.SiLU()], 32
    rows = ((1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2))
    for t, k, o, n, s in (*rows, (6, 5, 112, 3, 1), (6, 5, 192, 4, 2), (6, 3, 320, 1, 1)):
        for first in [True] + [False] * (n - 1):
            excitation = [Excitation(t * i, max(1, i // 4), nn.Sigmoid())]
            parts.append(Inverted((i, t * i, o), k, s if first else 1, nn.SiLU, excitation))
            i = o
    parts += [*normed(320, 1280, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(1280, 5))


@pytest.mark.parametrize("make", [mobilenet_v2, mobilenet_v3, efficientnet_b0])
def test_from_a_published_network_to_a_file(make, tmp_path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, SIDE, SIDE)
    network = make()
    with torch.no_grad():
        network(torch.randn(8, 3, SIDE, SIDE))  # statistics of the batch norms
    plain = pmeta.prepare(network.eval(), x[:1])
    learner = pmeta.Learner(plain, x[:1], inner_steps=1, alpha_0=0.01, method="maml")
    start = process_time()
    learner.export(tmp_path / "model.pmeta")
    assert process_time() - start < 20
    with torch.no_grad():
        right = network(x).numpy()
    model = device.load(tmp_path / "model.pmeta")
    np.testing.assert_allclose(model.scores(x.numpy()), right, rtol=1e-3, atol=1e-3)
    model.adapt(x.numpy(), [0, 1])  # all layers
    with torch.no_grad():
        adapted = learner.predict(learner.adapt(x, torch.tensor([0, 1])), x).numpy()
    np.testing.assert_allclose(model.scores(x.numpy()), adapted, rtol=1e-2, atol=1e-2)
