"""The command `pmeta adapt MODEL`: learn from a few pictures and name others, on the device, without torch."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from pmeta.device import Adaptation, DeviceModel, load
from pmeta.image_decode import UNREADABLE, decode


@dataclass(frozen=True)
class AdaptConfig:
    """Adapt an exported model to a support set and predict the classes of queries."""

    model: tyro.conf.Positional[str]
    """File that `pmeta export` wrote."""
    support: str
    """Folder with a folder of pictures for each class; or a .npy array (classes, samples, *shape of a sample)."""
    query: str = ""
    """Folder of pictures, or of a folder for each class, which gives an accuracy too; or a .npy array (samples, *shape) or
    (classes, samples, *shape)."""
    save: str = ""
    """Write the adapted model to this file."""
    json: bool = False
    """Print one JSON object instead of a table."""


class Samples(NamedTuple):
    """What a folder or an array holds."""

    x: np.ndarray
    names: list[str]
    labels: np.ndarray | None
    """Index into `classes`; None where the samples are in no class folder."""
    classes: list[str]


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(AdaptConfig, args=argv, prog="pmeta adapt", description=AdaptConfig.__doc__)
    model = load(config.model)
    support = read_samples(config.support, model)
    if support.labels is None:
        raise ValueError(f"a support set has a folder for each class, {config.support} has pictures but no folders in it.")
    if len(support.classes) > model.outputs:
        raise ValueError(f"the model tells {model.outputs} classes apart, {config.support} has {len(support.classes)}.")
    query = read_samples(config.query, model) if config.query else None
    if query and query.labels is not None and query.classes != support.classes and not config.query.endswith(".npy"):
        raise ValueError(
            f"the queries have the classes of the support set, {', '.join(support.classes)}, got {', '.join(query.classes)}."
        )
    before = model.weights()
    adaptation = model.adapt(support.x, support.labels)
    found = report(model, adaptation, before, support, query)
    if config.save:
        model.save(config.save)
    if config.json:
        print(json.dumps(found))
    else:
        show(found, sys.stdout.isatty())


def read_samples(path: str, model: DeviceModel) -> Samples:
    """Pictures or arrays, in the shape and type that the model reads."""
    root = Path(path)
    if root.suffix == ".npy":
        return _read_array(root, model)
    if not root.is_dir():
        raise ValueError(f"samples are in a folder or a .npy file, got {path}.")
    folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    files = [(p, label) for label, folder in enumerate(folders) for p in _files(folder)] or [(p, 0) for p in _files(root)]
    if not files:
        raise ValueError(f"there are no pictures in {path}.")
    x = np.stack([_picture(p, model) for p, _ in files])
    labels = np.array([label for _, label in files]) if folders else None
    return Samples(x, [str(p.relative_to(root)) for p, _ in files], labels, [f.name for f in folders])


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))


def _read_array(path: Path, model: DeviceModel) -> Samples:
    x = np.load(path, allow_pickle=False)
    grouped = x.ndim == len(model.input_shape) + 2
    if x.shape[1 + grouped :] != model.input_shape:
        raise ValueError(f"{path} should end in the shape of a sample, {model.input_shape}, got {x.shape}.")
    labels = np.repeat(np.arange(x.shape[0]), x.shape[1]) if grouped else None
    x = x.reshape(-1, *model.input_shape)
    classes = [str(i) for i in range(int(labels.max()) + 1)] if labels is not None else []
    return Samples(x, [str(i) for i in range(len(x))], labels, classes)


def _picture(path: Path, model: DeviceModel) -> np.ndarray:
    """One picture as uint8. (C, H, W)"""
    if len(model.input_shape) != 3 or model.input_type != "uint8":
        raise ValueError(
            f"the model reads {model.input_type} samples of shape {model.input_shape}, not pictures: give a .npy file."
        )
    channels, height, width = model.input_shape
    try:
        pixels = decode(path.read_bytes(), (width, height), channels)
    except UNREADABLE as error:
        raise ValueError(f"{path} is no readable picture ({error}): remove it.") from None
    return np.frombuffer(pixels, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)


def report(
    model: DeviceModel, adaptation: Adaptation, before: dict[str, np.ndarray], support: Samples, query: Samples | None
) -> dict[str, Any]:
    """All that the command prints, as plain values."""
    found: dict[str, Any] = {
        "classes": support.classes,
        "support": len(support.x),
        "steps": model.steps,
        "losses": [float(loss) for loss in adaptation.losses],
        "milliseconds_per_step": [float(ms) for ms in adaptation.milliseconds],
        "updated_channels": updated_channels(before, model.weights()),
    }
    if query is not None:
        predicted = model.scores(query.x)[:, : len(support.classes)].argmax(1)
        found["predictions"] = {name: support.classes[p] for name, p in zip(query.names, predicted, strict=True)}
        if query.labels is not None:
            found["accuracy"] = float((predicted == query.labels).mean())
    sizes = ("arena_bytes", "high_water_bytes", "infer_bytes", "state_bytes")
    return {**found, **{name: getattr(model, name) for name in sizes}, "sample_bytes": support.x[0].nbytes}


def updated_channels(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """For each weight: which input channels changed (those with gamma_fw > 0 in some step), and of how many."""
    found = {}
    for name, old in before.items():
        changed = old != after[name]
        if old.ndim > 1:
            by_input = changed.any(axis=(0, *range(2, old.ndim)))
            found[name] = {"of": len(by_input), "updated": np.flatnonzero(by_input).tolist()}
        else:
            found[name] = {"of": len(changed), "updated": np.flatnonzero(changed).tolist()}
    return found


def show(found: dict[str, Any], terminal: bool) -> None:
    """Tables for people."""
    console = Console(width=None if terminal else 100, highlight=False)
    for name, label in found.get("predictions", {}).items():
        print(f"{name}\t{label}")
    if "accuracy" in found:
        console.print(f"accuracy {100 * found['accuracy']:.1f} %")
    table = Table("", "bytes", title=f"{found['support']} samples, {found['steps']} steps", title_justify="left")
    table.columns[1].justify = "right"
    for label, key in (
        ("arena, planned", "arena_bytes"),
        ("arena, reached", "high_water_bytes"),
        ("of it weights under adaptation", "state_bytes"),
        ("one sample", "sample_bytes"),
    ):
        table.add_row(label, f"{found[key]:,}")
    console.print(table)
    per_step = ", ".join(f"{ms:.1f}" for ms in found["milliseconds_per_step"])
    console.print(f"loss {found['losses'][0]:.3f} before, {found['losses'][-1]:.3f} at the last step; {per_step} ms a step")
    shares = [f"{name} {len(u['updated'])}/{u['of']}" for name, u in found["updated_channels"].items()]
    console.print("channels updated: " + ", ".join(shares), markup=False)
