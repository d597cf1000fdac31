"""TieredImageNet (Ren et al. 2018) as its authors publish it: 351, 97 and 160 classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pmeta.data.importers.pickles import load_dict, load_pickle, text
from pmeta.data.importers.write import FORBIDDEN, Picture, files_of_splits


def pictures(src: Path) -> Iterator[Picture]:
    """<split>_images_png.pkl: a list of PNG files as uint8 arrays; <split>_labels.pkl:
    label_specific, the class of each, and label_specific_str, the names. Names repeat (there are
    two kinds of crane), so the class's number goes first."""
    for split, path in files_of_splits(src, "{}_images_png.pkl").items():
        names, labels = _labels(src / f"{split}_labels.pkl")
        images = load_pickle(path)
        if not isinstance(images, list) or len(images) != len(labels):
            raise ValueError(f"{path} must be a list of {len(labels)} images, one for each label.")
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            data = image.tobytes() if isinstance(image, np.ndarray) else b""
            if not data.startswith(b"\x89PNG"):
                raise ValueError(f"image {i} of {path} is not a PNG.")
            yield Picture(split, names[label], f"{i:06}.png", data)


def _labels(path: Path) -> tuple[list[str], list[int]]:
    if not path.is_file():
        raise ValueError(f"{path} is missing: it says which class each image belongs to.")
    content = load_dict(path, needed=("label_specific", "label_specific_str"))
    names = [
        f"{i:03} {_file_name(text(name))}" for i, name in enumerate(content["label_specific_str"])
    ]
    labels = [int(label) for label in content["label_specific"]]
    if labels and not 0 <= min(labels) <= max(labels) < len(names):
        raise ValueError(
            f"{path} has {len(names)} classes and labels from {min(labels)} to {max(labels)}."
        )
    return names, labels


def _file_name(name: str) -> str:
    """
    >>> _file_name("maillot, tank suit / one-piece")
    'maillot, tank suit _ one-piece'
    """
    return "".join("_" if c in FORBIDDEN else c for c in name).strip()
