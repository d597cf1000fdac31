"""Models that the device tests share: the backbones in small, and models as users have them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.compiler.export import Exported, export
from pmeta.device.binding import DeviceModel
from pmeta.method.learned import Meta, init_meta
from pmeta.method.methods import METHODS, Method
from pmeta.network.backbones import FourConv, MLPPolicy, ResNet12, initialise
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in


class Depthwise(nn.Module):
    """Strided, depthwise, pointwise, grouped, dilated convs; three activations; residual adds."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm_a = nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.GroupNorm(3, 12)
        self.depthwise, self.norm_b = (
            nn.Conv2d(12, 12, 3, padding=1, groups=12),
            nn.GroupNorm(4, 12),
        )
        self.pointwise, self.c = (
            nn.Conv2d(12, 20, 1),
            nn.Conv2d(20, 20, 3, stride=2, padding=2, dilation=2, groups=4),
        )
        self.d, self.fc1, self.fc = (
            nn.Conv2d(20, 20, 1, bias=False),
            nn.Linear(20, 9),
            nn.Linear(9, 5),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(self.norm_a(self.a(x)))
        x = F.leaky_relu(self.norm_b(self.depthwise(x)), 0.2) + x
        x = F.relu(self.c(F.max_pool2d(self.pointwise(x), 3, 2, 1)))
        x = F.avg_pool2d(x + self.d(x), 2, stride=1, padding=1)
        return self.fc(F.relu(self.fc1(x.mean((2, 3)))))


class Squeeze(nn.Module):
    """An inverted residual with squeeze-and-excitation, as in MobileNetV3 and EfficientNet.

    Also concatenation, windows that end outside and layer norm."""

    def __init__(self, act: type[nn.Module] = nn.SiLU, gate: type[nn.Module] = nn.Sigmoid) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.GroupNorm(2, 8)
        self.expand, self.depthwise = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 16, 3, 1, 1, groups=16)
        self.reduce, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.project, self.ln, self.fc = nn.Conv2d(16, 8, 1), nn.LayerNorm(16), nn.Linear(16, 5)
        self.act, self.gate = act(), gate()

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.stem(x)))
        h = self.act(self.depthwise(self.act(self.expand(x))))
        s = self.gate(self.excite(F.relu(self.reduce(F.adaptive_avg_pool2d(h, 1)))))
        y = F.max_pool2d(self.project(h * s) + x, 3, 2, ceil_mode=True)
        x = F.avg_pool2d(x, 3, 2, ceil_mode=True)
        return self.fc(self.ln(torch.cat([y, x], 1).mean((2, 3))))


