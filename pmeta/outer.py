"""The outer loop (Alg. 2, Eqs. 2, 7, 8, 9 and 15): the meta-gradient of a batch of tasks, and one update with it."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pmeta.inner import InnerLoop
from pmeta.meta import Meta
from pmeta.step_sizes import freeze, input_kib, lasso_gradient


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


CHUNK_WORDS = 2**25
"""Words of activations in a chunk of queries: few enough for memory, enough that calls do not cost more than the work."""


def task_gradient(loop: InnerLoop, meta: Meta, task: tuple[Any, Any, Any, Any], chunk: int | None = None) -> MetaGradient:
    """The gradient of the query loss after adaptation, l(w^{i,K}; Q^i), in all that is trained (Eqs. 2, 7, 8 and 15).

    The query gradient is taken at w^{i,K} in chunks of `chunk` samples (None: as many as CHUNK_WORDS holds), then sent back
    through the inner loop once.
    """
    support_x, support_y, query_x, query_y = task
    start = meta.map(lambda t: t.detach().requires_grad_())
    adapted = loop.adapt(start, (support_x, support_y)).w
    g_w, loss, correct = query_gradient(loop, adapted, query_x, query_y, chunk)
    inputs = start.parameters()
    moved = [name for name in adapted if adapted[name].requires_grad]
    g = torch.autograd.grad([adapted[n] for n in moved], list(inputs.values()), [g_w[n] for n in moved], allow_unused=True)
    gradients = {n: torch.zeros_like(t) if d is None else d for (n, t), d in zip(inputs.items(), g, strict=True)}
    if math.isfinite(loss) and all(bool(d.isfinite().all()) for d in gradients.values()):
        return MetaGradient(gradients, loss, correct, 1)
    return MetaGradient({n: torch.zeros_like(d) for n, d in gradients.items()}, 0.0, 0.0, 0, skipped=1)


def query_gradient(
    loop: InnerLoop, w: dict[str, Tensor], x: Any, y: Any, chunk: int | None
) -> tuple[dict[str, Tensor], float, float]:
    """The gradient of the mean query loss at the weights w, that loss, and the share of queries classified right."""
    w = {name: t.detach().requires_grad_() for name, t in w.items()}
    total, loss, correct = [torch.zeros_like(t) for t in w.values()], 0.0, 0.0
    size = chunk or max(1, CHUNK_WORDS // sum(math.prod(op.y) for op in loop.net.ops))
    for i in range(0, len(x), size):
        output, _ = loop.net.run(w, x[i : i + size], pool_first=loop.pool_first)
        part = loop.loss(output, y[i : i + size]).sum() / len(x)
        for sum_, g in zip(total, torch.autograd.grad(part, list(w.values())), strict=True):
            sum_ += g
        loss += float(part.detach())
        correct += _hits(output, y[i : i + size]) / len(x)
    return dict(zip(w, total, strict=True)), loss, correct


def _hits(output: Any, y: Any) -> float:
    """How many samples have their largest output at the target's place; nan where that makes no sense."""
    scores = isinstance(output, Tensor) and output.dim() == 2 and isinstance(y, Tensor) and y.dim() == 1
    return float((output.argmax(1) == y).sum()) if scores else math.nan


def meta_gradient(loop: InnerLoop, meta: Meta, tasks: Iterable[tuple[Any, Any, Any, Any]]) -> MetaGradient:
    """The sum over a batch of tasks, in their order."""
    total = MetaGradient({n: torch.zeros_like(t) for n, t in meta.parameters().items()}, 0.0, 0.0, 0)
    for task in tasks:
        part = task_gradient(loop, meta, task)
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
    """What is small, as a share of the first step size."""

    def rate(self, done: int) -> float:
        """The factor of the cosine schedule."""
        return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(done / self.updates, 1)))

    def penalty(self, done: int) -> float:
        """lambda at this point of the training."""
        return self.lam * min(1.0, done / max(1.0, self.warm_up * self.updates))


class Outer:
    """The outer optimiser: a Meta in training and its Adam moments, both of which `state()` gives and `load()` takes."""

    def __init__(self, loop: InnerLoop, meta: Meta, schedule: Schedule, choose: Callable[[Meta], Meta] | None = None):
        """`choose` says at `freeze_at` which step sizes live on; by default those that are not small."""
        self.loop, self.schedule = loop, schedule
        self.meta = meta.map(lambda t: t.detach().clone().requires_grad_())
        small = schedule.freeze_below * float(meta.alpha.max())
        self.choose = choose or (lambda meta: freeze(meta, small))
        self.kib = input_kib(loop.net).to(meta.alpha)
        self.done = 0
        self.frozen = not loop.method.sparse_alpha
        self.adam = torch.optim.Adam([{"params": [t], "name": n} for n, t in self.meta.parameters().items()])

    def base_rate(self, name: str) -> float:
        """beta of one trained tensor."""
        if name == "alpha":
            return self.schedule.alpha_lr if self.loop.method.learn_alpha else 0.0
        if name.startswith("w/"):
            return self.schedule.lr
        return self.schedule.attention_bias_lr if name.endswith((".b2", ".alpha")) else self.schedule.attention_lr

    def update(self, g: MetaGradient) -> None:
        """One outer update with the mean over the tasks of a batch (Eqs. 7, 8, 9 and 15)."""
        for group in self.adam.param_groups:
            group["lr"] = self.base_rate(group["name"]) * self.schedule.rate(self.done)
        mean = {name: gradient / max(g.tasks, 1) for name, gradient in g.gradients.items()}
        if not self.frozen:
            mean["alpha"] += lasso_gradient(mean["alpha"], self.kib, self.schedule.penalty(self.done))  # Eq. 9
        for name, tensor in self.meta.parameters().items():
            tensor.grad = mean[name]
        if g.tasks:
            self.adam.step()
        with torch.no_grad():
            self.meta.alpha.clamp_(min=0).mul_(self.meta.mask)
            for name, tensor in self.meta.attention.items():
                if name.endswith(".alpha"):
                    tensor.clamp_(min=0)
        self.done += 1
        if not self.frozen and self.done >= self.schedule.freeze_at * self.schedule.updates:
            chosen = self.choose(self.meta)
            self.meta.alpha.detach().copy_(chosen.alpha)
            self.meta = replace(self.meta, mask=chosen.mask)
            self.frozen = True

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed training needs, as named tensors."""
        moments = {
            f"adam/{key}/{group['name']}": value
            for group in self.adam.param_groups
            for key, value in self.adam.state[group["params"][0]].items()
        }
        counters = {"done": torch.tensor(self.done), "frozen": torch.tensor(self.frozen), "mask": self.meta.mask}
        return {**{n: t.detach() for n, t in self.meta.parameters().items()}, **moments, **counters}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up the training where `state` was taken."""
        with torch.no_grad():
            for name, tensor in self.meta.parameters().items():
                tensor.copy_(state[name])
        self.meta = replace(self.meta, mask=state["mask"].bool())
        self.done, self.frozen = int(state["done"]), bool(state["frozen"])
        for group in self.adam.param_groups:
            keys = {key: f"adam/{key}/{group['name']}" for key in ("step", "exp_avg", "exp_avg_sq")}
            if keys["step"] in state:
                self.adam.state[group["params"][0]] = {key: state[name].clone() for key, name in keys.items()}
