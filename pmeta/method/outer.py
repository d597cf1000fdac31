"""The outer loop (Alg. 2, Eqs. 7, 8, 9 and 15): its schedule and its updates."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from pmeta.base.errors import DivergedError
from pmeta.method.adam import Adam, cosine
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta
from pmeta.method.meta_gradient import AnyTask, MetaGradient, TaskGradients
from pmeta.method.step_sizes import freeze, input_kib, lasso_gradient

HEAD_RATE = 1e-2
"""beta of ln s of a head from prototypes."""
BAD_UPDATES = 10
"""So many updates in a row with tasks that had to be skipped end a training."""


@dataclass(frozen=True)
class Schedule:
    """The settings of the outer loop. Adam throughout, each rate annealed along a cosine to a
    hundredth."""

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
    """Share of the updates after which small step sizes stay at zero and the penalty ends."""
    freeze_below: float = 0.1
    """What is small, as a share of the largest step size before the training."""
    ema: float = 0.0
    """Decay of the average over updates of all that is trained, which is what is kept; 0: none."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if not 0 <= value < math.inf:
                raise ValueError(
                    f"settings of the outer loop are finite and not negative, got {f.name}="
                    f"{value}: leave it out for {f.default}."
                )

    def rate(self, done: int) -> float:
        """The factor of the cosine schedule."""
        return 0.01 + 0.99 * cosine(min(done / self.updates, 1), 1)

    def penalty(self, done: int) -> float:
        """lambda at this point of the training."""
        return self.lam * min(1.0, done / max(1.0, self.warm_up * self.updates))


def about_skipped(skipped: int, tasks: int) -> str:
    """What is to be said at the end of a training; empty where no task was skipped."""
    if not skipped:
        return ""
    return (
        f"{skipped} of {tasks} tasks were skipped, since their loss or gradient was not finite: "
        "look for NaN in the tasks, or lower lr or alpha_0."
    )


