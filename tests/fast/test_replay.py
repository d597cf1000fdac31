"""Replaying a computation: the same to the bit as computing it, or not at all."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from pmeta.fast import replay
from pmeta.fast.replay import NotReplayableError, Replay, Replays, is_ours
from pmeta.method.inner import InnerLoop, cross_entropy, mse
from pmeta.method.learned import Meta
from pmeta.method.meta_gradient import MetaGradient, TaskGradients, task_gradient
from pmeta.method.methods import METHODS
from pmeta.network.backbones import FourConv, ResNet12, initialise
from pmeta.network.take_in import take_in
from tests.helpers import nets

SHAPE = (3, 8, 8)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "AFTER", 2)


def same(a: MetaGradient, b: MetaGradient) -> bool:
    return repr(a[1:]) == repr(b[1:]) and all(
        torch.equal(a.gradients[n], g) for n, g in b.gradients.items()
    )


def follows(loop: InnerLoop, meta: Meta, tasks: list[Any]) -> TaskGradients:
    """Gradients of many tasks, each of them as computed alone."""
    gradients = TaskGradients(loop)
    for task in tasks:
        assert same(gradients(meta, task), task_gradient(loop, meta, task))
    return gradients


def replays(gradients: TaskGradients) -> list[bool]:
    """Of each record whether it is relied on."""
    return [record is not None for record in gradients.replays.records.values()]


@pytest.mark.parametrize(("kind", "dtype"), [("4Conv", torch.float32), ("ResNet12", torch.float64)])
@pytest.mark.parametrize(
    "settings", [{}, {"second_order": False}, {"recompute": True}, {"batch": 2}], ids=str
)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_the_same_to_the_bit(
    name: str, settings: dict[str, Any], kind: str, dtype: torch.dtype
) -> None:
    net, shape = nets.NETS[kind]()
    loop = InnerLoop(net, METHODS[name], **{"second_order": True, **settings})
    meta = nets.meta_of(net, METHODS[name]).map(lambda t: t.to(dtype))
    tasks = [nets.task(shape, seed=seed) for seed in range(6)]
    cast = [(x.to(dtype), y, x_query.to(dtype), y_query) for x, y, x_query, y_query in tasks]
    assert replays(follows(loop, meta, cast)) == [True]


def test_our_own_kernels_are_operations_of_the_record() -> None:
    model = initialise(FourConv(3, (3, 32, 32)), nets.generator())
    net = take_in(model, torch.zeros(1, 3, 32, 32))
    meta = nets.meta_of(net, METHODS["pmeta"]).map(Tensor.float)
    tasks = [
        tuple(t.float() if t.is_floating_point() else t for t in nets.task((3, 32, 32), seed=s))
        for s in range(5)
    ]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        gradients = follows(InnerLoop(net, METHODS["pmeta"], second_order=True), meta, tasks)
    finally:
        torch.set_num_threads(before)
    assert replays(gradients) == [True]
    (record,) = gradients.replays.records.values()
    assert record
    kernels = {
        node.target.__name__
        for node in record.module.graph.nodes
        if getattr(node.target, "__module__", "")[:6] == "pmeta."
    }
    assert {
        "output",
        "weight_gradient",
        "input_gradient",
        "forward",
        "backward",
        "twice",
    } <= kernels


def test_other_masks_and_other_sizes_are_recorded_anew() -> None:
    net, _ = nets.NETS["ResNet12"]()
    loop, meta = (
        InnerLoop(net, METHODS["pmeta"], second_order=True),
        nets.meta_of(net, METHODS["pmeta"]),
    )
    tasks = [nets.task(SHAPE, seed=seed) for seed in range(4)]
    gradients = follows(loop, meta, tasks)
    mask = meta.mask.clone()
    mask[:, 0] = False
    smaller = [(x[:3], y[:3], x_query, y_query) for x, y, x_query, y_query in tasks]
    for now, given in ((replace(meta, mask=mask), tasks), (meta, smaller)):
        for task in given:
            assert same(gradients(now, task), task_gradient(loop, now, task))
    assert replays(gradients) == [True] * 3


def test_a_task_that_is_not_finite_is_left_out() -> None:
    net, _ = nets.NETS["ResNet12"]()
    loop, meta = (
        InnerLoop(net, METHODS["maml"], second_order=True),
        nets.meta_of(net, METHODS["maml"]),
    )
    gradients = follows(loop, meta, [nets.task(SHAPE, seed=seed) for seed in range(4)])
    x, y, x_query, y_query = nets.task(SHAPE)
    found = gradients(meta, (x * torch.inf, y, x_query, y_query))
    assert (found.tasks, found.skipped) == (0, 1)
    assert not any(g.any() for g in found.gradients.values())


def test_regression_is_replayed_though_it_has_no_right_answers() -> None:
    net, _ = nets.NETS["ResNet12"]()
    gradients = TaskGradients(InnerLoop(net, METHODS["maml"], mse, second_order=True))
    for x, y, x_query, y_query in (nets.task(SHAPE, seed=seed) for seed in range(4)):
        task = x, F.one_hot(y, 3).double(), x_query, F.one_hot(y_query, 3).double()
        gradients(nets.meta_of(net, METHODS["maml"]), task)
    assert replays(gradients) == [True]


def test_what_looks_at_values_is_computed() -> None:
    """As the norms of 4Conv do where no C kernel serves them."""
    net, shape = nets.NETS["4Conv"]()
    loop, meta = InnerLoop(net, METHODS["maml"]), nets.meta_of(net, METHODS["maml"])
    tasks = [nets.task(shape, seed=seed) for seed in range(4)]
    assert replays(follows(loop, meta, tasks)) == [False]


def test_support_and_query_in_one_memory() -> None:
    net, _ = nets.NETS["ResNet12"]()
    tasks = [nets.task(SHAPE, seed=seed) for seed in range(6)]
    alike = [(x, y, x, y) for x, y, *_ in tasks]
    apart = [(*a[:2], *b[:2]) for a, b in pairwise(tasks)]
    loop = InnerLoop(net, METHODS["maml"], second_order=True)
    gradients = follows(loop, nets.meta_of(net, METHODS["maml"]), [*alike, *apart])
    assert replays(gradients) == [True]


def test_a_loss_of_the_user_whose_second_derivative_is_a_zero_without_memory() -> None:
    net, _ = nets.NETS["ResNet12"]()
    tasks = []
    for seed in range(5):
        x, y, x_query, y_query = nets.task(SHAPE, seed=seed)
        tasks.append((x, F.one_hot(y, 3).double(), x_query, F.one_hot(y_query, 3).double()))
    loop = InnerLoop(net, METHODS["maml"], lambda o, y: (o - y).abs().mean(1), second_order=True)
    assert replays(follows(loop, nets.meta_of(net, METHODS["maml"]), tasks)) == []


def with_temperature(output: Tensor, y: Tensor, temperature: float = 1.0) -> Tensor:
    return cross_entropy(output / temperature, y)


class Tempered(ResNet12):
    """A network of the user's, made from one of ours."""

    def forward(self, x: Tensor, temperature: float = 1.0) -> Tensor:
        return super().forward(x) / temperature


