"""Models of other people's making: the engine predicts and learns as PyTorch, or refuses them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.compiler.export import export
from pmeta.device.binding import DeviceModel
from pmeta.method.methods import METHODS
from pmeta.network.take_in import take_in
from pmeta.network.tape import forward
from tests.helpers.device_golden import check_model
from tests.helpers.device_models import trained


class Wired(nn.Module):
    """Layers a, b, c, ... and the function that wires them."""

    def __init__(self, layers: Sequence[nn.Module], forward: Callable[..., Tensor]):
        super().__init__()
        for name, layer in zip("abcdef", layers, strict=False):
            self.add_module(name, layer)
        self.wiring, self.constant = forward, torch.linspace(-1.0, 1.0, 128).view(1, 8, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.wiring(self, x)


def conv(c_in: int, c_out: int, k: int = 3) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, k, padding=k // 2)


def in_place(m: Any, x: Tensor) -> Tensor:
    h = F.relu(m.a(x))
    t = m.b(h) + h
    F.relu(t, inplace=True)  # what is read from now on
    return m.c(t)


MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "16 channels, 3 places": (
        nn.Sequential(
            nn.Conv1d(2, 16, 3, padding=1),
            nn.AdaptiveAvgPool1d(3),
            nn.Flatten(),
            nn.ReLU(),
            nn.Linear(48, 5),
        ),
        (2, 12),
    ),
    "5 channels, 2 places": (
        nn.Sequential(
            nn.Conv1d(2, 5, 3, padding=1),
            nn.MaxPool1d(6),
            nn.Flatten(),
            nn.ReLU(),
            nn.Linear(10, 5),
        ),
        (2, 12),
    ),
    "pooled to 4x4, flat, ReLU": (
        nn.Sequential(conv(3, 6), nn.MaxPool2d(2), nn.Flatten(), nn.ReLU(), nn.Linear(96, 5)),
        (3, 8, 8),
    ),
    "flat, ReLU": (
        nn.Sequential(nn.Conv2d(3, 6, 3), nn.Flatten(), nn.ReLU(), nn.Linear(216, 5)),
        (3, 8, 8),
    ),
    "pooling first": (
        nn.Sequential(nn.AvgPool2d(2), conv(3, 8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5)),
        (3, 8, 8),
    ),
    "max-pooling first": (
        nn.Sequential(nn.MaxPool2d(2), conv(3, 8), nn.Flatten(), nn.Linear(128, 5)),
        (3, 8, 8),
    ),
    "a pooled shortcut": (
        Wired(
            [conv(3, 8), nn.Conv2d(8, 8, 3, 2, 1), conv(8, 8, 1), nn.Linear(32, 5)],
            lambda m, x: m.d((m.b(h := F.relu(m.a(x))) + m.c(F.avg_pool2d(h, 2))).flatten(1)),
        ),
        (3, 4, 4),
    ),
    "branches that end in another order": (
        Wired(
            [conv(3, 8), conv(3, 8), conv(8, 8, 1), nn.Linear(128, 5)],
            lambda m, x: m.d((m.c(b := m.b(x)) + (m.a(x) + b)).flatten(1)),
        ),
        (3, 4, 4),
    ),
    "an early branch that is read late": (
        Wired(
            [conv(3, 8), conv(3, 8), conv(8, 8, 1), nn.Linear(128, 5)],
            lambda m, x: m.d((lambda a, b: m.c(b) + (a + b))(m.a(x), m.b(x)).flatten(1)),
        ),
        (3, 4, 4),
    ),
    "a wide pool with a wide edge": (
        nn.Sequential(
            nn.Conv1d(1, 4, 3), nn.AvgPool1d(600, 100, 300), nn.Flatten(), nn.Linear(28, 5)
        ),
        (1, 602),
    ),
    "ReLU in place, by its input's name": (
        Wired([nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 5)], in_place),
        (6,),
    ),
}


@pytest.mark.parametrize("method", ["maml", "pmeta"])
@pytest.mark.parametrize("name", MODELS)
def test_the_engine_equals_pytorch(name: str, method: str) -> None:
    check_model(*MODELS[name], METHODS[method])


@pytest.mark.parametrize("method", ["maml", "pmeta"])
def test_bytes_that_are_no_picture(method: str) -> None:
    """A vector is one channel: one scale and one shift for all of it."""
    generator = torch.Generator().manual_seed(0)
    net, row = (
        take_in(nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 5)), torch.zeros(1, 20)),
        METHODS[method],
    )
    meta = trained(net, row, generator, alpha_0=0.02, steps=2)
    device = DeviceModel(
        export(net, meta, row, (20,), input_type="uint8", scale=[0.01], shift=[-1.0]).data
    )
    x = torch.randint(0, 256, (3, 20), generator=generator, dtype=torch.uint8)
    with torch.no_grad():
        expected = forward(net, meta.w, x * 0.01 - 1.0)[0].numpy()
    np.testing.assert_allclose(device.scores(x.numpy()), expected, rtol=1e-4, atol=1e-5)


def stop(m: Any, x: Tensor) -> Tensor:
    h = F.relu(m.a(x))
    return m.c(F.relu(m.b(h.detach())) + h)


def on_a_view(m: Any, x: Tensor) -> Tensor:
    t = m.b(h := F.relu(m.a(x))) + h
    t.view(-1, 8).relu_()
    return m.c(t)


def unread(m: Any, x: Tensor) -> Tensor:
    out = m.c(h := F.relu(m.a(x)))
    m.b(h)
    return out.view(-1, 5)


def frozen(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        h = m.a(x)
    return m.b(F.relu(h))


IMAGE = (3, 4, 4)
REFUSED: dict[str, tuple[Sequence[nn.Module], Callable[..., Tensor], tuple[int, ...], str]] = {
    "constant": (
        [conv(3, 8), nn.Linear(128, 5)],
        lambda m, x: m.b((m.a(x) + m.constant).flatten(1)),
        IMAGE,
        "got c_constant",
    ),
    "squeeze": (
        [conv(3, 8), nn.Conv2d(8, 5, 4)],
        lambda m, x: m.b(m.a(x)).squeeze(),
        IMAGE,
        r"makes \(5,\) of one sample",
    ),
    "detach": (
        [nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 5)],
        stop,
        (6,),
        "the model calls detach",
    ),
    "view": (
        [nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 5)],
        on_a_view,
        (6,),
        "in place on what is read in another shape",
    ),
    "unread": (
        [nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 5)],
        unread,
        (6,),
        "but nothing reads b: leave it out",
    ),
    "rows": (
        [nn.Linear(2, 2)],
        lambda m, x: m.a(x),
        (70000, 2),
        "up to 65535 rows on the device, got 70000",
    ),
    "no_grad": ([nn.Linear(6, 8), nn.Linear(8, 5)], frozen, (6,), "the model calls"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_wrong_is_refused(name: str) -> None:
    layers, wiring, shape, message = REFUSED[name]
    method, net = METHODS["maml"], take_in(Wired(layers, wiring), torch.zeros(1, *shape))
    meta = trained(net, method, torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=message):
        export(net, meta, method, shape)


def test_a_layer_that_is_called_by_name() -> None:
    with pytest.raises(
        ValueError,
        match=r"with its input alone and by position, 'a' is not: call it as layer\(x\)\.",
    ):
        take_in(Wired([nn.Linear(6, 5)], lambda m, x: m.a(input=x)), torch.zeros(1, 6))
