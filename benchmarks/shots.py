"""Accuracy of a model with a head from prototypes in the C engine, over classes and samples.

    python benchmarks/shots.py RUN --data DIR --ways 2,5,10 --shots 1,5,20 --tasks 200 --out FILE
    python benchmarks/shots.py --drawn-from FILE FILE --picture FILE.svg

Every cell has the same tasks with all inner steps and with none (ProtoNet with the same weights).
With --mirror every cell also has them with each support picture mirrored too, and what that gains.
"""

import dataclasses
import json
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
from pmeta.kinds.pictures.best import load, open_for, restore, with_outputs
from pmeta.training.budget import Sample, export_budget
from pmeta.training.results import mean_ci95


@dataclass(frozen=True)
class ShotsConfig:
    """Measure a run in the engine."""

    run: tyro.conf.Positional[str] = ""
    """Run folder, or a model that `pmeta zoo` lists."""
    data: str = ""
    """Folder of classes; by default that of the run. The validation classes are taken."""
    ways: str = "5"
    """Numbers of classes, with commas."""
    shots: str = "1,5"
    """Numbers of samples of each class."""
    look: Literal["photo", "drawing"] = "photo"
    """The pictures as they are, or as drawings: dark lines where the photo has edges."""
    tasks: int = 200
    """Tasks of each cell."""
    queries: int = 5
    """Queries of each class."""
    seed: int = 1
    """Of the tasks."""
    mirror: bool = False
    """Also measure with the mirrored copy of each support picture, as `pmeta adapt --mirror`."""
    out: str = ""
    """A JSON file to write."""
    title: str = ""
    """What the pictures are called above theirs in a drawing."""
    drawn_from: tuple[str, ...] = ()
    """Measure nothing: take the cells of these files, or of the card of a model."""
    picture: str = ""
    """A file (.svg or .png) for the accuracy of 5 classes over samples, with and without steps."""


def main() -> None:
    """Run the command."""
    config = tyro.cli(ShotsConfig, description=__doc__)
    if config.drawn_from:
        files = [json.loads(Path(path).read_text()) for path in config.drawn_from]
        draw([file.get("engine", file) for file in files], config.picture)
        return
    ways, shots = ([int(n) for n in text.split(",")] for text in (config.ways, config.shots))
    devices, images = prepare(config, max(ways))
    arenas = {name: device.arena_bytes for name, device in devices.items()}
    found = {**dataclasses.asdict(config), "arena_bytes": arenas, "outputs": max(ways), "cells": []}
    for way in ways:
        for shot in shots:
            found["cells"].append(measure(config, devices, images, way, shot))
            print(json.dumps(found["cells"][-1]), flush=True)
    if config.out:
        write_atomically(Path(config.out), (json.dumps(found, indent=1) + "\n").encode())


def draw(measured: list[dict[str, Any]], path: str, way: int = 5) -> None:
    """Accuracy over the samples of each class, with its CI95; a plot for each kind of pictures."""
    figure = Figure(figsize=(1.6 + 2.8 * len(measured), 3), layout="constrained")
    plots = figure.subplots(1, len(measured), squeeze=False)[0]
    for axes, found in zip(plots, measured, strict=True):
        own = sorted((c for c in found["cells"] if c["n_way"] == way), key=lambda c: c["n_shot"])
        shots = [c["n_shot"] for c in own]
        for name, label in (("steps", "with inner steps"), ("none", "no step (prototypes)")):
            mean, ci95 = zip(*(c[name] for c in own), strict=True)
            axes.errorbar(shots, mean, ci95, label=label, marker="o", capsize=3)
        axes.set_xscale("log", base=2)
        axes.set_xticks(shots, [str(n) for n in shots])
        axes.set_title(found.get("title", ""))
        axes.set_xlabel("pictures of each class")
        axes.grid(alpha=0.3)
    plots[0].set_ylabel(f"accuracy (%), {way} classes")
    plots[0].legend()
    figure.savefig(path)


def prepare(config: ShotsConfig, classes: int) -> tuple[dict[str, DeviceModel], ImageSet]:
    """The model in the engine, with its steps and with none, and the pictures."""
    trained, best = load(config.run)
    trained = with_outputs(trained, config.run, classes)
    image = tuple(best.info["input"])
    fits = dataclasses.replace(trained, n_way=2, n_shot=1, n_query=1)
    images = open_for(fits, "val", config.data, image)
    net, meta = restore(trained, best.tensors, image, torch.device("cpu"))
    method, own = trained.method_row(), (trained.memory_budget, trained.budget_accounting)
    budget = export_budget(net, meta, method, *own, Sample(image, "uint8"), batch=1)
    reads: dict[str, Any] = {"scale": [SCALE] * image[0], "shift": [SHIFT] * image[0]}
    reads |= {"input_type": "uint8", "memory_budget": budget}
    metas = {"steps": meta, "none": dataclasses.replace(meta, mask=meta.mask & False)}
    models = {name: export(net, own, method, image, **reads) for name, own in metas.items()}
    return {name: DeviceModel(model.data) for name, model in models.items()}, images


def measure(
    config: ShotsConfig, devices: dict[str, DeviceModel], images: ImageSet, way: int, shot: int
) -> dict[str, Any]:
    """One cell: the accuracy of each variant in percent, with CI95, on the same tasks."""
    looks = (False, True) if config.mirror else (False,)
    right = {mirror: {name: np.zeros(config.tasks) for name in devices} for mirror in looks}
    labels, queries = np.arange(way).repeat(shot), np.arange(way).repeat(config.queries)
    for i in range(config.tasks):
        rows = draw_rows(images, config.seed, i, way, shot, config.queries)
        support, query = (
            seen(images.images[part.ravel()], config.look)
            for part in (rows[:, :shot], rows[:, shot:])
        )
        for mirror, accuracy in right.items():
            for name, device in devices.items():
                device.adapt(support, labels, mirror=mirror)
                accuracy[name][i] = (device.predict(query).labels == queries).mean()
    cell: dict[str, Any] = {"n_way": way, "n_shot": shot, "tasks": config.tasks}
    cell |= {"queries": config.queries, **compared(right[False])}
    if config.mirror:
        gained = {name: in_percent(a - right[False][name]) for name, a in right[True].items()}
        cell["mirrored"] = {**compared(right[True]), "gain_of_mirror": gained}
    return cell


def compared(right: dict[str, np.ndarray]) -> dict[str, Any]:
    """The accuracy of each variant, and what the steps gain."""
    gain = {"gain": {"steps": in_percent(right["steps"] - right["none"])}}
    return {name: in_percent(accuracy) for name, accuracy in right.items()} | gain


def seen(pixels: np.ndarray, look: str) -> np.ndarray:
    """Pictures (n, H, W, 3) as the device gets them, (n, 3, H, W)."""
    if look == "drawing":
        grey = np.pad(pixels.mean(3), ((0, 0), (1, 1), (1, 1)), mode="edge")
        down = grey[:, 2:, 1:-1] - grey[:, :-2, 1:-1]
        across = grey[:, 1:-1, 2:] - grey[:, 1:-1, :-2]
        lines = 255 - np.hypot(down, across).clip(0, 255)
        pixels = lines[..., None].repeat(3, axis=3).astype(np.uint8)
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


def in_percent(accuracy: np.ndarray) -> tuple[float, float]:
    """Mean and CI95 in percent."""
    mean, ci95 = mean_ci95(torch.from_numpy(100 * accuracy))
    return round(mean, 2), round(ci95, 2)


if __name__ == "__main__":
    main()