class Signal(nn.Module):
    """1-D: windows that overlap, a norm behind the activation, a norm whose input is pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm_a = nn.Conv1d(4, 8, 5, padding=2), nn.GroupNorm(2, 8)
        self.b, self.norm_b, self.fc = (
            nn.Conv1d(8, 8, 3, stride=2, groups=2),
            nn.GroupNorm(1, 8),
            nn.Linear(48, 5),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm_b(F.relu(self.b(F.max_pool1d(F.relu(self.norm_a(self.a(x))), 2))))
        return self.fc(F.avg_pool1d(x, 2, 1).flatten(1))


def norm_first() -> nn.Module:
    """A model that begins with something else than a layer that reads raw pixels."""
    body = (
        nn.Conv2d(3, 8, 3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.GroupNorm(2, 8),
        nn.Flatten(),
        nn.Linear(392, 5),
    )
    return nn.Sequential(nn.GroupNorm(1, 3), *body)


def long_signal() -> nn.Module:
    """A window as long as a second of sound, in which one sample counts little."""
    return nn.Sequential(
        nn.Conv1d(1, 6, 9, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    )


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 5)
    )


SHAPES: dict[str, tuple[int, ...]] = {
    "4conv": (3, 28, 28),
    "4conv-folded": (3, 28, 28),
    "resnet12": (3, 24, 24),
    "mlp": (20,),
    "depthwise": (3, 32, 32),
    "depthwise-12": (3, 12, 12),
    "squeeze": (3, 16, 16),
    "squeeze-v3": (3, 11, 11),
    "signal": (4, 33),
    "long": (1, 1000),
    "norm": (3, 16, 16),
    "4conv-84": (3, 84, 84),
    "resnet12-84": (3, 84, 84),
}


GOLDEN = [
    *(
        (kind, method, 1)
        for kind in ("4conv", "4conv-folded", "resnet12", "mlp", "depthwise", "squeeze")
        for method in METHODS
    ),
    *(
        (kind, "pmeta", batch)
        for kind in ("4conv", "resnet12", "depthwise", "signal", "norm", "squeeze-v3")
        for batch in (2, 5)
    ),
]
"""Backbones, methods and micro-batches on which the engine must equal PyTorch."""


def network(kind: str, generator: torch.Generator) -> Network:
    model = {
        "4conv": lambda: FourConv(image=(3, 28, 28), channels=16, groups=4),
        "resnet12": lambda: ResNet12(image=(3, 24, 24), widths=(8, 16), groups=4),
        "4conv-folded": lambda: FourConv(
            image=(3, 28, 28), channels=16, norm="none", embedding="signed"
        ),
        "4conv-84": FourConv,
        "resnet12-84": lambda: ResNet12(image=(3, 84, 84), widths=(16, 32, 64, 128)),
        "mlp": mlp,
        "depthwise": Depthwise,
        "depthwise-12": Depthwise,
        "squeeze": Squeeze,
        "squeeze-v3": lambda: Squeeze(nn.Hardswish, nn.Hardsigmoid),
        "signal": Signal,
        "long": long_signal,
        "norm": norm_first,
        "policy": lambda: MLPPolicy(6, 2, (10, 10)),
    }[kind]()
    shape = SHAPES.get(kind, (7, 6))
    return take_in(
        initialise(model, generator),
        torch.zeros(1, *shape),
        extra=("log_std",) if kind == "policy" else (),
    )


def trained(
    net: Network,
    method: Method,
    generator: torch.Generator,
    alpha_0: float = 0.05,
    steps: int = 3,
    live: Sequence[str] | None = None,
) -> Meta:
    """As if meta-trained: step sizes that differ, attention that prefers some channels.

    Only `live` layers are updated."""
    meta = init_meta(net, method, steps, alpha_0, generator)
    p = meta.parameters()
    p["alpha"] = meta.alpha * (0.5 + torch.rand(meta.alpha.shape, generator=generator))
    if live is not None:
        p["alpha"] = p["alpha"] * torch.tensor([layer.name in live for layer in net.layers])
    for name in meta.attention:
        spread = 1.0 if name.endswith("alpha") else 0.5
        drawn = torch.randn(meta.attention[name].shape, generator=generator) * spread
        p[f"attention/{name}"] = (
            drawn * drawn.shape[-1] ** -0.5 if name.endswith(("W1", "W2")) else drawn
        )
    return meta.with_parameters(p).map(torch.Tensor.detach)


class Case(NamedTuple):
    net: Network
    meta: Meta
    method: Method
    exported: Exported
    batch: int | None
    x: Tensor
    raw: np.ndarray
    """The same samples as the device reads them."""
    y: Tensor

    def device(self) -> DeviceModel:
        """On an arena full of NaN."""
        return DeviceModel(
            self.exported.data, arena=np.full(self.exported.arena_bytes, 255, np.uint8)
        )

    def on(self, raw: np.ndarray) -> "Case":
        """The same with other raw samples."""
        return self._replace(raw=raw, x=torch.from_numpy(raw).float() / 255 * 2 - 1)


def case(
    kind: str,
    method: str | Method,
    seed: int,
    raw: bool = False,
    live: Sequence[str] | None = None,
    n: int = 5,
    alpha_0: float = 0.05,
    batch: int | None = 1,
    steps: int = 3,
) -> Case:
    generator = torch.Generator().manual_seed(seed)
    net, m = network(kind, generator), METHODS[method] if isinstance(method, str) else method
    meta = trained(net, m, generator, alpha_0, steps, live)
    pixels = torch.randint(0, 256, (n, *SHAPES[kind]), generator=generator)
    x = pixels.float() / 255 * 2 - 1 if raw else torch.randn(n, *SHAPES[kind], generator=generator)
    channels = SHAPES[kind][0] if len(SHAPES[kind]) > 1 else 1
    exported = export(
        net,
        meta,
        m,
        SHAPES[kind],
        input_type="uint8" if raw else "float32",
        scale=[2 / 255] * channels,
        shift=[-1.0] * channels,
        batch=batch,
    )
    return Case(
        net, meta, m, exported, batch, x, (pixels.byte() if raw else x).numpy(), torch.arange(n) % 5
    )
