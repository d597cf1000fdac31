"""What is there of a table: ours beside the paper's, cell by cell."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pmeta.cost.setup import Setup, figures
from pmeta.method.methods import METHODS
from pmeta.paper import note
from pmeta.reproduce import evaluations
from pmeta.reproduce.cells import TABLES, TITLES, TRAININGS, Cell
from pmeta.reproduce.data import TITLES as DATA
from pmeta.reproduce.queue import Options, run_folder, trainable, why_failed
from pmeta.training.results import mean_ci95
from pmeta.training.run_folder import Run

FORMAT = {"format": "pmeta-results", "version": 1}
_figures = functools.cache(figures)
REFERENCE = {"table4": "x/x", "table7": "x/x"}
"""The row that the others are compared with, task by task."""


def table(name: str, options: Options) -> dict[str, Any]:
    """All of a table, in the format that is written as JSON."""
    cells = TABLES[name]
    filled = [fill(cell, options) for cell in cells]
    splits = {cell["split"] for cell in filled if cell.get("split")}
    images = name not in ("table1", "table3")
    return {
        **FORMAT,
        "name": name,
        "title": TITLES[name],
        "scale": options.scale,
        "data": [dataset.title for dataset in options.datasets.values()] if images else [],
        "split": " and ".join(sorted(splits)) if images and splits else None,
        "rows": list(dict.fromkeys(cell.row for cell in cells)),
        "columns": list(dict.fromkeys(cell.column for cell in cells)),
        "cells": filled,
    }


def fill(cell: Cell, options: Options) -> dict[str, Any]:
    """One cell: ours, or why there is none."""
    empty = dict.fromkeys(("ours", "ci95", "tasks", "eval_tasks", "run", "missing")) | {"seeds": []}
    named = {"row": cell.row, "column": cell.column, "unit": cell.unit, "paper": cell.paper}
    ours = _cost(cell, options) if cell.cost else _measured(cell, options)
    return named | empty | ours


def evaluated(cell: Cell, out: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The run folders of a cell's training, one a seed, that have its evaluation, and this
    evaluation."""
    evaluations_of_runs = []
    for run in sorted((out / "runs").glob(f"{cell.training}*")):
        if run.name == cell.training or run.name.startswith(f"{cell.training}-seed"):
            for split in ("test", "val"):
                path = evaluations.path_of(run, cell.data, split, cell.batch)
                if evaluation := evaluations.read(path):
                    evaluations_of_runs.append((run, evaluation | {"split": split}))
                    break
    return evaluations_of_runs


def _measured(cell: Cell, options: Options) -> dict[str, Any]:
    by_run = evaluated(cell, options.out)
    if not by_run:
        return {"missing": _why_missing(cell, options)}
    is_rl = TRAININGS[cell.training].is_rl
    score, ci95 = ("after", "after_ci95") if is_rl else ("accuracy", "ci95")
    return {
        "ours": sum(e[score] for _, e in by_run) / len(by_run),
        "ci95": _over_tasks([e for _, e in by_run], ci95),
        "tasks": min(Run(run).tasks_done() for run, _ in by_run),
        "seeds": [Run(run).config()["seed"] for run, _ in by_run],
        "eval_tasks": min(e["tasks"] for _, e in by_run),
        "run": f"runs/{by_run[0][0].name}",
        "split": by_run[0][1]["split"],
        **_difference(cell, by_run, options.out),
    }


def _over_tasks(evaluated_seeds: Sequence[dict[str, Any]], ci95: str) -> float | None:
    """CI95 over tasks of the mean over seeds; of policies, whose tasks are not kept, the most that
    it can be.

    Task i of one seed and of another may be one task: their means are not taken to be
    independent."""
    if len(evaluated_seeds) > 1 and all(len(e.get("accuracies", ())) > 1 for e in evaluated_seeds):
        return _mean_ci95([[100 * a for a in e["accuracies"]] for e in evaluated_seeds])[1]
    if any(e[ci95] is None for e in evaluated_seeds):
        return None
    return sum(e[ci95] for e in evaluated_seeds) / len(evaluated_seeds)


