"""The command `pmeta adapt MODEL`: learn from a few pictures and name others, on the device,
without torch."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np
import tyro
from PIL import UnidentifiedImageError
from rich.table import Table

from pmeta import zoo
from pmeta.base.console import Console
from pmeta.base.terminal import printable
from pmeta.data.decode import UNREADABLE, decode
from pmeta.data.sources import Member, is_hidden, read
from pmeta.device import Adaptation, DeviceModel, EngineError, load


@dataclass(frozen=True)
class AdaptConfig:
    """Adapt an exported model to a support set and predict the classes of queries."""

    model: tyro.conf.Positional[str]
    """Name of a model that `pmeta zoo` lists, or file that `pmeta export` wrote."""
    support: str
    """Folder with a folder of pictures for each class; or a .npy array (classes, samples, *shape of
    a sample)."""
    query: str = ""
    """Folder of pictures, or of a folder for each class, which gives an accuracy too; or a .npy
    array (samples, *shape) or (classes, samples, *shape)."""
    save: str = ""
    """Write the adapted model to this file, for pmeta.device.binding or C to predict with; an old
    file there is replaced."""
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
    model = open_model(config.model)
    support = read_samples(config.support, model)
    if len(support.classes) > model.outputs and config.model in zoo.names():
        model = open_model(config.model, len(support.classes))
    labels = support_labels(config, support, model)
    query = read_queries(config.query, model, support) if config.query else None
    before = model.weights()
    adaptation = model.adapt(support.x, labels)
    found = report(model, adaptation, before, support, query)
    if config.save:  # before anything is printed, which may fail
        model.save(config.save)
    if config.json:
        print(json.dumps(found))
    else:
        show(found, sys.stdout.isatty())


def open_model(path: str, classes: int = 1) -> DeviceModel:
    """The classifier in a file, or a model of the zoo with outputs for so many classes, if it has
    that many."""
    try:
        model = load(zoo.find(path, classes) if path in zoo.names() else path)
    except OSError as error:
        shipped = f", or one of {', '.join(zoo.names())}" if zoo.names() else ""
        raise ValueError(
            f"cannot read {path} ({error.strerror}): a model is a file that pmeta export "
            f"wrote{shipped}."
        ) from None
    except EngineError as error:
        raise ValueError(f"{path}: {error}") from None
    if model.rows != 1:
        raise ValueError(
            f"pmeta adapt takes a classifier, {path} is a policy: adapt it in Python, with "
            "adapt_with."
        )
    return model


def support_labels(config: AdaptConfig, support: Samples, model: DeviceModel) -> np.ndarray:
    """Raises ValueError unless there are two classes or more, each with samples, and no more than
    the model has outputs."""
    path = config.support
    if support.labels is None:
        what = (
            f"the array has one axis less, {support.x.shape}"
            if path.endswith(".npy")
            else "pictures but no folders in it"
        )
        raise ValueError(
            "a support set has samples by class, (classes, samples, *shape) or a folder each; "
            f"{path}: {what}."
        )
    if len(support.classes) > model.outputs:
        run = config.model if config.model in zoo.names() else "RUN"
        raise ValueError(
            f"the model tells {model.outputs} classes apart, {path} has {len(support.classes)}: "
            f"leave some out, or write a model for more with pmeta export {run} --classes "
            f"{len(support.classes)}."
        )
    if len(support.classes) < 2:
        raise ValueError(
            f"classes are told apart, so there are two or more, {path} has only "
            f"{support.classes[0]}: add one."
        )
    without = [name for i, name in enumerate(support.classes) if i not in support.labels]
    if without:
        raise ValueError(
            f"each class is learned from a sample at least, {path} has none of "
            f"{', '.join(without)}: add some."
        )
    return support.labels


def read_queries(path: str, model: DeviceModel, support: Samples) -> Samples:
    """Samples to name, their labels counted as those of the support set; they may be of some of its
    classes alone."""
    query = read_samples(path, model)
    known, names, labels = support.classes, query.classes, query.labels
    if labels is None:
        return query
    if path.endswith(".npy"):  # classes of an array have numbers alone
        names = [known[i] if i < len(known) else f"number {i}" for i in range(len(names))]
    strange = [name for name in names if name not in known]
    if strange:
        raise ValueError(
            f"queries are of the support set's classes, {', '.join(known)}, got "
            f"{', '.join(strange)} in {path}."
        )
    return query._replace(
        labels=np.array([known.index(names[label]) for label in labels]), classes=known
    )


def read_samples(path: str, model: DeviceModel) -> Samples:
    """Pictures or arrays, in the shape and type that the model reads."""
    root = Path(path)
    if root.suffix == ".npy":
        return _read_array(root, model)
    if not path or not root.is_dir():
        given = (
            f"{path}, which is {'no such thing' if root.exists() else 'not there'}"
            if path
            else "an empty name"
        )
        raise ValueError(f"samples are in a folder or a .npy file, got {given}.")
    folders = [p for p in _visible(root) if p.is_dir()]
    loose = [(_file(p), 0) for p in _visible(root) if p not in folders]
    if folders and loose:
        raise ValueError(
            f"pictures lie all in folders by class or all without, {path} has {loose[0][0].name} "
            f"beside {folders[0].name}/: move the one or the other."
        )
    files = [
        (p, label) for label, folder in enumerate(folders) for p in map(_file, _visible(folder))
    ] or loose
    if not files:
        raise ValueError(
            f"there are no pictures in {path}: give a folder of pictures, or of a folder for each "
            "class."
        )
    x = np.stack([_picture(p, model) for p, _ in files])
    labels = np.array([label for _, label in files]) if folders else None
    return Samples(
        x, [str(p.relative_to(root)) for p, _ in files], labels, [f.name for f in folders]
    )


def _visible(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if not is_hidden(p.name))


def _file(path: Path) -> Path:
    if path.is_dir():
        raise ValueError(
            f"a class is a folder of pictures and nothing else, {path} is a folder in it: move its "
            "pictures up."
        )
    if not path.is_file():
        raise ValueError(
            f"{path} is no file{' but a link to nowhere' if path.is_symlink() else ''}: remove it."
        )
    return path


def _read_array(path: Path, model: DeviceModel) -> Samples:
    try:
        with path.open("rb") as file:
            x = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise ValueError(
            f"cannot read {path} ({error.strerror}): give a file that numpy.save wrote."
        ) from None
    except (
        ValueError,
        EOFError,
        MemoryError,
        OverflowError,
        TypeError,
        SyntaxError,
        TokenError,
    ) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"cannot read {path} ({reason}): write it again with numpy.save."
        ) from None
    grouped = x.ndim == len(model.input_shape) + 2
    if x.shape[1 + grouped :] != model.input_shape or x.size == 0:
        raise ValueError(
            f"{path} should hold samples and end in the shape of one, {model.input_shape}, got the "
            f"shape {x.shape}."
        )
    if x.dtype != model.input_type:
        raise ValueError(
            f"{path} should be of {model.input_type}, which the model reads, got {x.dtype}."
        )
    labels = np.repeat(np.arange(x.shape[0]), x.shape[1]) if grouped else None
    x = x.reshape(-1, *model.input_shape)
    classes = [str(i) for i in range(int(labels.max()) + 1)] if labels is not None else []
    return Samples(x, [str(i) for i in range(len(x))], labels, classes)


def _picture(path: Path, model: DeviceModel) -> np.ndarray:
    """One picture as uint8. (C, H, W)"""
    if len(model.input_shape) != 3 or model.input_type != "uint8":
        raise ValueError(
            f"the model reads {model.input_type} samples of shape {model.input_shape}, not "
            "pictures: give a .npy file."
        )
    channels, height, width = model.input_shape
    try:
        member = Member(str(path), str(path), 0, path.stat().st_size)
        pixels = decode(read(member), (width, height), channels)
    except UnidentifiedImageError:
        raise ValueError(
            f"{path} is no picture that Pillow reads (HEIC: save it as JPEG): convert it or move "
            "it away."
        ) from None
    except UNREADABLE as error:
        raise ValueError(
            f"{path} cannot be read ({str(error).rstrip('.')}): mend it or move it away."
        ) from None
    return np.frombuffer(pixels, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)


def report(
    model: DeviceModel,
    adaptation: Adaptation,
    before: dict[str, np.ndarray],
    support: Samples,
    query: Samples | None,
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
        predicted = model.predict(query.x)
        found["predictions"] = {
            name: support.classes[p] for name, p in zip(query.names, predicted, strict=True)
        }
        if query.labels is not None:
            found["accuracy"] = float((predicted == query.labels).mean())
    sizes = ("arena_bytes", "high_water_bytes", "infer_bytes", "state_bytes")
    return {
        **found,
        **{name: getattr(model, name) for name in sizes},
        "sample_bytes": support.x[0].nbytes,
    }


def updated_channels(
    before: dict[str, np.ndarray], after: dict[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
    """For each weight: which input channels changed (those with gamma_fw > 0 in some step), and of
    how many."""
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
        print(f"{printable(name)}\t{printable(label)}")
    if "accuracy" in found:
        console.print(f"accuracy {100 * found['accuracy']:.1f} %")
    table = Table(
        "",
        "bytes",
        title=f"{found['support']} samples, {found['steps']} steps",
        title_justify="left",
    )
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
    console.print(
        f"loss {found['losses'][0]:.3f} before, {found['losses'][-1]:.3f} at the last step; "
        f"{per_step} ms a step"
    )
    shares = [
        f"{name} {len(u['updated'])}/{u['of']}" for name, u in found["updated_channels"].items()
    ]
    console.print("channels updated: " + ", ".join(shares), markup=False)
