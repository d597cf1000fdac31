"""The meta-gradient (Eqs. 2, 7, 8 and 15): of one task, and of a batch of tasks."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pmeta.fast.replay import Replays, is_ours
from pmeta.method.inner import InnerLoop, cross_entropy, mse
from pmeta.method.learned import Meta
from pmeta.method.prototypes import count_classes
from pmeta.network.layers import Weights
from pmeta.network.tape import forward

CHUNK_WORDS = 15 * 2**19
"""Words of activations in a chunk of queries.

Few enough for memory, enough that calls do not cost more than the work."""
AnyTask = tuple[Any, Any, Any, Any]
"""Support samples and targets, query samples and targets, of any kind."""


class MetaGradient(NamedTuple):
    """Sums over tasks, so that the shares of several workers can be added."""

    gradients: dict[str, Tensor]
    """By the names of `Meta.parameters()`."""
    loss: float
    """Query loss."""
    correct: float
    """Share of the queries classified right; nan where the output is no class scores."""
    tasks: int
    skipped: int = 0
    """Tasks left out because their loss or gradient was not finite."""


def task_gradient(
    loop: InnerLoop, meta: Meta, task: AnyTask, chunk: int | None = None
) -> MetaGradient:
    """The gradient of the query loss after adaptation, l(w^{i,K}; Q^i), in all that is trained.

    The query gradient is taken at w^{i,K} in chunks of `chunk` samples (None: as many as
    CHUNK_WORDS holds), then sent back through the inner loop once (Eqs. 2, 7, 8 and 15).
    """
    check_task(loop, meta, task)
    return _read(meta, _gradient(loop, meta, task, chunk))


def check_task(loop: InnerLoop, meta: Meta, task: AnyTask) -> None:
    """Raise ValueError for a task that cannot be."""
    loop.check(meta, task[:2])
    if len(task[2]) == 0 or len(task[2]) != len(task[3]):
        raise ValueError(
            f"a task has as many targets as queries, at least one, got {len(task[2])} queries, "
            f"{len(task[3])} targets."
        )
    loop.check_targets(meta, task[2:])


class TaskGradients:
    """`task_gradient` for many tasks of one kind: recorded once and replayed where the network and
    the loss are ours."""

    def __init__(self, loop: InnerLoop):
        self.loop, self.replays = loop, Replays(share=not loop.recompute)

    def __call__(self, meta: Meta, task: AnyTask) -> MetaGradient:
        """The gradient of one task."""
        ours = self.loop.loss in (cross_entropy, mse) and is_ours(self.loop.net.model)
        if not ours or not all(isinstance(t, Tensor) for t in task):
            return task_gradient(self.loop, meta, task)
        check_task(self.loop, meta, task)
        parameters = meta.parameters()
        classes = count_classes(task[1]) if meta.head else None
        loop = replace(self.loop, classes=classes)

        def compute(*inputs: Tensor) -> list[Tensor]:
            here = meta.with_parameters(dict(zip(parameters, inputs, strict=False)))
            support_x, support_y, query_x, query_y = inputs[len(parameters) :]
            return _gradient(loop, here, (support_x, support_y, query_x, query_y))

        inputs = [*(t.detach() for t in parameters.values()), *task]
        key = (classes, *meta.mask.flatten().tolist())
        return _read(meta, self.replays.run(key, compute, inputs))

    def total(self, meta: Meta, tasks: Iterable[AnyTask], seeds: Sequence[int]) -> MetaGradient:
        """The sum over a batch of tasks, in their order; each has a seed of the random numbers that
        the model draws, such as those of dropout."""
        gradients = {n: torch.zeros_like(t) for n, t in meta.parameters().items()}
        counts = [0.0, 0.0, 0, 0]
        for task, seed in zip(tasks, seeds, strict=True):
            with _drawing(meta.alpha.device, seed):
                part = self(meta, task)
            for n, g in part.gradients.items():
                gradients[n].add_(g)
            counts = [a + b for a, b in zip(counts, part[1:], strict=True)]
        loss, correct, done, skipped = counts
        return MetaGradient(gradients, loss, correct, int(done), int(skipped))


@contextmanager
def _drawing(device: torch.device, seed: int) -> Iterator[None]:
    """Random numbers of PyTorch from a seed; the caller's own go on afterwards where they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


class _Draws:
    """The states of PyTorch's random numbers before the start and each step, so that what is
    computed again draws the same."""

    def __init__(self, device: torch.device):
        self.cuda = device if device.type == "cuda" else None
        self.states: list[Tensor] = []

    def keep(self) -> None:
        """Before the start, and before each step."""
        states = torch.cuda.get_rng_state(self.cuda) if self.cuda else torch.get_rng_state()
        self.states.append(states)

    def again(self, i: int) -> None:
        """Go back to the start, 0, or to a step, from 1 on."""
        if self.cuda:
            torch.cuda.set_rng_state(self.states[i], self.cuda)
        else:
            torch.set_rng_state(self.states[i])


