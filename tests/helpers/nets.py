"""Small networks and tasks that several tests share."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.method.learned import Meta, init_meta
from pmeta.method.meta_gradient import AnyTask
from pmeta.method.methods import Method
from pmeta.network.backbones import FourConv, ResNet12, initialise
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Residual(nn.Module):
    """conv, group norm, a residual, LeakyReLU, max-pooling, fc and head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.conv2, self.norm2 = nn.Conv2d(4, 6, 3, padding=1, bias=False), nn.GroupNorm(3, 6)
        self.skip = nn.Conv2d(4, 6, 1)
        self.fc, self.head = nn.Linear(6 * 3 * 3, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:  # (B, 2, 6, 6) -> (B, 3)
        x = F.leaky_relu(self.norm1(self.conv1(x)), 0.1)
        x = F.max_pool2d(F.leaky_relu(self.norm2(self.conv2(x)) + self.skip(x), 0.1), 2)
        return self.head(F.leaky_relu(self.fc(x.flatten(1)), 0.1))


class Pooled(nn.Module):
    """A block as in 4Conv and an fc layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = (
            nn.Conv2d(2, 4, 3, padding=1, bias=False),
            nn.GroupNorm(2, 4),
            nn.Linear(36, 3),
        )

    def forward(self, x: Tensor) -> Tensor:  # (B, 2, 6, 6) -> (B, 3)
        return self.fc(F.relu(F.max_pool2d(self.norm(self.conv(x)), 2)).flatten(1))


class Separable(nn.Module):
    """A user's own model: depthwise-separable and strided, with a residual, average pooling, and
    batch norm if asked."""

    def __init__(
        self, width: int = 4, norm: Callable[[int], nn.Module] = lambda c: nn.GroupNorm(2, c)
    ):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(2, width, 3, stride=2, padding=1, bias=False), norm(width), nn.ReLU()
        )
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
        self.norm = norm(width)
        self.pointwise = nn.Conv2d(width, width, 1)
        self.dilated = nn.Conv2d(width, 6, 3, padding=2, dilation=2, groups=2)
        self.classifier = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:  # (B, 2, 8, 8) -> (B, 3)
        x = self.stem(x)
        x = x + self.pointwise(F.leaky_relu(self.norm(self.depthwise(x)), 0.1))
        return self.classifier(F.adaptive_avg_pool2d(F.relu(self.dilated(x)), 1).flatten(1))


def batch_norm(channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels, track_running_stats=False)


class Signal(nn.Module):
    """Conv1d, strided and grouped, then fc on every place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv1d(2, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4)
        self.conv2 = nn.Conv1d(4, 4, 3, dilation=2, padding="same", groups=2, bias=False)
        self.fc, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:  # (B, 2, 9) -> (B, 3)
        x = torch.tanh(self.conv2(torch.tanh(self.norm1(self.conv1(x)))))
        return self.head(torch.tanh(self.fc(x.transpose(1, 2)))).mean(1)


def network(model: nn.Module, shape: tuple[int, ...], **kwargs: Any) -> Network:
    """Take in a model in float64, drawn from a seed, with norm weights that are not all alike."""
    model = initialise(model, generator(1)).double()
    for m in model.modules():
        if isinstance(m, nn.GroupNorm | nn.BatchNorm2d):
            for p in m.parameters():
                p.data += 0.2 * torch.randn(p.shape, generator=generator(2), dtype=p.dtype)
    return take_in(model, torch.zeros(1, *shape, dtype=torch.float64), **kwargs)


def task(shape: tuple[int, ...], n_support: int = 5, n_query: int = 4, seed: int = 3) -> AnyTask:
    """Support x and y, query x and y of a 3-way task in float64."""
    g = generator(seed)
    x = torch.randn(n_support + n_query, *shape, generator=g, dtype=torch.float64)
    y = torch.randint(3, (len(x),), generator=g)
    return x[:n_support], y[:n_support], x[n_support:], y[n_support:]


def meta_of(
    net: Network, method: Method, inner_steps: int = 2, alpha_0: float = 0.1, seed: int = 4
) -> Meta:
    """A start in which every trained tensor matters: step sizes that differ, and attention with W2
    that is not zero."""
    meta = init_meta(net, method, inner_steps, alpha_0, generator(seed))
    g = generator(seed + 1)

    def drawn(t: Tensor, spread: float) -> Tensor:
        return spread * torch.randn(t.shape, generator=g, dtype=t.dtype)

    p = {name: t.clone() for name, t in meta.parameters().items()}
    p["alpha"] *= 1 + 0.5 * torch.rand(meta.alpha.shape, generator=g, dtype=meta.alpha.dtype)
    for name, t in p.items():
        if name.endswith((".W1", ".W2")):
            t.copy_(drawn(t, len(t) ** -0.5))
        if name.endswith((".b1", ".b2", ".alpha")):
            t.add_(drawn(t, 0.3))
    return meta.with_parameters(p)


def changed(meta: Meta, w: dict[str, Tensor]) -> set[str]:
    return {name for name, t in w.items() if not torch.equal(t, meta.w[name])}


NETS: dict[str, Callable[[], tuple[Network, tuple[int, ...]]]] = {
    "residual": lambda: (network(Residual(), (2, 6, 6)), (2, 6, 6)),
    "separable": lambda: (network(Separable(), (2, 8, 8)), (2, 8, 8)),
    "signal": lambda: (network(Signal(), (2, 9)), (2, 9)),
    "batch norm": lambda: (
        network(Separable(4, batch_norm), (2, 8, 8), batch_norm=True),
        (2, 8, 8),
    ),
    "4Conv": lambda: (network(FourConv(3, (3, 16, 16), 8, 4), (3, 16, 16)), (3, 16, 16)),
    "ResNet12": lambda: (network(ResNet12(3, (3, 8, 8), (8, 8), groups=4), (3, 8, 8)), (3, 8, 8)),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def meta_with(net: Network, alpha: list[list[float]], mask: list[list[bool]] | None = None) -> Meta:
    values = torch.tensor(alpha)
    return Meta(
        net.weights(),
        values,
        {},
        torch.tensor(mask) if mask else torch.ones_like(values, dtype=torch.bool),
    )


def two_linear() -> Network:
    """4 inputs, 3 hidden units, 2 outputs; the layers are called 0 and 2."""
    return take_in(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(1, 4))
