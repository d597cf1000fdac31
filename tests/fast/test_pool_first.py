"""Pooling first changes no result, whatever else reads a norm's output."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.method.inner import InnerLoop
from pmeta.method.meta_gradient import task_gradient
from pmeta.method.methods import METHODS, Method
from pmeta.network.backbones import FourConv, ResNet12
from pmeta.network.layers import Network
from pmeta.network.tape import forward
from tests.helpers.nets import meta_of, network, task

ABLATIONS = {
    "x": replace(METHODS["pmeta"], sparse_fw="x"),
    "y": replace(METHODS["pmeta"], sparse_bw="y"),
    "static": replace(METHODS["maml++"], scores="static"),
}


class Blocks(nn.Module):
    """Two conv blocks, and `read` in between: what becomes of the norm's output."""

    def __init__(self, read: Callable[[Tensor], Tensor]):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.GroupNorm(2, 4)
        self.fc = nn.Linear(4, 3)
        self.read = read

    def forward(self, x: Tensor) -> Tensor:
        x = self.read(self.norm1(self.conv1(x)))
        return self.fc(F.relu(F.max_pool2d(self.norm2(self.conv2(x)), 2)).mean((2, 3)))


READ = {
    "pool, relu": (lambda y: F.relu(F.max_pool2d(y, 2)), True),
    "relu, pool": (lambda y: nn.MaxPool2d(2)(nn.ReLU()(y)), True),
    "method": (lambda y: torch.max_pool2d(y.relu(), (2, 2)), True),
    "size by name": (lambda y: torch.max_pool2d(y, kernel_size=2), True),
    "shape read first": (lambda y: F.max_pool2d(y, 2) * y.shape[1], True),
    "average": (lambda y: F.avg_pool2d(F.relu(y), 2), False),
    "overlapping": (lambda y: F.max_pool2d(y, 3, stride=2, padding=1), False),
    "dilated": (lambda y: F.max_pool2d(y[..., :7], 2, dilation=2), False),
    "two readers": (lambda y: F.max_pool2d(y, 2) + F.avg_pool2d(y, 2), False),
    "in a list": (lambda y: F.max_pool2d(torch.cat([y, y], 2), 2), False),
    "leaky": (lambda y: F.max_pool2d(F.leaky_relu(y, 0.1), 2), True),
}


def assert_same(
    net: Network, method: Method, shape: tuple[int, ...], batch: int | None = None
) -> None:
    meta = meta_of(net, method)
    loops = [
        InnerLoop(net, method, batch=batch, second_order=True, pool_first=first)
        for first in (True, False)
    ]
    ours, plain = (task_gradient(loop, meta, task(shape)) for loop in loops)
    assert ours.loss == pytest.approx(plain.loss, abs=1e-12)
    for name, g in plain.gradients.items():
        torch.testing.assert_close(
            ours.gradients[name], g, rtol=1e-10, atol=1e-10 * float(g.abs().max()), msg=name
        )


@pytest.mark.parametrize("batch", [None, 1, 2])
@pytest.mark.parametrize(
    "method", [*METHODS.values(), *ABLATIONS.values()], ids=[*METHODS, *ABLATIONS]
)
def test_the_meta_gradient_of_4conv_is_that_of_the_plain_pass(method, batch):
    net = network(FourConv(3, (3, 18, 18), channels=8, groups=2), (3, 18, 18))
    assert net.pooled == {"norm1", "norm2", "norm3", "norm4"}
    assert_same(net, method, (3, 18, 18), batch)


@pytest.mark.parametrize("name", READ)
def test_whatever_reads_the_norm_the_meta_gradient_is_that_of_the_plain_pass(name):
    read, can_be_pooled = READ[name]
    net = network(Blocks(read), (3, 8, 8))
    assert ("norm1" in net.pooled) == can_be_pooled
    assert "norm2" in net.pooled
    assert_same(net, METHODS["pmeta"], (3, 8, 8))


def test_images_that_come_as_vectors():
    conv, norm = nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4)
    model = nn.Sequential(
        nn.Unflatten(1, (3, 6, 6)), conv, norm, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )
    net = network(model, (108,))
    assert net.pooled == {"2"}
    assert_same(net, METHODS["pmeta"], (108,))


def test_resnet12_is_left_as_it_is():
    assert not network(ResNet12(3, (3, 8, 8), widths=(8, 8), groups=2), (3, 8, 8)).pooled


def test_batch_norms_that_are_updated_are_computed_in_full():
    model = FourConv(3, (3, 16, 16), channels=4, norm="batch")
    net = network(model, (3, 16, 16), batch_norm=True)
    assert net.pooled == {"norm1", "norm2", "norm3", "norm4"}
    _, tape = forward(net, net.weights(), task((3, 16, 16))[0], net.layers, pool_first=True)
    assert [tape[f"norm{b}"].y.shape[-1] for b in range(1, 5)] == [16, 8, 4, 2]


def test_a_pooled_norm_is_held_at_a_quarter_of_the_places_with_its_channel_means():
    net = network(FourConv(3, (3, 18, 18), channels=8, groups=2), (3, 18, 18))
    x = task((3, 18, 18))[0]
    full, pooled = (
        forward(net, net.weights(), x, net.layers, pool_first=first)[1] for first in (False, True)
    )
    assert full["norm1"].x.shape == (5, 8, 18, 18)
    assert pooled["norm1"].x.shape == (5, 8, 9, 9)
    assert pooled["norm1"].share == 0.25
    assert pooled["norm1"].v is not None
    torch.testing.assert_close(pooled["norm1"].v, full["norm1"].x.mean((2, 3)))
