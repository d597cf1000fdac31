"""Accuracy of a model with a head from prototypes in the C engine, over classes and samples.

    python benchmarks/shots.py RUN --data DIR --ways 2,5,10 --shots 1,5,20 --tasks 200 --out FILE

    python benchmarks/shots.py --drawn-from FILE --picture FILE.svg

Every cell has the same tasks with all inner steps, with steps on the head alone, and with none
(ProtoNet with the same weights). The engine takes one sample at a time.
"""

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from matplotlib.figure import Figure

from pmeta.base.files import write_atomically
from pmeta.compiler.export import export
from pmeta.data.tasks import SCALE, SHIFT, ImageSet, draw_rows
from pmeta.device.binding import DeviceModel
from pmeta.training.restore import load, open_for, restore


@dataclass(frozen=True)
class ShotsConfig:
    """Measure a run in the engine."""

    run: tyro.conf.Positional[str] = ""
    """Run folder, or a model that `pmeta zoo` lists."""
    data: str = ""
    """Folder of classes; by default that of the run."""
    split: str = "val"
    """Which classes."""
    ways: str = "5"
    """Numbers of classes, with commas."""
    shots: str = "1,5"
    """Numbers of samples of each class."""
    variants: str = "steps,head,none"
    """Which layers the steps update: those of the run, the head alone, or none."""
    look: Literal["photo", "camera", "drawing"] = "photo"
    """The pictures as they are; as of another camera, the channels in another order and negative;
    or as drawings, dark lines where the photo has edges."""
    tasks: int = 200
    """Tasks of each cell."""
    queries: int = 5
    """Queries of each class."""
    seed: int = 1
    """Of the tasks."""
    out: str = ""
    """A JSON file to write."""
    drawn_from: str = ""
    """Measure nothing: take the cells of this file, or of the card of a model."""
    picture: str = ""
    """A file (.svg or .png) for the accuracy of 5 classes over samples, with and without steps."""


def main() -> None:
    """Run the command."""
    config = tyro.cli(ShotsConfig, description=__doc__)
    if config.drawn_from:
        found = json.loads(Path(config.drawn_from).read_text())
        draw(found.get("engine", found)["cells"], config.picture)
        return
    ways, shots = ([int(n) for n in text.split(",")] for text in (config.ways, config.shots))
    devices, images = prepare(config, max(ways))
    cells = []
    for way in ways:
        for shot in shots:
            cell = measure(config, devices, images, way, shot)
            cells.append(cell)
            print(json.dumps(cell), flush=True)
    arenas = {name: device.arena_bytes for name, device in devices.items()}
    found = {**dataclasses.asdict(config), "arena_bytes": arenas, "outputs": max(ways)}
    found["cells"] = cells
    if config.out:
        write_atomically(Path(config.out), (json.dumps(found, indent=1) + "\n").encode())
    if config.picture:
        draw(cells, config.picture)


def draw(cells: list[dict[str, Any]], path: str, way: int = 5) -> None:
    """Accuracy over the samples of each class, with its CI95."""
    own = sorted((c for c in cells if c["n_way"] == way), key=lambda c: c["n_shot"])
    shots = [c["n_shot"] for c in own]
    figure = Figure(figsize=(5.2, 3), layout="constrained")
    axes = figure.subplots()
    for name, label in (("steps", "with inner steps"), ("none", "no step (prototypes)")):
        mean, ci95 = zip(*(c[name] for c in own), strict=True)
        axes.errorbar(shots, mean, ci95, label=label, marker="o", capsize=3)
    axes.set_xscale("log", base=2)
    axes.set_xticks(shots, [str(n) for n in shots])
    axes.set_xlabel("photos of each class")
    axes.set_ylabel(f"accuracy (%), {way} classes")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def prepare(config: ShotsConfig, classes: int) -> tuple[dict[str, DeviceModel], ImageSet]:
    """The model as the engine runs it, once for each variant, and the pictures."""
    trained, best = load(config.run, classes)
    image = tuple(best.info["input"])
    fits = dataclasses.replace(trained, n_way=2, n_shot=1, n_query=1)
    images = open_for(fits, config.split, config.data, image)
    net, meta = restore(trained, best.tensors, image, torch.device("cpu"))
    is_head = torch.tensor([layer == net.head for layer in net.layers])
    masks = {"steps": meta.mask, "head": meta.mask & is_head, "none": meta.mask & False}
    scale, shift = [SCALE] * image[0], [SHIFT] * image[0]
    devices = {}
    for name in config.variants.split(","):
        own = dataclasses.replace(meta, mask=masks[name])
        method = trained.method_row()
        made = export(net, own, method, image, input_type="uint8", scale=scale, shift=shift)
        devices[name] = DeviceModel(made.data)
    return devices, images


def measure(
    config: ShotsConfig, devices: dict[str, DeviceModel], images: ImageSet, way: int, shot: int
) -> dict[str, Any]:
    """One cell: the accuracy of each variant in percent, with CI95, on the same tasks."""
    start, right = time.process_time(), {name: np.zeros(config.tasks) for name in devices}
    labels, queries = np.arange(way).repeat(shot), np.arange(way).repeat(config.queries)
    for i in range(config.tasks):
        rows = draw_rows(images, config.seed, i, way, shot, config.queries)
        support, query = (
            np.ascontiguousarray(seen(images.images[part.ravel()], config.look))
            for part in (rows[:, :shot], rows[:, shot:])
        )
        for name, device in devices.items():
            device.adapt(support, labels)
            right[name][i] = (device.predict(query).labels == queries).mean()
    cell: dict[str, Any] = {"n_way": way, "n_shot": shot, "tasks": config.tasks}
    cell["queries"] = config.queries
    for name, accuracy in right.items():
        cell[name] = mean(accuracy)
    if "none" in right:
        cell["gain"] = {n: mean(a - right["none"]) for n, a in right.items() if n != "none"}
    return {**cell, "cpu_seconds": round(time.process_time() - start, 1)}


def seen(pixels: np.ndarray, look: str) -> np.ndarray:
    """Pictures (n, H, W, 3) as the device gets them, (n, 3, H, W)."""
    if look == "camera":
        pixels = 255 - pixels[..., [1, 2, 0]]
    if look == "drawing":
        grey = np.pad(pixels.mean(3), ((0, 0), (1, 1), (1, 1)), mode="edge")
        down = grey[:, 2:, 1:-1] - grey[:, :-2, 1:-1]
        across = grey[:, 1:-1, 2:] - grey[:, 1:-1, :-2]
        lines = 255 - np.hypot(down, across).clip(0, 255)
        pixels = lines[..., None].repeat(3, axis=3).astype(np.uint8)
    return pixels.transpose(0, 3, 1, 2)


def mean(accuracy: np.ndarray) -> tuple[float, float]:
    """Mean and CI95 in percent."""
    spread = accuracy.std(ddof=1) / len(accuracy) ** 0.5
    return round(100 * float(accuracy.mean()), 2), round(196 * float(spread), 2)


if __name__ == "__main__":
    main()
