"""Runs on the same unseen tasks in PyTorch: what a memory budget costs in accuracy.

    python benchmarks/paired.py RUN OTHER... --data DIR --shots 1,5 --tasks 300 --out FILE

prints the accuracy of each in percent with CI95, and that of RUN minus that of each OTHER with its
own CI95, which is narrower since all see the same tasks; then the arena of each in the engine.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import shots
import torch
import tyro

from pmeta.base.files import write_atomically
from pmeta.training.restore import EvaluateConfig, prepare
from pmeta.training.workers import Group


@dataclass(frozen=True)
class PairedConfig:
    """Measure runs on the same tasks."""

    run: tyro.conf.Positional[str]
    """Run folder, or a model that `pmeta zoo` lists."""
    others: tyro.conf.Positional[tuple[str, ...]]
    """Those that it is compared with."""
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
    for n_shot in map(int, config.shots.split(",")):
        cells.append(measure(config, n_shot))
        print(json.dumps(cells[-1]), flush=True)
    arenas = {run: arena_bytes(config, run) for run in (config.run, *config.others)}
    print(json.dumps(arenas))
    if config.out:
        found = {**dataclasses.asdict(config), "cells": cells, "arena_bytes": arenas}
        write_atomically(Path(config.out), (json.dumps(found, indent=1) + "\n").encode())


def measure(config: PairedConfig, n_shot: int) -> dict[str, Any]:
    """All accuracies and differences for tasks of so many samples a class."""
    own = accuracies(config, config.run, n_shot)
    others = {other: accuracies(config, other, n_shot) for other in config.others}
    return {
        "n_shot": n_shot,
        "tasks": config.tasks,
        "accuracy": {run: shots.mean(of) for run, of in {config.run: own, **others}.items()},
        "difference": {other: shots.mean(own - of) for other, of in others.items()},
    }


def accuracies(config: PairedConfig, run: str, n_shot: int) -> np.ndarray:
    """Of one run, task by task."""
    asked: dict[str, Any] = {"data": config.data, "split": config.split, "seed": config.seed}
    asked |= {"n_shot": n_shot, "n_query": config.n_query}
    _, result_of = prepare(Group(), EvaluateConfig(run, **asked))
    return np.array([result_of(i).accuracy for i in range(config.tasks)])


def arena_bytes(config: PairedConfig, run: str) -> int:
    """What the engine adapts a run in, with the memory budget of its training."""
    asked = shots.ShotsConfig(run, data=config.data, split=config.split, variants="steps")
    (device,) = shots.prepare(asked, classes=5)[0].values()
    return device.arena_bytes


if __name__ == "__main__":
    main()
