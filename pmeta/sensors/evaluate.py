"""People never seen: balanced accuracy before and after adaptation."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pmeta.data.tasks import Task
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta
from pmeta.network.layers import Network, Weights
from pmeta.network.tape import forward
from pmeta.sensors.config import SensorConfig
from pmeta.sensors.sets import WindowSet
from pmeta.sensors.tasks import personal_task
from pmeta.training.evaluate import TaskResult, task_cost


def balanced_accuracy(predicted: np.ndarray, y: np.ndarray) -> float:
    """The mean over classes of the share of their windows that are right.

    >>> balanced_accuracy(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0]))
    0.75
    >>> balanced_accuracy(np.array([0, 0, 0, 0]), np.array([0, 0, 0, 1]))
    0.5
    """
    return float(np.mean([(predicted[y == c] == c).mean() for c in np.unique(y)]))


def scored(net: Network, w: Weights, task: Task) -> float:
    """Balanced accuracy of the queries with the weights w."""
    with torch.no_grad():
        output, _ = forward(net, w, task.query_x)
    return balanced_accuracy(output.argmax(1).numpy(), task.query_y.numpy())


def person_results(
    loop: InnerLoop, meta: Meta, windows: WindowSet, config: SensorConfig, i: int
) -> TaskResult:
    """Draw i // groups of group i % groups, adapted to."""
    draw, group = divmod(i, len(windows.groups))
    task = personal_task(windows, group, config.seed, draw, config.n_shot)
    live = replace(meta, mask=meta.updates())
    adapted = loop.adapt(live, (task.support_x, task.support_y))
    cost: Any = task_cost(loop, live, adapted.scores, len(task.support_x))
    return TaskResult(scored(loop.net, adapted.w, task), *cost)
