"""The loop of meta-training in a run folder (Alg. 2): tasks by number, validation, checkpoints."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from pmeta.method.memory_budget import live_cost
from pmeta.method.meta_gradient import AnyTask, MetaGradient
from pmeta.method.outer import Schedule
from pmeta.training.log import Log
from pmeta.training.settings import Settings
from pmeta.training.workers import Group


def schedule(config: Settings) -> Schedule:
    """The settings of the outer loop; a memory budget takes the place of the penalty."""
    names = [f.name for f in dataclasses.fields(Schedule)]
    told = {name: getattr(config, name) for name in names if hasattr(config, name)}
    return Schedule(**told | ({"lam": 0.0} if config.memory_budget else {}))


def meta_train(
    log: Log, task: Callable[[int], AnyTask], validate: Callable[[], list[Any]], samples: int
) -> dict[str, Any]:
    """Train, or go on with, the run of `log`; returns what is known of its best checkpoint.

    `task` gives the task of a number, `validate` the results of all validation tasks with what is
    trained now. `samples` are those of a support set."""
    outer, config, group = log.outer, log.config, log.group
    with log:
        while outer.done < config.updates:
            first = outer.done * config.meta_batch
            numbers = range(first, min(first + config.meta_batch, config.tasks))
            g = add_up(group, outer.gradient(task(i) for i in group.share(numbers)))
            outer.update(g)
            log.update(g, live_cost(outer.loop.net, outer.meta, outer.loop.method, samples))
            if log.epoch_ends():
                log.epoch(validate())
            log.checkpoint()
    return log.best


def add_up(group: Group, g: MetaGradient) -> MetaGradient:
    """The sum of the meta-gradients of all processes."""
    counts = {
        name: torch.tensor(float(getattr(g, name)), dtype=torch.float64)
        for name in ("loss", "correct", "tasks", "skipped")
    }
    total = group.add({**g.gradients, **{f"count/{name}": t for name, t in counts.items()}})
    loss, correct, tasks, skipped = (float(total.pop(f"count/{name}")) for name in counts)
    return MetaGradient(total, loss, correct, int(tasks), int(skipped))
