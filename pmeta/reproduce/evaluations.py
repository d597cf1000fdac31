"""Evaluations of a run, kept as JSON beside it, part by part: a kill costs minutes."""

import dataclasses
import json
import time
from pathlib import Path
from typing import Any, TypedDict

import torch

from pmeta.base import reading
from pmeta.base.files import make_folder, write_atomically
from pmeta.base.progress import progress
from pmeta.base.reading import Count, Number
from pmeta.training.restored import Asked, Restore, evaluate
from pmeta.training.results import TaskResult, summarise
from pmeta.training.run_folder import write_json
from pmeta.training.workers import Group

PART = 100
"""Tasks between two writes."""


def path_of(run: Path, data: str, split: str, batch: int | None) -> Path:
    """Where an evaluation is kept.

    >>> str(path_of(Path("runs/a"), "mini", "val", 1))
    'runs/a/evaluations/mini-val-batch1.json'
    """
    return run / "evaluations" / f"{data}-{split}-batch{batch or 'all'}.json"


class Evaluation(TypedDict):
    """A file in evaluations/."""

    tasks: Count
    seconds: Number


class Part(TypedDict):
    """An evaluation that is not done."""

    asked: dict[str, Any]
    seconds: Number
    results: list[list[Number | list[list[Number]]]]


def read(path: Path, shape: Any = Evaluation) -> dict[str, Any] | None:
    """An evaluation, or None."""
    if not path.exists():
        return None
    return reading.read(path, path.read_bytes(), shape, "remove it to evaluate again")


def evaluate_images(group: Group, restore: Restore, config: Asked, path: Path) -> None:
    """Adapt to the tasks of `config` that are not done yet, and write the summary with the accuracy
    of every task."""
    restored = restore(group, config)
    unseen, layers = restored.unseen(group), [layer.name for layer in restored.net.layers]
    asked = {key: getattr(config, key) for key in ("data", "split", "batch", "n_query", "seed")}
    part, tasks, started = path.with_suffix(".part"), unseen.tasks, time.monotonic()
    make_folder(path.parent)
    results, before = group.from_first(lambda: _read_part(part, asked))
    starts = range(len(results), tasks, PART)
    for start in progress(starts, "evaluating", shown=group.rank == 0):
        numbers = group.share(range(start, min(start + PART, tasks)))
        results = results + group.gather(unseen.results(numbers))
        if group.rank == 0:
            rows = [[*r[:4], r.ratios.tolist(), r.loss] for r in results]
            seconds = before + time.monotonic() - started
            kept = {"asked": asked, "seconds": seconds, "results": rows}
            write_atomically(part, json.dumps(kept).encode())
    if group.rank == 0:
        known = {"seconds": round(before + time.monotonic() - started, 1), "layers": layers}
        summary = dataclasses.asdict(summarise(results))
        accuracies = [r.accuracy for r in results]
        write_json(path, {**asked, **known, **summary, "accuracies": accuracies})
        part.unlink(missing_ok=True)


def _read_part(part: Path, asked: dict[str, Any]) -> tuple[list[TaskResult], float]:
    """The tasks that an evaluation of the same has done before it was stopped, and the seconds they
    took."""
    kept = read(part, Part)
    if kept is None or kept["asked"] != asked:
        return [], 0.0
    results = [
        TaskResult(a, peak, exact, macs, torch.tensor(ratios), *loss)
        for a, peak, exact, macs, ratios, *loss in kept["results"]  # older releases kept no loss
    ]
    return results, kept["seconds"]


def evaluate_policy(group: Group, restore: Restore, asked: Asked, path: Path) -> None:
    """The same for a policy: one episode at a time, always the same unseen tasks."""
    started = time.monotonic()
    layers, summary = evaluate(group, restore, asked)
    if group.rank == 0:
        make_folder(path.parent)
        known = {"batch": 1, "seconds": round(time.monotonic() - started, 1), "layers": layers}
        write_json(path, {**known, **dataclasses.asdict(summary)})
