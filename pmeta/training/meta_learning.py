"""Meta-training by tasks of a number and Adam (Alg. 2): what the trainer drives of most kinds."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pmeta.method.learned import Meta
from pmeta.method.memory_budget import live_cost
from pmeta.method.meta_gradient import AnyTask, MetaGradient
from pmeta.method.outer import Outer, Schedule
from pmeta.training.figures import CLASSIFIER, COSTS, REGRESSION, Figures
from pmeta.training.results import cost_of_tasks, summarise
from pmeta.training.settings import Settings
from pmeta.training.workers import Group

SUMS = ("loss", "correct", "tasks", "skipped")


def schedule(config: Settings) -> Schedule:
    """The settings of the outer loop; a memory budget takes the place of the penalty."""
    names = [f.name for f in dataclasses.fields(Schedule)]
    told = {name: getattr(config, name) for name in names if hasattr(config, name)}
    return Schedule(**told | ({"lam": 0.0} if config.memory_budget else {}))


class OuterTraining:
    """What all trainings around an `Outer` have in common, policies too."""

    unit, kept_words = "tasks", 0

    def __init__(self, config: Settings, outer: Outer, samples: int):
        """`samples` are those of a support set."""
        self.config, self.outer, self.samples = config, outer, samples
        self.net = outer.loop.net
        self.sample: Sequence[int] = self.net.ops[0].x
        self.title, self.total = config.method_row().title, config.tasks
        self.each, self.updates = config.meta_batch, config.updates
        self.every = max(1, round(config.epoch_tasks / config.meta_batch))

    @property
    def done(self) -> int:
        """Updates so far."""
        return self.outer.done

    @property
    def eligible(self) -> bool:
        """Whether the layers are chosen."""
        return self.outer.frozen

    @property
    def astray(self) -> bool:
        """Whether tasks of the last update had to be skipped."""
        return bool(self.outer.bad_in_a_row)

    def counts(self, done: int) -> dict[str, int]:
        """Tasks of so many updates."""
        return {"tasks": min(done * self.each, self.total)}

    def status(self, sums: dict[str, float]) -> list[str]:
        """Loss, and the memory that the layers take now."""
        loss = sums["loss"] / sums["tasks"] if sums["tasks"] else float("nan")
        return [f"loss {loss:.3f}", self.memory()]

    def memory(self) -> str:
        """What adapting takes with the layers that live."""
        loop = self.outer.loop
        cost = live_cost(loop.net, self.outer.meta, loop.method, self.samples)
        return f"memory {cost.memory_mb:.2f} MB"

    def of_layers(self, results: Sequence[Any]) -> dict[str, Any]:
        """What a record says of costs and step sizes."""
        costs = cost_of_tasks(results)
        alpha = self.outer.averaged().alpha.tolist()
        return {**{k: costs[k] for k in COSTS}, "frozen": self.outer.frozen, "alpha": alpha}

    def about(self) -> dict[str, Any]:
        """Nothing, where the kind knows what a sample is like."""
        return {}

    def best(self) -> dict[str, Tensor]:
        """The model."""
        meta = self.outer.averaged()
        return {**meta.parameters(), "mask": meta.mask}

    def state(self) -> dict[str, Tensor]:
        """Of the outer loop."""
        return self.outer.state()

    def check(self, state: dict[str, Tensor]) -> None:
        """Raise ValueError unless `state` is one of this training."""
        self.outer.check(state)

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up the training where `state` was taken."""
        self.outer.load(state)


class MetaLearning(OuterTraining):
    """Task number i, and Adam."""

    sums: tuple[str, ...] = SUMS

    def __init__(
        self,
        config: Settings,
        outer: Outer,
        samples: int,
        task: Callable[[int], AnyTask],
        results: Callable[[Group, Meta], list[Any]],
        classes: bool = True,
        sample: Sequence[int] = (),
        whole: Callable[[Meta], Meta] = lambda meta: meta,
    ):
        """`task` gives the task of a number, `results` those of all validation tasks. Where only
        the upper part of a network is trained, `sample` is the shape that the whole reads, and
        `whole` gives it with what was learned."""
        super().__init__(config, outer, samples)
        self.task, self.results, self.whole = task, results, whole
        self.figures: Figures = CLASSIFIER if classes else REGRESSION
        self.sample = list(sample or self.sample)

    def step(self, group: Group) -> dict[str, float]:
        """A meta-batch."""
        first = self.done * self.each
        numbers = group.share(range(first, min(first + self.each, self.total)))
        tasks = (self.task(i) for i in numbers)
        g = add_up(group, self.outer.gradient(tasks, numbers, self.config.seed))
        self.outer.update(g)
        self.outer.check_finite()
        return {key: getattr(g, key) for key in SUMS}

    def validate(self, group: Group, sums: dict[str, float]) -> dict[str, Any]:
        """Training and unseen tasks, and what adapting to these took."""
        results = self.results(group, self.outer.averaged().map(Tensor.detach))
        summary = summarise(results)
        tasks = sums["tasks"] or float("nan")
        found = {"loss": sums["loss"] / tasks}
        if self.figures is CLASSIFIER:
            found["train_accuracy"] = 100 * (sums["correct"] / tasks)
            found |= {"val_accuracy": summary.accuracy, "val_ci95": summary.ci95}
        else:
            found |= {"val_loss": summary.loss, "val_ci95": summary.loss_ci95}
        return {**found, **self.of_layers(results)}

    def about(self) -> dict[str, Any]:
        """What a sample is like."""
        return {"input": self.sample}

    def best(self) -> dict[str, Tensor]:
        """The whole model."""
        meta = self.whole(self.outer.averaged())
        return {**meta.parameters(), "mask": meta.mask}


def add_up(group: Group, g: MetaGradient) -> MetaGradient:
    """The sum of the meta-gradients of all processes."""
    counts = {name: torch.tensor(float(getattr(g, name)), dtype=torch.float64) for name in SUMS}
    total = group.add({**g.gradients, **{f"count/{name}": t for name, t in counts.items()}})
    loss, correct, tasks, skipped = (float(total.pop(f"count/{name}")) for name in counts)
    return MetaGradient(total, loss, correct, int(tasks), int(skipped))
