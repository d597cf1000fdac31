"""The outer loop (Alg. 2, Eqs. 2, 7, 8, 9 and 15): the meta-gradient of a batch of tasks, and one update with it."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pmeta.base.errors import DivergedError
from pmeta.fast.replay import Replays
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta, Weights
from pmeta.method.step_sizes import freeze, input_kib, lasso_gradient

CHUNK_WORDS = 15 * 2**19
"""Words of activations in a chunk of queries: few enough for memory, enough that calls do not cost more than the work."""
BAD_UPDATES = 10
"""So many updates in a row with tasks that had to be skipped end a training."""


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


Task = tuple[Any, Any, Any, Any]
"""Support samples and targets, query samples and targets."""


def task_gradient(
    loop: InnerLoop, meta: Meta, task: Task, chunk: int | None = None
) -> MetaGradient:
    """The gradient of the query loss after adaptation, l(w^{i,K}; Q^i), in all that is trained (Eqs. 2, 7, 8 and 15).

    The query gradient is taken at w^{i,K} in chunks of `chunk` samples (None: as many as CHUNK_WORDS holds), then sent back
    through the inner loop once.
    """
    loop.check(meta, task[:2])
    return _read(meta, _gradient(loop, meta, task, chunk))


class TaskGradients:
    """`task_gradient` for many tasks of one kind: recorded once and replayed."""

    def __init__(self, loop: InnerLoop):
        self.loop, self.replays = loop, Replays(share=not loop.recompute)

    def __call__(self, meta: Meta, task: Task) -> MetaGradient:
        """The gradient of one task."""
        self.loop.check(meta, task[:2])
        if not (self.loop.replay and all(isinstance(t, Tensor) for t in task)):
            return _read(meta, _gradient(self.loop, meta, task))
        parameters = meta.parameters()

        def compute(*inputs: Tensor) -> list[Tensor]:
            here = meta.with_parameters(dict(zip(parameters, inputs, strict=False)))
            support_x, support_y, query_x, query_y = inputs[len(parameters) :]
            return _gradient(self.loop, here, (support_x, support_y, query_x, query_y))

        inputs = [*(t.detach() for t in parameters.values()), *task]
        return _read(meta, self.replays.run(tuple(meta.mask.flatten().tolist()), compute, inputs))

    def total(self, meta: Meta, tasks: Iterable[Task]) -> MetaGradient:
        """The sum over a batch of tasks, in their order."""
        total = MetaGradient(
            {n: torch.zeros_like(t) for n, t in meta.parameters().items()}, 0.0, 0.0, 0
        )
        for task in tasks:
            part = self(meta, task)
            for n, g in part.gradients.items():
                total.gradients[n].add_(g)
            total = MetaGradient(
                total.gradients,
                total.loss + part.loss,
                total.correct + part.correct,
                total.tasks + part.tasks,
                total.skipped + part.skipped,
            )
        return total


def _gradient(loop: InnerLoop, meta: Meta, task: Task, chunk: int | None = None) -> list[Tensor]:
    """The gradients in the order of `Meta.parameters()`, the query loss, the share of right answers, whether all is finite."""
    support, (query_x, query_y) = task[:2], task[2:]
    start = meta.map(lambda t: t.detach().requires_grad_())
    if loop.recompute:
        path = loop.path(start, support)
        g_w, loss, correct = query_gradient(loop, path[-1], query_x, query_y, chunk)
        gradients = _sent_back_in_steps(loop, start, support, path, g_w)
    else:
        adapted = loop.steps(start, support).w
        g_w, loss, correct = query_gradient(loop, adapted, query_x, query_y, chunk)
        gradients = _sent_back(adapted, start, g_w)
    squares = torch.stack(
        [d.square().sum() for d in gradients.values()]
    ).sum()  # Adam squares them too
    return [*gradients.values(), loss, correct, (squares + loss).isfinite()]


def _read(meta: Meta, found: Sequence[Tensor]) -> MetaGradient:
    *gradients, loss, correct, is_finite = found
    by_name = dict(zip(meta.parameters(), gradients, strict=True))
    if is_finite:
        return MetaGradient(by_name, float(loss), float(correct), 1)
    return MetaGradient(
        {n: torch.zeros_like(d) for n, d in by_name.items()}, 0.0, 0.0, 0, skipped=1
    )


def _sent_back(adapted: Weights, start: Meta, g_w: Weights) -> dict[str, Tensor]:
    """The gradient in all of `start` of what has the gradient g_w in the adapted weights."""
    inputs = start.parameters()
    product = torch.stack([(adapted[name] * g_w[name]).sum() for name in adapted]).sum()
    g = torch.autograd.grad(product, list(inputs.values()), allow_unused=True)
    return {
        n: torch.zeros_like(t) if d is None else d
        for (n, t), d in zip(inputs.items(), g, strict=True)
    }


def _sent_back_in_steps(
    loop: InnerLoop, start: Meta, support: tuple[Any, Any], path: list[Weights], g_w: Weights
) -> dict[str, Tensor]:
    """The same along a path of weights, with one step at a time computed again."""
    total = {name: torch.zeros_like(t) for name, t in start.parameters().items()}
    for k in reversed(range(len(start.alpha))):
        here = replace(start, w={name: t.detach().requires_grad_() for name, t in path[k].items()})
        g = _sent_back(loop.step(here, here.w, k, support)[0], here, g_w)
        g_w = {name: g.pop(f"w/{name}") for name in g_w}
        for name, d in g.items():
            total[name] += d
    return {**total, **{f"w/{name}": d for name, d in g_w.items()}}


def query_gradient(
    loop: InnerLoop, w: dict[str, Tensor], x: Any, y: Any, chunk: int | None
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """The gradient of the mean query loss at the weights w, that loss, and the share of queries classified right."""
    w = {name: t.detach().requires_grad_() for name, t in w.items()}
    total, losses, hits = [torch.zeros_like(t) for t in w.values()], [], []
    size = chunk or max(1, CHUNK_WORDS // sum(math.prod(op.y) for op in loop.net.ops))
    if loop.net.mixes_samples:  # the statistics of a batch norm are those of all queries together
        size = len(x)
    for i in range(0, len(x), size):
        output, _ = loop.net.run(w, x[i : i + size], pool_first=loop.pool_first)
        part = loop.loss(output, y[i : i + size]).sum() / len(x)
        for sum_, g in zip(total, torch.autograd.grad(part, list(w.values())), strict=True):
            sum_ += g
        losses.append(part.detach().double())
        hits.append(_hits(output, y[i : i + size]) / len(x))
    return dict(zip(w, total, strict=True)), torch.stack(losses).sum(), torch.stack(hits).sum()


def _hits(output: Any, y: Any) -> Tensor:
    """How many samples have their largest output at the target's place; nan where that makes no sense."""
    if (
        isinstance(output, Tensor)
        and isinstance(y, Tensor)
        and not y.is_floating_point()
        and (output.dim(), y.dim()) == (2, 1)
    ):
        return (output.argmax(1) == y).sum().double()
    return torch.tensor(math.nan)