@pytest.mark.parametrize("changed", ["loss", "network"])
def test_a_default_argument_of_the_user_that_changes(changed: str) -> None:
    f: Any = with_temperature if changed == "loss" else Tempered.forward
    model = ResNet12 if changed == "loss" else Tempered
    net = nets.network(model(3, SHAPE, (8, 8)), SHAPE)
    loss = with_temperature if changed == "loss" else cross_entropy
    loop = InnerLoop(net, METHODS["maml"], loss, second_order=True)
    gradients, meta = TaskGradients(loop), nets.meta_of(net, METHODS["maml"])
    try:
        for seed in range(8):
            f.__defaults__ = (1.0 if seed < 5 else 2.0,)
            task = nets.task(SHAPE, seed=seed)
            assert same(gradients(meta, task), task_gradient(loop, meta, task)), seed
    finally:
        f.__defaults__ = (1.0,)


def own_layer(model: nn.Module) -> None:
    model.fc = OwnLayer(8, 3)


def dropping(model: nn.Module) -> None:
    model.norm2 = nn.Sequential(nn.GroupNorm(4, 8), nn.Dropout())


def hooked(model: nn.Module) -> None:
    model.get_submodule("norm2").register_forward_hook(lambda m, x, y: y)


def patched(model: nn.Module) -> None:
    model.forward = model.forward