def _mean_ci95(by_seed: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Over tasks, of what each is in the mean over seeds."""
    tasks = [sum(seeds) / len(seeds) for seeds in zip(*by_seed, strict=False)]
    return mean_ci95(torch.tensor(tasks, dtype=torch.float64))


def _difference(cell: Cell, by_run: list[tuple[Path, dict[str, Any]]], out: Path) -> dict[str, Any]:
    """How much better than the reference row on the same tasks, with CI95: much narrower than that
    of either."""
    row = REFERENCE.get(cell.table, cell.row)
    if row == cell.row:
        return {}
    (reference,) = (c for c in TABLES[cell.table] if (c.row, c.column) == (row, cell.column))
    ours, theirs = _by_seed(by_run), _by_seed(evaluated(reference, out))
    pairs = [
        [100 * (a - b) for a, b in zip(ours[s], theirs[s], strict=False)]
        for s in ours.keys() & theirs.keys()
    ]
    if not pairs or min(map(len, pairs)) < 2:
        return {}
    mean, ci95 = _mean_ci95(pairs)
    printed = round(cell.paper - reference.paper, 1)
    return {"versus": row, "difference": mean, "difference_ci95": ci95, "difference_paper": printed}


def _by_seed(by_run: list[tuple[Path, dict[str, Any]]]) -> dict[int, list[float]]:
    return {Run(run).config()["seed"]: e["accuracies"] for run, e in by_run}


def _why_missing(cell: Cell, options: Options) -> str:
    training = TRAININGS[cell.training]
    run = run_folder(options.out, training.name, options.seeds[0])
    why = why_failed(run) or trainable(training, options)
    if why:
        return why
    if not training.is_rl and cell.data not in options.datasets:
        return f"no {DATA[cell.data]}: --data {cell.data}=DIR"
    done = Run(run).tasks_done()
    if not done:
        return "not run yet"
    settings = Run(run).config()
    total = settings.get("tasks") or settings["epochs"] * settings["meta_batch"]
    return f"in training: {done} of {total} tasks" if done < total else "trained, not evaluated yet"


def _cost(cell: Cell, options: Options) -> dict[str, Any]:
    """Of the cost model.

    What p-Meta takes depends on the layers that its training leaves: until then, the most it can
    be.
    """
    assert cell.cost
    backbone, shots, method, key = cell.cost
    if METHODS[method].sparse_alpha:
        trained = _cost_of_training(cell, key, options)
        if trained:
            return trained
    row, batch = METHODS[method], "all" if cell.batch is None else cell.batch
    ours = _figures(Setup(backbone, row.update, row.stored_rho, shots, batch=batch))
    costs: dict[str, Any] = {"ours": ours[key]}
    if row.sparse_alpha:
        costs |= {
            "at_most": True,
            "note": "The most that training can leave: every layer counts as updated",
        }
    if cell.table == "table1" and key == "memory_mb" and options.scale != "smoke":
        about = note({key: cell.paper})  # the paper's figure, which smoke does not show
        costs |= {"note": about} if about else {}
    return costs


def _cost_of_training(cell: Cell, key: str, options: Options) -> dict[str, Any]:
    """The mean over tasks of a trained network, if it has the paper's size."""
    found = evaluated(cell, options.out)
    if not found or not all(_has_the_papers_size(Run(run).config()) for run, _ in found):
        return {}
    measured = _measured(cell, options)
    kept = {name: measured[name] for name in ("tasks", "seeds", "eval_tasks", "run", "split")}
    return {"ours": sum(evaluation[key] for _, evaluation in found) / len(found), **kept}


def _has_the_papers_size(settings: dict[str, Any]) -> bool:
    images = {"image_size": 84, "channels": 32, "n_way": 5, "inner_steps": 5}
    full = images if "channels" in settings else {"horizon": 200, "episodes": 20}
    return all(settings[name] == value for name, value in full.items())
