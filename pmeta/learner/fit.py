"""Meta-training of a learner in a run folder, with all that `pmeta train` has."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pmeta.learner.log import LossLog
from pmeta.method.meta_gradient import AnyTask
from pmeta.method.methods import METHODS, Method
from pmeta.method.outer import Outer
from pmeta.training.config import ImageConfig
from pmeta.training.evaluate import TaskResult, evaluate_task
from pmeta.training.log import Log
from pmeta.training.loop import meta_train, schedule
from pmeta.training.own.model import write_network
from pmeta.training.run_folder import Run, usual
from pmeta.training.train import MAY_DIFFER
from pmeta.training.workers import Group

if TYPE_CHECKING:  # the learner imports this file
    from pmeta.learner.learner import Learner


def settings(learner: "Learner", first: AnyTask, **changes: Any) -> ImageConfig:
    """The settings of a run as its config.json keeps them."""
    classes = learner.outputs
    return ImageConfig(
        data="",
        model=type(learner.net.model).__name__,
        for_device=learner.for_device,
        n_way=classes,
        n_shot=max(1, len(first[0]) // classes),
        n_query=max(1, len(first[2]) // classes),
        inner_steps=len(learner.meta.alpha),
        alpha_0=learner.alpha_0,
        recompute=learner.loop.recompute,
        memory_budget=learner.memory_budget,
        seed=learner.seed,
        **_method(learner.method),
        **changes,
    )


def _method(row: Method) -> dict[str, Any]:
    """A method by its name and what is changed in it."""
    changed = {
        key: getattr(row, key)
        for key in ("scores", "clip_ratio_fw", "clip_ratio_bw", "sparse_fw", "sparse_bw")
    }
    for name, known in METHODS.items():
        if dataclasses.replace(known, title=row.title, **changed) == row:
            return {"method": name, **changed}
    raise ValueError(
        f"a run folder keeps a method by its name, one of {', '.join(METHODS)}, and {row.title!r} "
        "updates or learns other things than any of these: use meta_train."
    )


def fit_run(
    group: Group,
    learner: "Learner",
    config: ImageConfig,
    task: Callable[[int], AnyTask],
    unseen: Sequence[AnyTask],
) -> dict[str, Any]:
    """Train, or go on with, the run in `config.out`; what is known of its best checkpoint."""
    with Run(config.out) as run:
        if group.rank == 0:
            run.start(dataclasses.asdict(config), MAY_DIFFER, usual(config))
            write_network(run, learner.net)
        loop = dataclasses.replace(learner.loop, second_order=True)
        outer = Outer(loop, learner.meta, schedule(config), learner.choose(config.freeze_below))
        kind = Log if learner.classifies else LossLog
        return meta_train(
            kind(run, group, config, outer),
            lambda i: learner.expected.checked(task(i), f"task {i}"),
            lambda: results(group, learner, outer.averaged(), unseen),
            len(unseen[0][0]),
        )


def results(
    group: Group, learner: "Learner", meta: Any, tasks: Sequence[AnyTask]
) -> list[TaskResult]:
    """Each task adapted to one sample at a time, as a device does."""
    loop = dataclasses.replace(learner.loop, batch=1)
    meta = meta.map(torch.Tensor.detach)
    with learner.evaluating():
        return group.gather([evaluate_task(loop, meta, task) for task in group.share(tasks)])