class OwnLayer(nn.Linear):
    pass


@pytest.mark.parametrize("change", [own_layer, dropping, hooked, patched])
def test_a_network_of_ours_with_code_of_the_user_in_it(change: Callable[[nn.Module], None]) -> None:
    for norm in ("group", "batch", "none"):
        assert is_ours(FourConv(3, (3, 16, 16), 8, 4, norm))
    model = FourConv(3, (3, 16, 16), 8, 4)
    change(model)
    assert not is_ours(model)


def check(compute: replay.Compute, *shapes: tuple[int, ...], share: bool = True) -> Replay:
    """The record of `compute`, tried on other inputs than those it was made with."""
    first, *others = (
        [torch.randn(shape, generator=nets.generator(s)) for shape in shapes] for s in range(3)
    )
    record = Replay(compute, first, share)
    for inputs in others:
        expected = compute(*(t.clone() for t in inputs))
        assert all(
            torch.equal(a, b)
            for a, b in zip(expected, record(*(t.clone() for t in inputs)), strict=True)
        )
    return record


def test_operations_in_place_and_views_of_what_they_change() -> None:
    def compute(x: Tensor, y: Tensor) -> list[Tensor]:
        a, b = torch.zeros(3), torch.zeros(3)  # equal until they are written to
        row = a[:2]
        a += x
        row.mul_(2)
        b.add_(y).relu_()
        return [a, b, row, x.view(3, 1) @ y.view(1, 3)]

    check(compute, (3,), (3,))


def test_operations_that_write_to_an_out_argument() -> None:
    def compute(x: Tensor) -> list[Tensor]:
        buffer = torch.zeros(3)
        torch.add(x, 1, out=buffer)
        torch._foreach_mul_([buffer], 2.0)
        return [buffer * 2]

    check(compute, (3,))


def test_constants_are_kept_and_memory_is_told_apart_when_it_is_used_again() -> None:
    table = torch.arange(3.0)

    def compute(x: Tensor) -> list[Tensor]:
        total = x * table
        for i in range(50):
            step = (x + i).sin() * torch.tensor([1.0, 2.0, float(i)])  # freed in each turn
            total = total + step.exp()
        return [total]

    check(compute, (3,))


def test_what_is_computed_twice_is_computed_once_where_that_is_wanted() -> None:
    def compute(x: Tensor) -> list[Tensor]:
        return [x.sin() + x.sin()]

    counts = [
        sum(
            node.target is torch.ops.aten.sin.default
            for node in check(compute, (3,), share=share).module.graph.nodes
        )
        for share in (True, False)
    ]
    assert counts == [1, 2]


def test_sums_with_zeros_are_left_out_where_nothing_else_changes() -> None:
    def compute(x: Tensor, y: Tensor) -> list[Tensor]:
        wider = x[:1] + torch.zeros_like(y)  # of another size
        written = torch.zeros_like(x)
        total = y + written
        written.add_(x)
        return [x + torch.zeros_like(x), wider, total, written]

    record = check(compute, (3,), (3,))
    assert sum(node.target is torch.add for node in record.module.graph.nodes) == 2


def test_random_numbers_are_drawn_anew() -> None:
    record = Replay(lambda x: [x + torch.rand(3), torch.rand(3)], [torch.zeros(3)])
    torch.manual_seed(1)
    expected = [torch.rand(3), torch.rand(3)]
    torch.manual_seed(1)
    assert all(torch.equal(a, b) for a, b in zip(expected, record(torch.zeros(3)), strict=True))


def test_reading_a_value_is_an_error_and_ends_the_recording() -> None:
    with pytest.raises(NotReplayableError):
        Replay(lambda x: [x * float(x.sum())], [torch.ones(3)])
    assert _get_current_dispatch_mode() is None


def test_nothing_is_recorded_that_comes_but_once() -> None:
    runs = Replays()
    runs.run("once", lambda x: [x + 1], [torch.ones(2)])
    assert not runs.records


def test_a_record_that_differs_is_not_relied_on() -> None:
    factor = [1.0]
    runs = Replays()
    for i in range(1, 6):
        factor[0] = float(i)
        (found,) = runs.run("count", lambda x: [x * factor[0]], [torch.ones(2)])
        assert float(found[0]) == i
    assert list(runs.records.values()) == [None]
