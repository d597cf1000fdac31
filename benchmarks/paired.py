"""Two runs on the same unseen tasks in PyTorch: what a memory budget costs in accuracy.

    python benchmarks/paired.py RUN OTHER --data DIR --shots 1,5 --tasks 300 --out FILE

prints the accuracy of each in percent with CI95, and that of OTHER minus RUN with its own CI95,
which is narrower since both see the same tasks.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from shots import mean

from pmeta.base.files import write_atomically
from pmeta.training.restore import EvaluateConfig, prepare
from pmeta.training.workers import Group


@dataclass(frozen=True)
class PairedConfig:
    """Measure two runs on the same tasks."""

    run: tyro.conf.Positional[str]
    """Run folder, or a model that `pmeta zoo` lists."""
    other: tyro.conf.Positional[str]
    """The same of the second one."""
    data: str = ""
    """Folder of classes; by default that of each run."""
    split: str = "val"
    """Which classes."""
    shots: str = "1,5"
    """Numbers of samples of each class, with commas."""
    tasks: int = 300
    """Tasks of each number."""
    n_query: int = 15
    """Queries of each class."""
    seed: int = 1
    """Of the tasks."""
    out: str = ""
    """A JSON file to write."""


def main() -> None:
    """Run the command."""
    config = tyro.cli(PairedConfig, description=__doc__)
    torch.set_num_threads(1)
    cells = []
    for shots in map(int, config.shots.split(",")):
        cells.append(measure(config, shots))
        print(json.dumps(cells[-1]), flush=True)
    if config.out:
        found = {**dataclasses.asdict(config), "cells": cells}
        write_atomically(Path(config.out), (json.dumps(found, indent=1) + "\n").encode())


def measure(config: PairedConfig, shots: int) -> dict[str, Any]:
    """Both accuracies and their difference for tasks of so many samples a class."""
    accuracy = [accuracies(config, run, shots) for run in (config.run, config.other)]
    first, second = map(mean, accuracy)
    return {
        "n_shot": shots,
        "tasks": config.tasks,
        "run": first,
        "other": second,
        "difference": mean(accuracy[1] - accuracy[0]),
    }


def accuracies(config: PairedConfig, run: str, shots: int) -> np.ndarray:
    """Of one run, task by task."""
    asked: dict[str, Any] = {"data": config.data, "split": config.split, "seed": config.seed}
    asked |= {"n_shot": shots, "n_query": config.n_query}
    _, result_of = prepare(Group(), EvaluateConfig(run, **asked))
    return np.array([result_of(i).accuracy for i in range(config.tasks)])


if __name__ == "__main__":
    main()
