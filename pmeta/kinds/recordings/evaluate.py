"""People never seen: balanced accuracy before and after adaptation, device by device."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pmeta.data.tasks import Task
from pmeta.kinds.recordings.config import SensorConfig
from pmeta.kinds.recordings.sets import WindowSet
from pmeta.kinds.recordings.tasks import personal_task
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta
from pmeta.network.layers import Network, Weights
from pmeta.network.tape import forward
from pmeta.training.results import CostSummary, TaskResult, cost_of_tasks, mean_ci95, task_cost

if TYPE_CHECKING:
    from pmeta.kinds.recordings.best import Trained


class PersonResult(NamedTuple):
    """One draw of a person with one device."""

    person: str
    device: str
    before: float
    after: float
    """Balanced accuracy."""
    peak_words: float
    exact_peak_words: float
    macs: float
    ratios: Tensor
    scores: np.ndarray
    """Of the queries after adaptation. (n, classes)"""
    labels: np.ndarray
    """Their classes. (n,)"""


@dataclass(frozen=True)
class DeviceScore:
    """Balanced accuracy in percent: the mean over people, and CI95 over people."""

    people: int
    before: float
    before_ci95: float
    after: float
    after_ci95: float
    gain: float
    gain_ci95: float


@dataclass(frozen=True)
class PeopleSummary(CostSummary):
    """The mean over people, device by device; costs are means over all tasks."""

    devices: dict[str, DeviceScore]

    def words(self) -> list[str]:
        """A line for each device."""
        return [
            f"{device}: balanced accuracy {s.after:.1f} ± {s.after_ci95:.1f} % after adaptation, "
            f"{s.before:.1f} ± {s.before_ci95:.1f} % before, gain {s.gain:.1f} ± {s.gain_ci95:.1f} "
            f"({s.people} people)"
            for device, s in self.devices.items()
        ]


def balanced_accuracy(predicted: np.ndarray, y: np.ndarray) -> float:
    """The mean over classes of the share of their windows that are right.

    >>> balanced_accuracy(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0]))
    0.75
    >>> balanced_accuracy(np.array([0, 0, 0, 0]), np.array([0, 0, 0, 1]))
    0.5
    """
    return float(np.mean([(predicted[y == c] == c).mean() for c in np.unique(y)]))


def scores_of(net: Network, w: Weights, x: Tensor) -> np.ndarray:
    """Of some windows with the weights w. (n, classes)"""
    with torch.no_grad():
        output, _ = forward(net, w, x)
    return output.numpy()


def scored(net: Network, w: Weights, task: Task) -> float:
    """Balanced accuracy of the queries with the weights w."""
    predicted = scores_of(net, w, task.query_x).argmax(1)
    return balanced_accuracy(predicted, task.query_y.numpy())


def person_result(
    trained: "Trained",
    windows: WindowSet,
    group: int,
    draw: int,
    seed: int,
    n_shot: int | None,
    batch: int | None = 1,
) -> PersonResult:
    """What adapting to one draw of a person with one device gives."""
    task = personal_task(windows, group, seed, draw, n_shot)
    loop = InnerLoop(trained.net, trained.config.method_row(), batch=batch)
    live = replace(trained.meta, mask=trained.meta.updates())
    adapted = loop.adapt(live, (task.support_x, task.support_y))
    costs = task_cost(loop, live, adapted.scores, len(task.support_x))
    before, after = (scores_of(loop.net, w, task.query_x) for w in (live.w, adapted.w))
    y = task.query_y.numpy()
    person, _, device = windows.groups[group].partition("/")
    first, then = (balanced_accuracy(scores.argmax(1), y) for scores in (before, after))
    return PersonResult(person, device or "all", first, then, *costs, after, y)


def validation_result(
    loop: InnerLoop, meta: Meta, windows: WindowSet, config: SensorConfig, i: int
) -> TaskResult:
    """Draw i // groups of group i % groups, adapted to."""
    draw, group = divmod(i, len(windows.groups))
    task = personal_task(windows, group, config.seed, draw, config.n_shot)
    live = replace(meta, mask=meta.updates())
    adapted = loop.adapt(live, (task.support_x, task.support_y))
    cost: Any = task_cost(loop, live, adapted.scores, len(task.support_x))
    return TaskResult(scored(loop.net, adapted.w, task), *cost)


def summarise(results: Iterable[PersonResult]) -> PeopleSummary:
    """Means over draws, then over people, device by device."""
    results = list(results)
    return PeopleSummary(**cost_of_tasks(results), devices=by_device(results))


def by_device(results: Iterable[Any]) -> dict[str, DeviceScore]:
    """Scores of draws as means over people, device by device.

    >>> from types import SimpleNamespace as Draw
    >>> draws = [("a", 0.5, 0.9), ("b", 0.7, 0.9), ("a", 0.5, 0.9)]
    >>> found = [Draw(person=p, device="watch", before=b, after=a) for p, b, a in draws]
    >>> score = by_device(found)["watch"]
    >>> score.before, score.after, score.people
    (60.0, 90.0, 2)
    """
    own: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for r in results:
        own.setdefault(r.device, {}).setdefault(r.person, []).append((r.before, r.after))
    return {device: _score(list(people.values())) for device, people in own.items()}


def _score(people: list[list[tuple[float, float]]]) -> DeviceScore:
    rows = np.array([np.mean(draws, 0) for draws in people])
    columns = 100 * np.column_stack([rows, rows[:, 1] - rows[:, 0]])  # before, after, gain
    numbers = [round(n, 9) for column in columns.T for n in mean_ci95(torch.from_numpy(column))]
    return DeviceScore(len(rows), *numbers)
