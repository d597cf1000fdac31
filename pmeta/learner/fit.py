"""Meta-training of a learner in a run folder, with all that `pmeta train` has."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pmeta.compiler.read_model import read_graph
from pmeta.kinds.own.config import OwnConfig
from pmeta.kinds.own.graph import Graph, keep
from pmeta.learner.checks import name_of
from pmeta.method.meta_gradient import AnyTask
from pmeta.method.methods import METHODS, Method
from pmeta.method.outer import Outer
from pmeta.training.meta_learning import MetaLearning, schedule
from pmeta.training.results import TaskResult, evaluate_task
from pmeta.training.run_folder import Run
from pmeta.training.trainer import train_in_folder
from pmeta.training.workers import Group

if TYPE_CHECKING:  # the learner imports this file
    from pmeta.learner.learner import Learner


def settings(learner: "Learner", **changes: Any) -> OwnConfig:
    """The settings of a run as its config.json keeps them."""
    return OwnConfig(
        model=type(learner.net.model).__name__,
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
    named = sorted(METHODS.items(), key=lambda pair: pair[1].scores != row.scores)
    for name, known in named:
        if dataclasses.replace(known, title=row.title, **changed) == row:
            return {"method": name, **changed}
    raise ValueError(
        f"a run folder keeps a method by its name, one of {', '.join(METHODS)}, and {row.title!r} "
        "updates or learns other things than any of these: use meta_train."
    )


def graph_of(learner: "Learner", config: OwnConfig) -> Graph | None:
    """What `pmeta export` needs to know of the model; None where Python alone can export it."""
    net, shape = learner.net, learner.sample_shape
    plain = learner.expected.dtype == torch.float32 and config.method_row() == learner.method
    if not learner.for_device or not plain:
        return None
    with learner.evaluating():
        nodes = read_graph(net.model, next(net.model.parameters()).new_zeros(1, *shape))
    if [node.name for node in nodes if node.params] != [layer.name for layer in net.layers]:
        return None  # weights that belong to no layer
    return Graph(shape, learner.pixels, name_of(learner.loop.loss), nodes)


def fit_run(
    group: Group,
    learner: "Learner",
    config: OwnConfig,
    graph: Graph | None,
    task: Callable[[int], AnyTask],
    unseen: Sequence[AnyTask],
) -> dict[str, Any]:
    """Train, or go on with, the run in `config.out`; what is known of its best checkpoint."""

    def training(run: Run, config: OwnConfig) -> MetaLearning:
        if group.rank == 0:
            keep(run.path, graph)
        loop = dataclasses.replace(learner.loop, second_order=True)
        return MetaLearning(
            config,
            Outer(loop, learner.meta, schedule(config), learner.choose(config.freeze_below)),
            len(unseen[0][0]),
            lambda i: learner.expected.checked(task(i), f"task {i}"),
            lambda group, meta: results(group, learner, meta, unseen),
            classes=learner.classifies,
        )

    return train_in_folder(group, config, training)


def results(
    group: Group, learner: "Learner", meta: Any, tasks: Sequence[AnyTask]
) -> list[TaskResult]:
    """Each task adapted to one sample at a time, as a device does."""
    loop = dataclasses.replace(learner.loop, batch=1)
    with learner.evaluating():
        return group.gather([evaluate_task(loop, meta, task) for task in group.share(tasks)])