class Outer:
    """The outer optimiser: a Meta in training and its Adam moments.

    `state()` gives both, `load()` takes them."""

    def __init__(
        self,
        loop: InnerLoop,
        meta: Meta,
        schedule: Schedule,
        choose: Callable[[Meta], Meta] | None = None,
        fixed: frozenset[str] = frozenset(),
    ):
        """`choose` says at `freeze_at` which step sizes live on; by default those that are not
        small. The weights named in `fixed` stay as they are."""
        self.fixed = {f"w/{name}" for name in fixed}
        self.loop, self.schedule, self.gradients = loop, schedule, TaskGradients(loop)
        self.meta = meta.map(lambda t: t.detach().clone().requires_grad_())
        small = schedule.freeze_below * float(meta.alpha.max())
        self.choose = choose or (lambda meta: freeze(meta, small))
        self.kib = input_kib(loop.net).to(meta.alpha)
        self.done = self.bad_in_a_row = 0
        self.frozen = not loop.method.sparse_alpha
        self.adam = Adam(meta.parameters())
        self.average = (
            {n: t.detach().clone() for n, t in meta.parameters().items()} if schedule.ema else {}
        )

    def averaged(self) -> Meta:
        """What is to be kept: the average over the updates where there is one."""
        if not self.average:
            return self.meta
        alpha = self.average["alpha"] * self.meta.mask
        return self.meta.with_parameters({**self.average, "alpha": alpha})

    def base_rate(self, name: str) -> float:
        """beta of one trained tensor."""
        if name == "alpha":
            return self.schedule.alpha_lr if self.loop.method.learn_alpha else 0.0
        if name.startswith("w/"):
            return 0.0 if name in self.fixed else self.schedule.lr
        if name.startswith("head/"):
            return HEAD_RATE
        is_bias = name.endswith((".b2", ".alpha"))
        return self.schedule.attention_bias_lr if is_bias else self.schedule.attention_lr

    def gradient(self, tasks: Iterable[AnyTask], numbers: Sequence[int], seed: int) -> MetaGradient:
        """The meta-gradient of a batch of tasks of these numbers; dropout and its like draw by
        `seed` and number, so that a resumed training draws the same."""
        seeds = [(seed * 2**32 + i) % 2**63 for i in numbers]
        return self.gradients.total(self.meta, tasks, seeds)

    def update(self, g: MetaGradient) -> None:
        """One outer update with the mean over the tasks of a batch (Eqs. 7, 8, 9 and 15).

        None where all were skipped."""
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
            lam = self.schedule.penalty(self.done)
            mean["alpha"] = mean["alpha"] + lasso_gradient(mean["alpha"], self.kib, lam)  # Eq. 9
        tensors, factor = self.meta.parameters(), self.schedule.rate(self.done)
        self.adam.step(tensors, mean, {name: self.base_rate(name) * factor for name in tensors})
        for name, tensor in tensors.items():
            is_static = name.startswith("attention/") and name.endswith(".alpha")  # alpha^Ch
            if name == "alpha" or is_static:
                tensor.clamp_(min=0)
        self.meta.alpha.mul_(self.meta.mask)
        steps = self.adam.steps
        decay = min(self.schedule.ema, steps / (steps + 9))  # a short memory at first
        for name, mean_so_far in self.average.items():
            mean_so_far.lerp_(tensors[name].detach(), 1 - decay)

    def check_finite(self, kept: str = "") -> None:
        """Raise DivergedError once losses or gradients were not finite for too long, and where a
        training ends without a single update, or with numbers that are not finite.

        `kept` says what is left."""
        if self.bad_in_a_row >= BAD_UPDATES:
            raise DivergedError(
                f"loss or gradient was not finite in {BAD_UPDATES} updates in a row, the last of "
                f"them update {self.done}: lower lr or alpha_0.{kept}"
            )
        if self.done < self.schedule.updates:
            return
        if not self.adam.steps:
            raise DivergedError(
                "loss or gradient was not finite in any task, so that nothing was learned: look "
                f"for NaN in the tasks, or lower alpha_0.{kept}"
            )
        if not all(t.isfinite().all() for t in self.averaged().parameters().values()):
            raise DivergedError(
                f"the last update left numbers that are not finite: lower lr or alpha_0.{kept}"
            )

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed training needs, as named tensors."""
        parameters = {n: t.detach() for n, t in self.meta.parameters().items()}
        counters = {"done": self.done, "steps": self.adam.steps, "frozen": self.frozen}
        average = {f"average/{n}": t for n, t in self.average.items()}
        return {
            **parameters,
            "mask": self.meta.mask,
            **self.adam.state(),
            **average,
            **{key: torch.tensor(count) for key, count in counters.items()},
        }

    def check(self, state: dict[str, Tensor]) -> None:
        """Raise ValueError unless `state` is one of this training."""
        check_alike(state, self.state())
        done, steps = int(state["done"]), int(state["steps"])
        if not 0 <= steps <= done <= self.schedule.updates:
            raise ValueError(
                f"a checkpoint was written behind 0 to {self.schedule.updates} updates, this one "
                f"says {done}, and {steps} steps of Adam."
            )
        if (state["alpha"] < 0).any():
            raise ValueError("step sizes of a checkpoint are not negative, this one's are.")

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up the training where `state` was taken."""
        self.check(state)
        with torch.no_grad():
            for name, tensor in self.meta.parameters().items():
                tensor.copy_(state[name])
            for name, mean_so_far in self.average.items():
                mean_so_far.copy_(state[f"average/{name}"])
        self.meta = replace(self.meta, mask=state["mask"].to(self.meta.mask))
        self.adam.load(state, int(state["steps"]))
        self.done = int(state["done"])
        self.frozen = bool(state["frozen"])


def check_alike(state: dict[str, Tensor], like: dict[str, Tensor], what: str = "training") -> None:
    """Raise ValueError unless a checkpoint has the tensors of `like`, of their shapes, finite."""
    for name, wanted in like.items():
        shape = tuple(state[name].shape) if name in state else "nothing"
        if shape != tuple(wanted.shape):
            raise ValueError(
                f"a checkpoint fits its {what}, where {name} has the shape "
                f"{tuple(wanted.shape)}, got {shape}: give one that was written for the same."
            )
        if not state[name].isfinite().all():
            raise ValueError(
                f"numbers of a checkpoint are finite, {name} of this one is not: train again, with "
                "a smaller lr."
            )
