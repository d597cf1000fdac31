"""Replaying a computation: the same to the bit as computing it, or not at all."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.fast import replay
from pmeta.fast.replay import NotReplayableError, Replay, Replays
from pmeta.method.inner import InnerLoop, Loss, cross_entropy
from pmeta.method.learned import Meta
from pmeta.method.meta_gradient import MetaGradient, TaskGradients, task_gradient
from pmeta.method.methods import METHODS
from pmeta.network.take_in import take_in
from tests.helpers import nets

SHAPE = (2, 6, 6)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "AFTER", 2)


def same(a: MetaGradient, b: MetaGradient) -> bool:
    return a[1:] == b[1:] and all(torch.equal(a.gradients[n], g) for n, g in b.gradients.items())


def follows(loop: InnerLoop, meta: Meta, tasks: list[Any]) -> TaskGradients:
    """Gradients of many tasks, each of them as computed alone."""
    gradients = TaskGradients(loop)
    for task in tasks:
        assert same(gradients(meta, task), task_gradient(loop, meta, task))
    return gradients


def replays(gradients: TaskGradients) -> list[bool]:
    """Of each record whether it is relied on."""
    return [record is not None for record in gradients.replays.records.values()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "settings", [{}, {"second_order": False}, {"recompute": True}, {"batch": 2}], ids=str
)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_the_same_to_the_bit(
    name: str, settings: dict[str, Any], dtype: torch.dtype
) -> None:
    net = nets.network(nets.Residual(), SHAPE)
    loop = InnerLoop(net, METHODS[name], **{"second_order": True, **settings})
    meta = nets.meta_of(net, METHODS[name]).map(lambda t: t.to(dtype))
    tasks = [nets.task(SHAPE, seed=seed) for seed in range(6)]
    cast = [(x.to(dtype), y, x_query.to(dtype), y_query) for x, y, x_query, y_query in tasks]
    assert replays(follows(loop, meta, cast)) == [True]


def test_our_own_kernels_are_operations_of_the_record() -> None:
    torch.manual_seed(0)
    net = take_in(
        nn.Sequential(*_block(3), *_block(32), nn.Flatten(), nn.Linear(32 * 4 * 4, 3)),
        torch.zeros(1, 3, 16, 16),
    )
    meta = nets.meta_of(net, METHODS["pmeta"]).map(Tensor.float)
    tasks = [
        tuple(t.float() if t.is_floating_point() else t for t in nets.task((3, 16, 16), seed=s))
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


def _block(inputs: int) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, 32, 3, padding=1, bias=False),
        nn.GroupNorm(8, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]


def test_other_masks_and_other_sizes_are_recorded_anew() -> None:
    net = nets.network(nets.Residual(), SHAPE)
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
    net = nets.network(nets.Residual(), SHAPE)
    loop, meta = (
        InnerLoop(net, METHODS["maml"], second_order=True),
        nets.meta_of(net, METHODS["maml"]),
    )
    gradients = follows(loop, meta, [nets.task(SHAPE, seed=seed) for seed in range(4)])
    x, y, x_query, y_query = nets.task(SHAPE)
    found = gradients(meta, (x * torch.inf, y, x_query, y_query))
    assert (found.tasks, found.skipped) == (0, 1)
    assert not any(g.any() for g in found.gradients.values())


class Fickle(nn.Module):
    """A model whose path depends on what Python counts, or reads in a tensor."""

    def __init__(self, reads: bool):
        super().__init__()
        self.fc1, self.fc2, self.reads, self.runs = nn.Linear(4, 4), nn.Linear(4, 3), reads, 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += not self.reads
        odd = float(x.sum()) > 0 if self.reads else self.runs % 5 == 0
        return self.fc2(F.relu(self.fc1(x)) if odd else torch.tanh(self.fc1(x)))


@pytest.mark.parametrize("reads", [True, False])
def test_a_model_that_cannot_be_replayed_is_computed(reads: bool) -> None:
    torch.manual_seed(0)
    model = Fickle(reads).double()
    net = take_in(model, torch.zeros(1, 4, dtype=torch.float64))
    loop = InnerLoop(net, METHODS["maml"], second_order=True)
    gradients, meta = TaskGradients(loop), nets.meta_of(net, METHODS["maml"])
    for seed in range(6):
        task = nets.task((4,), seed=seed)
        model.runs = 0 if reads else seed
        found = gradients(meta, task)
        model.runs = 0 if reads else seed
        assert same(found, task_gradient(loop, meta, task))
    assert replays(gradients) == ([False] if reads else [])


def learns_of_changes(loss: Loss, tasks: list[Any]) -> list[bool]:
    """Whether records are relied on after tasks whose gradients are all right."""
    torch.manual_seed(0)
    net = take_in(
        nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double(),
        torch.zeros(1, 4, dtype=torch.float64),
    )
    loop = InnerLoop(net, METHODS["maml"], loss, second_order=True)
    return replays(follows(loop, nets.meta_of(net, METHODS["maml"]), tasks))


def test_sizes_that_depend_on_values() -> None:
    def loss(output: Tensor, y: Tensor) -> Tensor:  # where y is -1 there is no label
        return F.cross_entropy(output, y, reduction="none", ignore_index=-1) * (
            len(y) / len(y[y >= 0])
        )

    tasks = []
    for seed in range(5):
        x, y, x_query, y_query = nets.task((4,), seed=seed)
        tasks.append((x, y.where(torch.arange(len(y)) >= seed // 4, -1), x_query, y_query))
    assert learns_of_changes(loss, tasks) == [False]


def test_values_that_are_compared() -> None:
    def loss(output: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(output, y, reduction="none") * (1 + torch.equal(y, y.flip(0)))

    assert learns_of_changes(loss, [nets.task((4,), seed=seed) for seed in range(5)]) == [False]


def test_support_and_query_in_one_memory() -> None:
    tasks = [nets.task((4,), seed=seed) for seed in range(6)]
    alike, apart = (
        [(x, y, x, y) for x, y, *_ in tasks],
        [(*a[:2], *b[:2]) for a, b in pairwise(tasks)],
    )
    assert learns_of_changes(cross_entropy, [*alike, *apart]) == [True]


def test_regression_is_replayed_though_it_has_no_right_answers() -> None:
    def loss(output: Tensor, y: Tensor) -> Tensor:
        return (output[:, 0] - y).square()

    torch.manual_seed(0)
    net = take_in(
        nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double(),
        torch.zeros(1, 4, dtype=torch.float64),
    )
    gradients = TaskGradients(InnerLoop(net, METHODS["maml"], loss, second_order=True))
    for seed in range(4):
        x, y, x_query, y_query = nets.task((4,), seed=seed)
        gradients(nets.meta_of(net, METHODS["maml"]), (x, y.double(), x_query, y_query.double()))
    assert replays(gradients) == [True]


def test_a_number_that_python_changes_late_is_noticed() -> None:
    factor = [1.0]
    runs = Replays()
    for i in range(1, 20):
        factor[0] = 1.0 if i < 10 else 2.0
        with pytest.warns(UserWarning, match="replay=False") if i == 11 else nullcontext():
            (found,) = runs.run("count", lambda x: [x * factor[0]], [torch.ones(2)])
        if i != 10:  # between two looks
            assert float(found[0]) == factor[0]


def test_replay_can_be_turned_off() -> None:
    net = nets.network(nets.Residual(), SHAPE)
    loop = InnerLoop(net, METHODS["maml"], second_order=True, replay=False)
    assert (
        replays(
            follows(
                loop,
                nets.meta_of(net, METHODS["maml"]),
                [nets.task(SHAPE, seed=seed) for seed in range(4)],
            )
        )
        == []
    )


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
    assert replay.Recorder.at_work is None


def test_nothing_is_recorded_that_comes_but_once() -> None:
    runs = Replays()
    runs.run("once", lambda x: [x + 1], [torch.ones(2)])
    assert not runs.records
