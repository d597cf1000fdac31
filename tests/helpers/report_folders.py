"""Small run folders and results, written by what writes the real ones."""

import dataclasses
from base64 import b64decode
from pathlib import Path
from typing import Any

import torch

from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.pictures.train import build
from pmeta.kinds.policies.config import RLConfig
from pmeta.kinds.policies.train import PolicyTraining
from pmeta.method.inner import InnerLoop
from pmeta.method.methods import METHODS
from pmeta.method.outer import Outer
from pmeta.report.read import read_run
from pmeta.report.run import RunRecord
from pmeta.training.meta_learning import MetaLearning, schedule
from pmeta.training.run_folder import Run, write_json
from pmeta.training.trainer import describe

LAYERS = 9  # of 4Conv
MINI = ImageConfig(data="/data/mini", method="pmeta", tasks=800, epoch_tasks=400, val_tasks=100)
WALK = RLConfig(env="navigation", method="pmeta", epochs=40, val_every=20)


def alphas(method: str, columns: int, steps: int, size: float) -> list[list[float]]:
    """Step sizes as the method leaves them: all, the last, all but the last, or a late conv and the
    fc layer."""
    row = METHODS[method]
    live = {"head": [columns - 1], "body": list(range(columns - 1))}.get(
        row.update, list(range(columns))
    )
    live = [columns - 3, columns - 1] if row.sparse_alpha else live
    return [[size * (k + 1) if l in live else 0.0 for l in range(columns)] for k in range(steps)]


def trained(config: ImageConfig | RLConfig) -> Any:
    """What the trainer would drive, without data."""
    if isinstance(config, RLConfig):
        return PolicyTraining(config)
    net, meta = build(config, (3, 84, 84), torch.device("cpu"))
    outer = Outer(InnerLoop(net, config.method_row()), meta, schedule(config))
    return MetaLearning(config, outer, config.n_way * config.n_shot, _no_data, _no_data)


def _no_data(*_: Any) -> Any:
    raise AssertionError("nothing is trained here")


def write_run(
    path: Path,
    config: ImageConfig | RLConfig = MINI,
    validations: int = 2,
    best: bool = True,
    **figures: Any,
) -> Path:
    """A run folder with so many validations, the last of them the best model; `figures` change what
    is logged."""
    config = dataclasses.replace(config, out=str(path))
    with Run(path) as run:
        run.start(config)
        describe(run, config, trained(config))
        rl = isinstance(config, RLConfig)
        for i in range(validations):
            score = {"after": -99.0, "val_after": -40.0 + i} if rl else {"val_accuracy": 30.0 + i}
            alpha = alphas(config.method, 4 if rl else LAYERS, config.inner_steps, 0.01 * (i + 1))
            memory = {"memory_mb": 1.03, "exact_memory_mb": 1.93, "gmac": 0.2}
            record = {
                "tasks": config.epoch_tasks * (i + 1),
                **score,
                "val_ci95": 1.5,
                **memory,
                "alpha": alpha,
            } | figures
            run.log(record)
        if best and validations:
            keys = [key for key in record if key not in ("alpha", "after")]
            write_json(
                path / "best.json", {"input": [3, 84, 84], **{key: record[key] for key in keys}}
            )
    return path


def run_of(path: Path, config: ImageConfig | RLConfig = MINI, **changes: Any) -> RunRecord:
    """A run folder, written and read; `changes` are of its settings, or of what is logged."""
    settings = {f.name for f in dataclasses.fields(config)}
    own = {key: value for key, value in changes.items() if key in settings}
    rest = {key: value for key, value in changes.items() if key not in settings}
    return read_run(write_run(path, dataclasses.replace(config, **own), **rest), [])


def inside(picture: str) -> str:
    """The SVG in an image of the page."""
    return b64decode(picture.partition("base64,")[2].partition('"')[0]).decode()


def evaluation(**changes: Any) -> dict[str, Any]:
    """What `pmeta evaluate --json` prints."""
    ratios = [[0.0] * (LAYERS - 3) + [0.25, 0.0, 1.0]] * 5
    asked = {"data": "", "split": "test", "batch": 1}
    figures = {
        "tasks": 1000,
        "accuracy": 36.4,
        "ci95": 0.5,
        "memory_mb": 1.01,
        "exact_memory_mb": 1.9,
        "gmac": 0.19,
    }
    return {**asked, **figures, "update_ratios": ratios, **changes}


def cell(row: str, column: str, **changes: Any) -> dict[str, Any]:
    """A cell of a table of `pmeta reproduce`."""
    figures = {
        "unit": "%",
        "ours": 36.4,
        "ci95": 0.5,
        "paper": 47.1,
        "tasks": 2000,
        "seeds": [0],
        "eval_tasks": 1000,
    }
    return {
        "row": row,
        "column": column,
        **figures,
        "run": "runs/a",
        "missing": None,
        "split": "val",
        **changes,
    }


def table(**changes: Any) -> dict[str, Any]:
    """A table of `pmeta reproduce`: a cell of ours, one that is compared with it, a missing one,
    one of the cost model."""
    none: dict[str, Any] = {"ci95": None, "tasks": None, "seeds": [], "eval_tasks": None}
    difference: dict[str, Any] = {
        "versus": "x/x",
        "difference": 0.4,
        "difference_ci95": 0.6,
        "difference_paper": 1.9,
    }
    cells = [
        cell("x/x", "1-shot Mini"),
        cell("0/0", "1-shot Mini", ours=36.8, paper=49.0, **difference),
        cell("x/x", "1-shot CUB", **none | {"ours": None, "missing": "no CUB: --data cub=DIR"}),
        cell(
            "x/x", "memory", **none | {"unit": "MB", "ours": 0.9929, "paper": 1.0, "at_most": True}
        ),
    ]
    names = {
        "name": "table4",
        "title": "Ablation",
        "scale": "short",
        "data": ["MiniImageNet"],
        "split": "val",
    }
    places = {
        "rows": ["x/x", "0/0"],
        "columns": ["1-shot Mini", "1-shot CUB", "memory"],
        "cells": cells,
    }
    return {"format": "pmeta-results", "version": 1, **names, **places, **changes}
