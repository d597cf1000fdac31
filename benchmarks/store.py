"""Inputs kept as float32, float16 and int8: the arena, the time, and what they cost in accuracy.

    python benchmarks/store.py RUN --data DIR --tasks 200 --out FILE

exports the best model of RUN with each type and adapts it in the engine, on the same tasks of
validation classes for all. `same` is the share of queries that get the same class as with float32;
times are those of the processor for one adaptation, the median.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
import tyro
from shots import mean

from pmeta.base.files import write_atomically
from pmeta.base.number_types import NUMBER_TYPES
from pmeta.cli.export import export_run
from pmeta.compiler.export import Exported
from pmeta.data.tasks import draw_rows, open_split
from pmeta.device.binding import DeviceModel
from pmeta.training.settings import parse_bytes


@dataclass(frozen=True)
class StoreConfig:
    """Measure exports that keep their inputs in fewer bytes."""

    run: tyro.conf.Positional[str]
    """Run folder, or a model that `pmeta zoo` lists, of 5 classes of 84x84 pictures."""
    data: str
    """Folder with the pictures of MiniImageNet."""
    tasks: int = 200
    """Tasks of 5 classes."""
    shots: int = 1
    """Samples of each."""
    queries: int = 5
    """Queries of each."""
    memory_budget: str = ""
    """As of `pmeta export`."""
    seed: int = 1
    """Of the tasks."""
    out: str = ""
    """A JSON file to write."""


def main() -> None:
    """Run the command."""
    config = tyro.cli(StoreConfig, description=__doc__)
    torch.set_num_threads(1)
    budget = parse_bytes(config.memory_budget) if config.memory_budget else None
    files = {
        store: export_run(config.run, classes=5, memory_budget=budget, store=store)
        for store in NUMBER_TYPES
    }
    found = measure(config, files)
    if config.out:
        text = json.dumps({**dataclasses.asdict(config), **found}, indent=1)
        write_atomically(Path(config.out), f"{text}\n".encode())


def measure(config: StoreConfig, files: dict[str, Exported]) -> dict[str, Any]:
    """For each type: bytes, accuracy, the difference to float32, same answers and time."""
    images = open_split(config.data, "val", 84)
    devices = {store: DeviceModel(e.data) for store, e in files.items()}
    labels, queries = np.arange(5).repeat(config.shots), np.arange(5).repeat(config.queries)
    answers: dict[str, list[np.ndarray]] = {store: [] for store in files}
    times: dict[str, list[float]] = {store: [] for store in files}
    for i in range(config.tasks):
        rows = draw_rows(images, config.seed, i, 5, config.shots, config.queries)
        support, query = (
            np.ascontiguousarray(images.images[part.ravel()].transpose(0, 3, 1, 2))
            for part in (rows[:, : config.shots], rows[:, config.shots :])
        )
        for store, device in devices.items():
            start = process_time()
            device.adapt(support, labels)
            times[store].append(process_time() - start)
            answers[store].append(np.array(device.predict(query).labels))
    right = {store: (np.array(found) == queries).mean(1) for store, found in answers.items()}
    cells = {}
    for store, e in files.items():
        same = np.array(answers[store]) == np.array(answers["float32"])
        cells[store] = {
            "arena_bytes": e.arena_bytes,
            "mmacs": round(max(e.macs) / 1e6, 1),
            "accuracy": mean(right[store]),
            "difference": mean(right[store] - right["float32"]),
            "same": round(100 * float(same.mean()), 2),
            "ms": round(1000 * float(np.median(times[store])), 1),
        }
        print(store, json.dumps(cells[store]), flush=True)
    return cells


if __name__ == "__main__":
    main()