def _gradient(loop: InnerLoop, meta: Meta, task: AnyTask, chunk: int | None = None) -> list[Tensor]:
    """The gradients in the order of `Meta.parameters()`, the query loss, the share of right
    answers, and whether all is finite."""
    support, (query_x, query_y) = task[:2], task[2:]
    start = meta.map(lambda t: t.detach().requires_grad_())
    if loop.recompute:
        draws = _Draws(meta.alpha.device)
        path = loop.path(start, support, draws.keep)
        g_w, loss, correct = query_gradient(loop, path[-1], query_x, query_y, chunk)
        gradients = _sent_back_in_steps(loop, start, support, path, g_w, draws)
    else:
        adapted = loop.steps(start, support).w
        g_w, loss, correct = query_gradient(loop, adapted, query_x, query_y, chunk)
        gradients = _sent_back(adapted, start, g_w)
    squares = torch.stack([d.square().sum() for d in gradients.values()])  # Adam squares them too
    return [*gradients.values(), loss, correct, (squares.sum() + loss).isfinite()]


def _read(meta: Meta, found: Sequence[Tensor]) -> MetaGradient:
    *gradients, loss, correct, is_finite = found
    by_name = dict(zip(meta.parameters(), gradients, strict=True))
    if is_finite:
        return MetaGradient(by_name, float(loss), float(correct), 1)
    return MetaGradient({n: torch.zeros_like(d) for n, d in by_name.items()}, 0.0, 0.0, 0, 1)


def _sent_back(adapted: Weights, start: Meta, g_w: Weights) -> dict[str, Tensor]:
    """The gradient in all of `start` of what has the gradient g_w in the adapted weights."""
    inputs = start.parameters()
    product = torch.stack([(adapted[name] * g_w[name]).sum() for name in adapted]).sum()
    g = torch.autograd.grad(product, list(inputs.values()), allow_unused=True)
    found = zip(inputs.items(), g, strict=True)
    return {n: torch.zeros_like(t) if d is None else d for (n, t), d in found}


def _sent_back_in_steps(
    loop: InnerLoop,
    start: Meta,
    support: tuple[Any, Any],
    path: list[Weights],
    g_w: Weights,
    draws: _Draws,
) -> dict[str, Tensor]:
    """The same along a path of weights, with one step at a time computed again."""
    total = {name: torch.zeros_like(t) for name, t in start.parameters().items()}
    for k in reversed(range(len(start.alpha))):
        draws.again(k + 1)
        here = replace(start, w={name: t.detach().requires_grad_() for name, t in path[k].items()})
        g = _sent_back(loop.step(here, here.w, k, support)[0], here, g_w)
        g_w = {name: g.pop(f"w/{name}") for name in g_w}
        for name, d in g.items():
            total[name] += d
    draws.again(0)
    if start.head:
        g = _sent_back(loop.start(start, support), start, g_w)
        return {name: total[name] + d for name, d in g.items()}
    return {**total, **{f"w/{name}": d for name, d in g_w.items()}}


def query_gradient(
    loop: InnerLoop, w: Weights, x: Any, y: Any, chunk: int | None
) -> tuple[Weights, Tensor, Tensor]:
    """The gradient of the mean query loss at w, that loss, and the share of queries classified
    right."""
    w = {name: t.detach().requires_grad_() for name, t in w.items()}
    total, losses, hits = [torch.zeros_like(t) for t in w.values()], [], []
    size = chunk or max(1, CHUNK_WORDS // sum(math.prod(op.y) for op in loop.net.ops))
    if loop.net.mixes_samples:  # the statistics of a batch norm are those of all queries together
        size = len(x)
    for i in range(0, len(x), size):
        output, _ = forward(loop.net, w, x[i : i + size], pool_first=loop.pool_first)
        part = loop.loss(output, y[i : i + size]).sum() / len(x)
        for sum_, g in zip(total, torch.autograd.grad(part, list(w.values())), strict=True):
            sum_ += g
        losses.append(part.detach().double())
        hits.append(_hits(output, y[i : i + size]) / len(x))
    return dict(zip(w, total, strict=True)), torch.stack(losses).sum(), torch.stack(hits).sum()


def _hits(output: Any, y: Any) -> Tensor:
    """How many samples have their largest output at the target's place; nan where that makes no
    sense."""
    tensors = isinstance(output, Tensor) and isinstance(y, Tensor)
    if tensors and not y.is_floating_point() and (output.dim(), y.dim()) == (2, 1):
        return (output.argmax(1) == y).sum().double()
    return torch.tensor(math.nan)
