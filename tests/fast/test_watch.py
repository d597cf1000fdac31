"""A record holds while all that Python reads is the same; a change is seen at once."""

import functools
import itertools
import math
import random
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.fast import replay
from pmeta.fast.watch import MOST_STATES, Watch
from pmeta.method import heads
from pmeta.method.inner import InnerLoop, Loss, cross_entropy
from pmeta.method.meta_gradient import TaskGradients, task_gradient
from pmeta.method.methods import METHODS
from pmeta.network.backbones import FourConv, ResNet12
from pmeta.network.take_in import take_in
from tests.helpers import nets

TEMPERATURE = 1.0
SETTINGS = types.SimpleNamespace(temperature=1.0)
TABLE = {"temperature": [1.0]}


def set_global(t: float) -> None:
    globals()["TEMPERATURE"] = t


def with_global(output: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(output / TEMPERATURE, y)


def through_a_function(output: Tensor, y: Tensor) -> Tensor:
    return with_global(output, y)


def with_settings(output: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(output / SETTINGS.temperature, y)


def with_a_table(output: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(output / TABLE["temperature"][0], y)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(4, 6), nn.LeakyReLU(1.0), nn.Linear(6, 3)
        self.temperature = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(torch.tanh(self.fc1(x)))) / self.temperature


@dataclass
class Criterion:
    temperature: float = 1.0

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return self.of(output, y)

    def of(self, output: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(output / self.temperature, y)


class AsModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = 1.0

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(output / self.temperature, y)


def closure() -> tuple[Loss, Callable[[float], None]]:
    temperature = 1.0

    def set_to(t: float) -> None:
        nonlocal temperature
        temperature = t

    return lambda output, y: cross_entropy(output / temperature, y), set_to


def partial() -> tuple[Loss, Callable[[float], None]]:
    numbers = [1.0]

    def loss(numbers: list[float], output: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(output / numbers[0], y)

    return functools.partial(loss, numbers), functools.partial(numbers.__setitem__, 0)


def ways(model: Model) -> Iterator[tuple[str, Loss, Callable[[float], None]]]:
    """Where a temperature may be, and how it is changed."""
    yield "attribute of the model", cross_entropy, lambda t: setattr(model, "temperature", t)
    yield (
        "attribute of a torch module",
        cross_entropy,
        lambda t: setattr(model.act, "negative_slope", 1 / t),
    )
    yield "global", with_global, set_global
    yield "global of a function that is called", through_a_function, set_global
    yield "attribute of a global", with_settings, lambda t: setattr(SETTINGS, "temperature", t)
    yield "item of a global", with_a_table, lambda t: TABLE["temperature"].__setitem__(0, t)
    criterion, module = Criterion(), AsModule()
    yield "attribute of a loss", criterion, lambda t: setattr(criterion, "temperature", t)
    yield "attribute behind a method", criterion.of, lambda t: setattr(criterion, "temperature", t)
    yield "attribute of a loss module", module, lambda t: setattr(module, "temperature", t)
    yield "closure", *closure()
    yield "argument of a partial", *partial()


NAMES = [name for name, *_ in ways(Model())]


@pytest.mark.parametrize("name", NAMES)
def test_a_temperature_that_python_changes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task is right, also that behind the change, and what comes then is replayed again."""
    monkeypatch.setattr(replay, "AFTER", 3)
    torch.manual_seed(0)
    model = Model()
    loss, set_to = next((loss, how) for n, loss, how in ways(model) if n == name)
    set_to(1.0)
    net = take_in(model, torch.zeros(1, 4))
    loop = InnerLoop(net, METHODS["maml"], loss, second_order=True)
    gradients, meta = TaskGradients(loop), nets.meta_of(net, METHODS["maml"])
    for i in range(30):
        if i == 20:
            set_to(4.0)
        x, y, x_query, y_query = nets.task((4,), seed=i)
        task = (x.float(), y, x_query.float(), y_query)
        found = gradients(meta, task)
        wanted = task_gradient(loop, meta, task)
        assert found.loss == wanted.loss, i
        assert all(torch.equal(found.gradients[n], g) for n, g in wanted.gradients.items()), i
    set_to(1.0)
    assert [record is not None for record in gradients.replays.records.values()] == [True, True]


def reads_a_clock(output: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(output, y) * time.time()


def draws(output: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(output, y) * random.random()


def imports(output: Tensor, y: Tensor) -> Tensor:
    import random as r

    return cross_entropy(output, y) * r.random()


def counts(counter: Iterator[int], output: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(output, y) * next(counter)


def evaluates(output: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(output, y) * eval("1")


class Slots:
    __slots__ = ("t",)

    def __init__(self) -> None:
        self.t = 1.0

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(output, y) * self.t


@pytest.mark.parametrize(
    "loss",
    [
        reads_a_clock,
        draws,
        imports,
        evaluates,
        Slots(),
        functools.partial(counts, itertools.count()),
        functools.partial(counts, iter([1, 2])),
    ],
)
def test_what_cannot_be_watched_is_computed(loss: Loss) -> None:
    assert Watch(nn.Linear(2, 2), loss).key() is None


def plain(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none") * math.exp(0.0) + torch.log(y + 1.0)


@pytest.mark.parametrize("loss", [cross_entropy, heads.among(3), plain, lambda o, y: plain(o, y)])
@pytest.mark.parametrize("model", [Model, FourConv, ResNet12])
def test_our_backbones_and_losses_are_watched(model: Any, loss: Loss) -> None:
    watch = Watch(model(), loss)
    assert [watch.key() for _ in range(3)] == [0, 0, 0]


def test_states_are_told_apart_and_known_again() -> None:
    model = Model()
    watch = Watch(model, cross_entropy)
    keys = []
    for t in (1.0, 2.0, 1.0, 1, True, float("nan")):
        model.temperature = t
        keys.append(watch.key())
    assert keys == [0, 1, 0, 2, 3, 4]
    model.train(False)
    assert watch.key() == 5
    model.fresh = 1  # type: ignore[assignment]
    assert watch.key() == 6
    model.forward = lambda x: x  # type: ignore[method-assign]
    assert watch.key() == 7


def test_what_always_changes_is_given_up() -> None:
    model = Model()
    watch = Watch(model, cross_entropy)
    for i in range(MOST_STATES + 1):
        model.temperature = float(i)
        assert watch.key() == i
    assert watch.key() is None
