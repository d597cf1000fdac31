"""Certainty that means something: temperatures fitted on query sets of validation tasks.

After an adaptation the softmax is too sure. Its scores are divided by a temperature t, one for each
number of support samples of a class, which minimises the loss of the queries of some validation
tasks (Guo et al., On Calibration of Modern Neural Networks, ICML 2017). How well the probabilities
fit is measured on each half of the tasks with the temperature of the other half.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from math import log
from typing import Any, NamedTuple

import numpy as np

from pmeta.training.restored import Asked, Restore, all_results
from pmeta.training.results import TaskResult
from pmeta.training.run_folder import open_run
from pmeta.training.workers import Group

BINS = 15
LOWEST, HIGHEST = 0.05, 20.0
"""Of a temperature."""


class Queries(NamedTuple):
    """Scores of queries and their classes."""

    scores: np.ndarray
    """(n, classes)"""
    labels: np.ndarray
    """(n,)"""


@dataclasses.dataclass(frozen=True)
class Bin:
    """Queries whose most likely class has a probability in one of the bins."""

    count: int
    confidence: float
    """Mean probability."""
    accuracy: float


def calibrate(group: Group, restore: Restore, asked: Asked) -> dict[str, Any]:
    """Temperatures of the best model of a run, and how well they fit, as plain values.

    `asked.tasks` tasks of the validation, at least 2, for each number of samples."""
    first = restore(group, asked)
    tasks = asked.tasks or first.calibration_tasks
    measurements = []
    for n in first.shots:
        restored = restore(group, dataclasses.replace(asked, tasks=tasks, n_shot=n))
        try:
            unseen = restored.unseen(group)
        except ValueError:
            if n <= first.n_shot:
                raise
            continue  # classes with too few samples for that
        results = all_results(group, unseen, f"calibrating, {n} samples a class")
        measurements.append({"n_shot": n, **fitted(results)})
    known = {"split": asked.split, "tasks": tasks, "seed": asked.seed, "best": first.info["tasks"]}
    return {**known, **by_number_of_samples(measurements)}


def by_number_of_samples(measurements: list[dict[str, Any]]) -> dict[str, Any]:
    """What was measured with each number of samples, and the temperatures that follow."""
    measured = {m["n_shot"]: m["temperature"] for m in measurements}
    return {"shots": measurements, "temperatures": interpolated(measured)}


def fitted(results: Sequence[TaskResult | Queries]) -> dict[str, Any]:
    """The temperature of all tasks; the calibration error and its bins by two-fold cross-fitting.

    Even tasks are measured with the temperature that fits the odd ones, and odd ones with that of
    the even ones: every task counts, and none has fitted what it measures."""
    even, odd = queries_of(results[0::2]), queries_of(results[1::2])
    unseen = queries_of([scaled(even, fit_temperature(odd)), scaled(odd, fit_temperature(even))])
    return {
        "temperature": fit_temperature(queries_of([even, odd])),
        "ece_before": ece(reliability(queries_of([even, odd]), 1.0)),
        "ece": ece(reliability(unseen, 1.0)),
        "bins": [dataclasses.asdict(b) for b in reliability(unseen, 1.0)],
    }


def scaled(queries: Queries, t: float) -> Queries:
    """The same with scores that are divided by a temperature."""
    return queries._replace(scores=queries.scores / t)


def queries_of(results: Iterable[TaskResult | Queries]) -> Queries:
    """The queries of some tasks."""
    results = list(results)
    return Queries(
        np.concatenate([r.scores for r in results]), np.concatenate([r.labels for r in results])
    )


def fit_temperature(queries: Queries) -> float:
    """argmin_t of the mean of -log softmax(scores / t)[label].

    The loss is convex in 1 / t, so a golden-section search finds it."""
    low, high = 1 / HIGHEST, 1 / LOWEST
    ratio = (5**0.5 - 1) / 2
    for _ in range(60):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        if _loss(queries, 1 / a) < _loss(queries, 1 / b):
            high = b
        else:
            low = a
    return 2 / (low + high)


def _loss(queries: Queries, t: float) -> float:
    z = queries.scores.astype(np.float64) / t
    z -= z.max(1, keepdims=True)
    of_label = z[np.arange(len(z)), queries.labels]
    return float((np.log(np.exp(z).sum(1)) - of_label).mean())


def reliability(queries: Queries, t: float, bins: int = BINS) -> list[Bin]:
    """Queries by the probability of their most likely class, in bins of one width."""
    z = queries.scores.astype(np.float64) / t
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    sure, right = p.max(1), p.argmax(1) == queries.labels
    of = np.minimum((sure * bins).astype(int), bins - 1)
    return [
        Bin(
            n, float(sure[of == i].mean()) if n else 0.0, float(right[of == i].mean()) if n else 0.0
        )
        for i in range(bins)
        for n in [int((of == i).sum())]
    ]


def ece(bins: Sequence[Bin]) -> float:
    """Expected calibration error: the mean over queries of |accuracy - confidence| of their bin."""
    total = sum(b.count for b in bins)
    return sum(b.count * abs(b.accuracy - b.confidence) for b in bins) / total


def interpolated(measured: dict[int, float]) -> list[float]:
    """A temperature for each number of samples from 1 on; those between by the logarithms.

    >>> interpolated({1: 1.0, 4: 4.0})
    [1.0, 2.0, 3.0, 4.0]
    """
    if not measured:
        return []
    known = sorted(measured)
    x, y = [log(n) for n in known], [log(measured[n]) for n in known]
    values = np.exp(np.interp([log(n) for n in range(1, known[-1] + 1)], x, y))
    return [round(float(t), 4) for t in values]


def temperatures(run: str) -> list[float]:
    """Those of the best model of a run; none where it was not calibrated since it was chosen."""
    folder = open_run(run)
    calibration = folder.calibration()
    best = folder.load("best") if calibration else None
    if calibration is None or best is None or calibration["best"] != best.info.get("tasks"):
        return []
    return calibration["temperatures"]
