"""The operations of a forward pass, as the cost model walks over them."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.cost import networks
from pmeta.cost.ops import Op
from pmeta.network.backbones import FourConv, MLPPolicy, ResNet12
from pmeta.network.take_in import take_in
from tests.helpers.nets import Separable


def ops(model: nn.Module, shape: tuple[int, ...], extra: tuple[str, ...] = ()) -> tuple[Op, ...]:
    return take_in(model, torch.zeros(1, *shape), extra).ops


class Around(nn.Module):
    """fc, then any function, then fc; both work on the last axis of 4."""

    def __init__(self, f: Callable[[Tensor], Tensor], c_in: int = 4):
        super().__init__()
        self.fc1, self.fc2, self.f = nn.Linear(4, 4), nn.Linear(c_in, 2), f

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.f(self.fc1(x)))


def kinds(f: Callable[[Tensor], Tensor], shape: tuple[int, ...] = (4,), c_in: int = 4) -> list[str]:
    return [op.kind for op in ops(Around(f, c_in), shape)[1:-1]]


# The backbones: from the module and by hand they are the same list


def test_four_conv() -> None:
    assert ops(FourConv(), (3, 84, 84)) == networks.four_conv()
    assert ops(FourConv(20, (1, 28, 28), 16, 4), (1, 28, 28)) == networks.four_conv(
        20, (1, 28, 28), 16, 4
    )
    folded = FourConv(norm="none", embedding="signed")
    assert ops(folded, (3, 84, 84)) == networks.four_conv(groups=0, embedding="signed")


def test_resnet12() -> None:
    assert ops(ResNet12(), (3, 84, 84)) == networks.resnet12()
    assert ops(ResNet12(norm="none"), (3, 84, 84)) == networks.resnet12(groups=0)


def test_mlp() -> None:
    assert ops(MLPPolicy(20, 6), (200, 20), ("log_std",)) == networks.mlp(20, 6)


# Any model


def test_a_users_own_model_by_hand() -> None:
    """Strided 8 -> 4, depthwise, a residual over ops 2 to 6, a dilated kernel that spans 5."""
    assert ops(Separable(), (2, 8, 8)) == (
        Op("conv", (2, 8, 8), (4, 4, 4), (-1,), "stem.0", 72, 0, (3, 3)),
        Op("norm", (4, 4, 4), (4, 4, 4), (0,), "stem.1", 4, 4, groups=2),
        Op("relu", (4, 4, 4), (4, 4, 4), (1,)),
        Op("conv", (4, 4, 4), (4, 4, 4), (2,), "depthwise", 36, 0, (3, 3), 4),
        Op("norm", (4, 4, 4), (4, 4, 4), (3,), "norm", 4, 4, groups=2),
        Op("relu", (4, 4, 4), (4, 4, 4), (4,)),
        Op("conv", (4, 4, 4), (4, 4, 4), (5,), "pointwise", 16, 4, (1, 1)),
        Op("add", (4, 4, 4), (4, 4, 4), (2, 6)),
        Op("conv", (4, 4, 4), (6, 4, 4), (7,), "dilated", 108, 6, (5, 5), 2),
        Op("relu", (6, 4, 4), (6, 4, 4), (8,)),
        Op("pool", (6, 4, 4), (6, 1, 1), (9,)),
        Op("view", (6, 1, 1), (6,), (10,)),
        Op("fc", (6,), (3,), (11,), "classifier", 18, 3),
    )


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (F.relu, ["relu"]),
        (F.relu6, ["relu"]),
        (lambda y: F.leaky_relu(y, 0.2), ["relu"]),
        (torch.tanh, ["other"]),
        (F.gelu, ["other"]),
        (lambda y: y + 1, ["add"]),
        (lambda y: y * y, ["mul"]),
        (lambda y: y, []),
    ],
)
def test_kinds(f: Callable[[Tensor], Tensor], expected: list[str]) -> None:
    assert kinds(f) == expected


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda y: F.max_pool2d(y, 2), [("maxpool", ())]),
        (lambda y: F.max_pool2d(y, (3, 2), stride=2), [("maxpool", (3, 2))]),
        (lambda y: F.adaptive_max_pool2d(y, 2), [("maxpool", (3, 3))]),  # 6 -> 2
        (lambda y: F.adaptive_max_pool2d(y, (4, 3)), [("maxpool", ())]),  # windows of 2x2 at most
        (lambda y: F.avg_pool2d(y, 2), [("pool", ())]),
        (lambda y: F.adaptive_avg_pool2d(y, 2), [("pool", ())]),
        (lambda y: y.mean((2, 3), keepdim=True), [("pool", ())]),
    ],
)
def test_pooling(
    f: Callable[[Tensor], Tensor], expected: list[tuple[str, tuple[int, ...]]]
) -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(2, 3, 1), nn.Conv2d(3, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv2(f(self.conv1(x)))

    assert [(op.kind, op.kernel) for op in ops(Pooled(), (2, 6, 6))[1:-1]] == expected


def test_max_pooling_in_one_dimension() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 1), nn.MaxPool1d(2), nn.Conv1d(3, 4, 1))
    pools = [op for op in ops(model, (2, 6)) if op.kind == "maxpool"]
    assert [(op.x[0], op.y[0], op.y[-1]) for op in pools] == [(3, 3, 3)]


def test_relu_is_counted_before_max_pooling() -> None:
    """They commute; in either order the list is that of the paper, so that the same network costs
    the same."""
    orders = [(nn.ReLU(), nn.MaxPool2d(3)), (nn.MaxPool2d(3), nn.ReLU())]
    first, second = (
        ops(nn.Sequential(nn.Conv2d(2, 3, 1), *order, nn.Conv2d(3, 4, 1)), (2, 6, 6))
        for order in orders
    )
    assert first == second
    assert [(op.kind, op.x, op.y) for op in first[1:3]] == [
        ("relu", (3, 6, 6), (3, 6, 6)),
        ("maxpool", (3, 6, 6), (3, 2, 2)),
    ]
    assert first[2].kernel == (3, 3)


def test_a_pooled_map_with_two_readers_stays_where_it_is() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = F.max_pool2d(self.conv(x), 2)
            return y + F.relu(y)

    assert [op.kind for op in ops(Both(), (2, 4, 4))] == ["conv", "maxpool", "relu", "add"]


def test_concatenation_reads_all_its_parts() -> None:
    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 3), nn.Linear(3, 2), nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(x)
            return self.c(torch.cat([y, self.b(y)], 1))

    assert ops(Dense(), (4,))[2:] == (
        Op("view", (3,), (5,), (0, 1)),
        Op("fc", (5,), (2,), (2,), "c", 10, 2),
    )


def test_a_split_has_several_outputs() -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            first, second = self.a(x).chunk(2, 1)
            return first + self.b(second)

    assert [(op.kind, op.inputs) for op in ops(Split(), (4,))] == [
        ("fc", (-1,)),
        ("view", (0,)),
        ("fc", (1,)),
        ("add", (1, 2)),
    ]


def test_the_input_counts_where_it_is_read_again() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.fc(x)

    assert [op.inputs for op in ops(Skip(), (4,))] == [(-1,), (-1, 0)]


def test_in_place_functions_away_from_layers_are_fine() -> None:
    assert kinds(lambda y: (y + 1).relu_()) == ["add", "relu"]


def test_hooks_are_removed_even_after_an_error() -> None:
    def fail(y: Tensor) -> Tensor:
        raise RuntimeError("the model's own")

    model = Around(fail)
    with pytest.raises(RuntimeError, match="the model's own"):
        take_in(model, torch.zeros(1, 4))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_the_first_sample_of_an_example_is_enough() -> None:
    assert take_in(Separable(), torch.zeros(3, 2, 8, 8)).ops == ops(Separable(), (2, 8, 8))