@dataclass(frozen=True)
class Schedule:
    """The settings of the outer loop. Adam throughout, each rate annealed along a cosine to a hundredth."""

    updates: int
    """Outer updates in all."""
    lr: float = 1e-3
    """beta of the weights."""
    alpha_lr: float = 1e-3
    """beta of the step sizes."""
    attention_lr: float = 1e-3
    """beta of the attention weights."""
    attention_bias_lr: float = 1e-2
    """beta of the last bias of each attention module, and of alpha^Ch."""
    lam: float = 0.001
    """lambda of Eq. 9, for inputs in KiB; it rises from 0 over the first `warm_up`."""
    warm_up: float = 0.2
    """Share of the updates."""
    freeze_at: float = 0.7
    """Share of the updates after which small step sizes are set to zero for good and the penalty ends."""
    freeze_below: float = 0.1
    """What is small, as a share of the largest step size before the training."""

    def rate(self, done: int) -> float:
        """The factor of the cosine schedule."""
        return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(done / self.updates, 1)))

    def penalty(self, done: int) -> float:
        """lambda at this point of the training."""
        return self.lam * min(1.0, done / max(1.0, self.warm_up * self.updates))


class Outer:
    """The outer optimiser: a Meta in training and its Adam moments, both of which `state()` gives and `load()` takes."""

    def __init__(
        self,
        loop: InnerLoop,
        meta: Meta,
        schedule: Schedule,
        choose: Callable[[Meta], Meta] | None = None,
    ):
        """`choose` says at `freeze_at` which step sizes live on; by default those that are not small."""
        self.loop, self.schedule, self.gradients = loop, schedule, TaskGradients(loop)
        self.meta = meta.map(lambda t: t.detach().clone().requires_grad_())
        small = schedule.freeze_below * float(meta.alpha.max())
        self.choose = choose or (lambda meta: freeze(meta, small))
        self.kib = input_kib(loop.net).to(meta.alpha)
        self.done = self.steps = self.bad_in_a_row = 0
        self.frozen = not loop.method.sparse_alpha
        self.moments = {
            n: (torch.zeros_like(t), torch.zeros_like(t)) for n, t in meta.parameters().items()
        }

    def base_rate(self, name: str) -> float:
        """beta of one trained tensor."""
        if name == "alpha":
            return self.schedule.alpha_lr if self.loop.method.learn_alpha else 0.0
        if name.startswith("w/"):
            return self.schedule.lr
        return (
            self.schedule.attention_bias_lr
            if name.endswith((".b2", ".alpha"))
            else self.schedule.attention_lr
        )

    def gradient(self, tasks: Iterable[Task]) -> MetaGradient:
        """The meta-gradient of a batch of tasks."""
        return self.gradients.total(self.meta, tasks)

    def update(self, g: MetaGradient) -> None:
        """One outer update with the mean over the tasks of a batch (Eqs. 7, 8, 9 and 15); none where all were skipped."""
        self.bad_in_a_row = self.bad_in_a_row + 1 if g.skipped else 0
        if g.tasks:
            self._step({name: gradient / g.tasks for name, gradient in g.gradients.items()})
        self.done += 1
        if not self.frozen and self.done >= self.schedule.freeze_at * self.schedule.updates:
            chosen = self.choose(self.meta)
            self.meta.alpha.detach().copy_(chosen.alpha)
            self.meta = replace(self.meta, mask=chosen.mask)
            self.frozen = True

    @torch.no_grad()
    def _step(self, mean: dict[str, Tensor]) -> None:
        if not self.frozen:
            mean["alpha"] = mean["alpha"] + lasso_gradient(
                mean["alpha"], self.kib, self.schedule.penalty(self.done)
            )  # Eq. 9
        self.steps += 1
        for name, tensor in self.meta.parameters().items():
            rate = self.base_rate(name) * self.schedule.rate(self.done)
            adam_step(tensor, mean[name], *self.moments[name], rate, self.steps)
            if name == "alpha" or (
                name.startswith("attention/") and name.endswith(".alpha")
            ):  # the latter is alpha^Ch
                tensor.clamp_(min=0)
        self.meta.alpha.mul_(self.meta.mask)

    def check_finite(self, kept: str = "") -> None:
        """Raise DivergedError once losses or gradients were not finite for too long; `kept` says what is left."""
        if self.bad_in_a_row >= BAD_UPDATES:
            raise DivergedError(
                f"loss or gradient was not finite in {BAD_UPDATES} updates in a row, the last of them update {self.done}: "
                f"lower lr or alpha_0.{kept}"
            )

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed training needs, as named tensors."""
        parameters = {n: t.detach() for n, t in self.meta.parameters().items()}
        first = {f"adam/first/{n}": m for n, (m, _) in self.moments.items()}
        second = {f"adam/second/{n}": v for n, (_, v) in self.moments.items()}
        counters = {key: torch.tensor(getattr(self, key)) for key in ("done", "steps", "frozen")}
        return {**parameters, "mask": self.meta.mask, **first, **second, **counters}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up the training where `state` was taken."""
        with torch.no_grad():
            for name, tensor in self.meta.parameters().items():
                tensor.copy_(state[name])
                self.moments[name][0].copy_(state[f"adam/first/{name}"])
                self.moments[name][1].copy_(state[f"adam/second/{name}"])
        self.meta = replace(self.meta, mask=state["mask"].to(self.meta.mask))
        self.done, self.steps, self.frozen = (
            int(state["done"]),
            int(state["steps"]),
            bool(state["frozen"]),
        )


def adam_step(
    tensor: Tensor, g: Tensor, first: Tensor, second: Tensor, rate: float, t: int
) -> None:
    """Step t of Adam (Kingma & Ba 2015), in place: the moments of the gradient g, then the tensor.

    That of torch.optim imports the compiler, which takes as long as torch itself."""
    first.lerp_(g, 0.1)
    second.mul_(0.999).addcmul_(g, g, value=0.001)
    deviation = second.sqrt() / math.sqrt(1 - 0.999**t) + 1e-8
    tensor.addcdiv_(first, deviation, value=-rate / (1 - 0.9**t))
