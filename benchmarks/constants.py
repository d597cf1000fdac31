"""Constants as float32, float16 and int8: bytes of the file, and what they cost in accuracy.

    python benchmarks/constants.py --data DIR --tasks 100 --out FILE

measures `miniimagenet-4conv` on tasks of its validation classes, and a depthwise network that is
meta-trained here on 80 tasks of drawn characters, both in the engine and on the same tasks for
every type. `same` is the share of queries that get the same class as with float32.
"""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from shots import mean
from torch import nn

import pmeta
from pmeta.base.files import write_atomically
from pmeta.base.number_types import NUMBER_TYPES
from pmeta.cli.export import export_run
from pmeta.compiler.export import export
from pmeta.data.tasks import SCALE, SHIFT, ImageSet, draw_rows, open_split
from pmeta.device.binding import DeviceModel


@dataclass(frozen=True)
class ConstantsConfig:
    """Measure files with small constants."""

    data: str
    """Folder with the pictures of MiniImageNet."""
    run: str = "miniimagenet-4conv"
    """Run folder, or a model that `pmeta zoo` lists, with a head from prototypes."""
    tasks: int = 100
    """Tasks of 5 classes, 1 sample of each."""
    seed: int = 1
    """Of the tasks."""
    out: str = ""
    """A JSON file to write."""


def main() -> None:
    """Run the command."""
    config = tyro.cli(ConstantsConfig, description=__doc__)
    torch.set_num_threads(1)
    photos = open_split(config.data, "val", 84)
    found = {
        "4Conv": measure(
            config, photos, lambda kind: export_run(config.run, classes=5, constants=kind).data
        ),
        "depthwise": measure(config, open_split("glyphs", "test"), depthwise(config)),
    }
    if config.out:
        text = json.dumps({**dataclasses.asdict(config), **found}, indent=1)
        write_atomically(Path(config.out), f"{text}\n".encode())


def depthwise(config: ConstantsConfig) -> Callable[[str], bytes]:
    """The exports of a separable network, of which the head and the last norm adapt."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        each = nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False)
        mix = nn.Conv2d(inputs, outputs, 1, bias=False)
        return [each, mix, nn.GroupNorm(8, outputs), nn.ReLU(), nn.MaxPool2d(2)]

    torch.manual_seed(config.seed)
    first = [nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.GroupNorm(8, 32), nn.ReLU()]
    blocks = [*block(32, 64), *block(64, 128), *block(128, 128)]
    net = nn.Sequential(*first, *blocks, nn.Flatten(), nn.Linear(128 * 9, 5))
    learner = pmeta.Learner(
        net, torch.zeros(1, 1, 28, 28), inner_steps=3, alpha_0=0.1, memory_budget="40%"
    )
    train = pmeta.open_split("glyphs", "train")
    sizes = {"n_way": 5, "n_shot": 1, "n_query": 5}
    tasks = (pmeta.sample_task(train, seed=0, i=i, **sizes) for i in range(80))
    learner.meta_train(tasks, n_tasks=80)

    def exported(kind: str) -> bytes:
        what = learner.net, learner.meta, learner.method, (1, 28, 28)
        pixels: dict[str, Any] = {"input_type": "uint8", "scale": [SCALE], "shift": [SHIFT]}
        return export(*what, constants=kind, **pixels).data

    return exported


def measure(
    config: ConstantsConfig, images: ImageSet, exported: Callable[[str], bytes]
) -> dict[str, Any]:
    """For each type: bytes, accuracy, the difference to float32, and the share of same answers."""
    files = {kind: exported(kind) for kind in NUMBER_TYPES}
    devices = {kind: DeviceModel(data) for kind, data in files.items()}
    labels, queries = np.arange(5), np.arange(5).repeat(15)
    answers: dict[str, list[np.ndarray]] = {kind: [] for kind in NUMBER_TYPES}
    for i in range(config.tasks):
        rows = draw_rows(images, config.seed, i, 5, 1, 15)
        support, query = (
            np.ascontiguousarray(images.images[part.ravel()].transpose(0, 3, 1, 2))
            for part in (rows[:, :1], rows[:, 1:])
        )
        for kind, device in devices.items():
            device.adapt(support, labels)
            answers[kind].append(np.array(device.predict(query).labels))
    right = {kind: (np.array(found) == queries).mean(1) for kind, found in answers.items()}
    cells = {}
    for kind in NUMBER_TYPES:
        same = np.array(answers[kind]) == np.array(answers["float32"])
        cells[kind] = {
            "file_bytes": len(files[kind]),
            "arena_bytes": devices[kind].arena_bytes,
            "accuracy": mean(right[kind]),
            "difference": mean(right[kind] - right["float32"]),
            "same": round(100 * float(same.mean()), 2),
        }
        print(kind, json.dumps(cells[kind]), flush=True)
    return cells


if __name__ == "__main__":
    main()
