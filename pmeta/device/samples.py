"""Samples from files as `pmeta adapt` reads them: pictures and arrays, alone or in folders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pmeta.data.recordings.files import find_recordings, read_recordings
from pmeta.data.recordings.windows import Windowing
from pmeta.data.sources import Member, is_hidden, read
from pmeta.device.arrays import SUFFIXES, read_npy, read_npz, samples_of
from pmeta.device.description import Description

PICTURES = (
    *(".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"),
    *(".heic", ".heif"),
)
"""A file of such a name that cannot be read is an error; others are passed over, by name."""


class Samples(NamedTuple):
    """What a file, a folder or an array holds."""

    x: np.ndarray
    """(n, *shape of a sample), as the model reads them."""
    names: list[str]
    """Of each sample: its path below the folder, or its number in the array."""
    labels: np.ndarray
    """Index into `classes`, -1 for a sample in none. (n,)"""
    classes: list[str]
    passed_over: Sequence[str] = ()
    """Files that are neither pictures nor arrays."""


class NoPictureError(ValueError):
    """A file that is no picture and has no name like one."""


def read_samples(path: str | Path, model: Description) -> Samples:
    """One picture, a folder of pictures, a folder of a folder for each class, a .npy or an .npz; of
    a model for sensors, recordings (.csv, .npz, .npy), which are cut into windows.

    Pictures and arrays become what the model reads: upright, scaled and cropped at the centre."""
    root = Path(path)
    if model.reads == "recordings":
        return read_windows(root, model.facts["windows"])
    if root.suffix == ".npy":
        return _from_npy(root, model)
    if root.suffix == ".npz":
        return _from_npz(root, model)
    if root.is_file():
        x = _file(root, model)
        return Samples(x, [root.name] * len(x), _none(x), [])
    if not str(path) or not root.is_dir():
        there = "no such thing" if root.exists() else "not there"
        given = f"{path}, which is {there}" if str(path) else "an empty name"
        raise ValueError(f"samples are in a folder, a picture or a .npy or .npz file, got {given}.")
    return _from_folder(root, model)


def read_windows(root: Path, facts: dict[str, Any]) -> Samples:
    """The windows of a recording, or of a folder of recordings, as the model was trained with them.

    The classes are those of the model; a window of several activities is in none."""
    windowing = Windowing.from_facts(facts)
    files = find_recordings(root)
    found = [r for path in files for r in read_recordings(path, root, windowing.columns)]
    parts = [windowing.cut(r) for r in found]
    above = len(str(root)) + 1 if root.is_dir() else len(str(root)) - len(root.name)
    names = [
        f"{r.name[above:]}[{start}]"
        for r, part in zip(found, parts, strict=True)
        for start in part.start.tolist()
    ]
    x, y = (np.concatenate([getattr(part, key) for part in parts]) for key in ("x", "y"))
    return Samples(x, names, y, list(windowing.labels))


def read_many(paths: Sequence[str | Path], model: Description) -> Samples:
    """The samples of some paths, one behind the other, named by their whole paths."""
    parts = [read_samples(path, model) for path in paths]
    classes = sorted({name for part in parts for name in part.classes})
    labels = [
        classes.index(part.classes[label]) if label >= 0 else -1
        for part in parts
        for label in part.labels
    ]
    names = [
        str(root / name if (root := Path(path)).is_dir() else root)
        + ("" if root.is_dir() or len(part.x) == 1 else f"[{name}]")
        for path, part in zip(paths, parts, strict=True)
        for name in part.names
    ]
    return Samples(
        np.concatenate([part.x for part in parts]),
        names,
        np.array(labels),
        classes,
        [
            str(Path(path) / name)
            for path, part in zip(paths, parts, strict=True)
            for name in part.passed_over
        ],
    )


def _from_folder(root: Path, model: Description) -> Samples:
    folders = [p for p in _visible(root) if p.is_dir()]
    files = [(p, -1) for p in _visible(root) if p not in folders]
    files += [(p, i) for i, folder in enumerate(folders) for p in _visible(folder)]
    found: list[tuple[str, int, np.ndarray]] = []
    passed_over = []
    for path, label in files:
        try:
            x = _file(_plain(path), model)
        except NoPictureError:
            passed_over.append(str(path.relative_to(root)))
            continue
        name = str(path.relative_to(root))
        found += [(name if len(x) == 1 else f"{name}[{i}]", label, s) for i, s in enumerate(x)]
    if not found:
        raise ValueError(
            f"there are no pictures in {root}: give a folder of pictures, or of a folder for each "
            f"class."
        )
    labels = np.array([label for _, label, _ in found])
    x = np.stack([x for _, _, x in found])
    return Samples(
        x, [name for name, _, _ in found], labels, [f.name for f in folders], passed_over
    )


def _visible(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if not is_hidden(p.name))


def _plain(path: Path) -> Path:
    if path.is_dir():
        raise ValueError(
            f"a class is a folder of pictures and nothing else, {path} is a folder in it: move its "
            f"pictures up."
        )
    if not path.is_file():
        raise ValueError(
            f"{path} is no file{' but a link to nowhere' if path.is_symlink() else ''}: remove it."
        )
    return path


def _file(path: Path, model: Description) -> np.ndarray:
    """The samples of one file. (n, *shape)"""
    if path.suffix in SUFFIXES:
        x = read_npy(path) if path.suffix == ".npy" else read_npz(path)[0]
        return samples_of(path, x, model, axes=1).reshape(-1, *model.input_shape)
    return read_picture(path, model)[None]


def read_picture(path: Path, model: Description) -> np.ndarray:
    """One picture as uint8, upright, scaled and cropped to what the model reads. (C, H, W)"""
    from PIL import UnidentifiedImageError

    from pmeta.data.decode import UNREADABLE, decode

    is_picture = path.suffix.lower() in PICTURES
    if len(model.input_shape) != 3 or model.input_type != "uint8":
        if not is_picture:
            raise NoPictureError(f"{path} is neither a picture nor an array.")
        raise ValueError(
            f"the model reads {model.input_type} samples of shape {model.input_shape}, not "
            f"pictures: give a .npy file."
        )
    channels, height, width = model.input_shape
    try:
        member = Member(str(path), str(path), 0, path.stat().st_size)
        pixels = decode(read(member), (width, height), channels)
    except UnidentifiedImageError:
        raise _no_picture(path, is_picture) from None
    except UNREADABLE as error:
        raise ValueError(
            f"{path} cannot be read ({str(error).rstrip('.')}): mend it or move it away."
        ) from None
    return np.frombuffer(pixels, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)


def _no_picture(path: Path, is_picture: bool) -> ValueError:
    from pmeta.data.decode import formats

    if path.suffix.lower() in (".heic", ".heif"):
        if "HEIF" in formats():
            return ValueError(f"{path} is a broken photo in HEIC: mend it or move it away.")
        return ValueError(
            f"{path} is a photo in HEIC, which needs the package pillow-heif: pip install "
            f"pillow-heif, or save it as JPEG."
        )
    kind = ValueError if is_picture else NoPictureError
    return kind(
        f"{path} is no picture (JPEG, PNG, WebP, GIF, BMP, TIFF, PPM): convert it or move it away."
    )


def _from_npy(path: Path, model: Description) -> Samples:
    """(*shape), (samples, *shape) or (classes, samples, *shape)."""
    x = samples_of(path, read_npy(path), model, axes=2)
    grouped = x.ndim == len(model.input_shape) + 2
    classes, each = (x.shape[0], x.shape[1]) if grouped else (0, 0)
    x = x.reshape(-1, *model.input_shape)
    labels = np.repeat(np.arange(classes), each) if grouped else _none(x)
    return Samples(x, [str(i) for i in range(len(x))], labels, [str(i) for i in range(classes)])


def _from_npz(path: Path, model: Description) -> Samples:
    """x (samples, *shape) and y, a number or a name for each."""
    x, y = read_npz(path)
    x = samples_of(path, x, model, axes=1).reshape(-1, *model.input_shape)
    numbers = [str(i) for i in range(len(x))]
    if y is None:
        return Samples(x, numbers, _none(x), [])
    values, labels = np.unique(y, return_inverse=True)
    return Samples(x, numbers, labels, [str(value) for value in values])


def _none(x: np.ndarray) -> np.ndarray:
    """Labels of samples in no class."""
    return np.full(len(x), -1)


def in_order(samples: Samples, classes: Sequence[str]) -> Samples:
    """The same with labels that count in `classes`; -1 for a class that is not among them.

    Classes of an array have only numbers."""
    known = {name: i for i, name in enumerate(classes)}
    if all(name.isdigit() and name not in known for name in samples.classes):
        known = {str(i): i for i in range(len(classes))}
    numbers = [known.get(samples.classes[i], -1) if i >= 0 else -1 for i in samples.labels]
    return samples._replace(labels=np.array(numbers), classes=list(classes))
