"""CIFAR-FS (Bertinetto et al. 2019), from CIFAR-100."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pmeta.data.importers.archives import reading, tar_members
from pmeta.data.importers.pickles import load_dict, text
from pmeta.data.importers.write import Picture

# 64, 16 and 20 classes; those not named here are for training.
CIFAR_FS = {
    "val": "beaver beetle butterfly camel cattle crab crocodile flatfish lamp maple_tree motorcycle"
    " otter sea shark television tractor",
    "test": "baby bed bicycle chimpanzee fox leopard man pickup_truck plain poppy rocket rose snail"
    " sweet_pepper table telephone wardrobe whale woman worm",
}
PART_BYTES = 2**28
"""At most; the training part has 155 MB."""
NEEDED = {
    "meta": ("fine_label_names",),
    "train": ("data", "fine_labels"),
    "test": ("data", "fine_labels"),
}


def pictures(src: Path) -> Iterator[Picture]:
    """All 600 images of a class, those of CIFAR-100's training part and those of its test part."""
    files = _read(src)
    names = [text(name) for name in files["meta"]["fine_label_names"]]
    split_of = {name: split for split, listed in CIFAR_FS.items() for name in listed.split()}
    missing = sorted(set(split_of) - set(names))
    if missing:
        raise ValueError(f"{src} is not CIFAR-100: its classes lack {', '.join(missing[:3])}.")
    for part in ("train", "test"):
        data, labels = files[part]["data"], files[part]["fine_labels"]
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8:
            raise ValueError(f"{src} is not CIFAR-100: data of its {part} is no array of uint8.")
        images = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            name, pixels = names[label], np.ascontiguousarray(image)
            yield Picture(split_of.get(name, "train"), name, f"{part}_{i:05}.png", pixels)


def _read(src: Path) -> dict[str, Any]:
    """The pickles meta, train and test, of a folder or of cifar-100-python.tar.gz."""
    if src.is_dir():
        for name in NEEDED:
            if not (src / name).is_file():
                raise ValueError(
                    f"{src / name} is missing: give the folder cifar-100-python or its .tar.gz."
                )
        return {name: load_dict(src / name, needed) for name, needed in NEEDED.items()}
    data: dict[str, bytes] = {}
    with reading(src, "give cifar-100-python.tar.gz or the folder in it"):
        for path, read in tar_members(src, PART_BYTES):
            if Path(path).name in NEEDED:
                data[Path(path).name] = read()
    missing = [name for name in NEEDED if name not in data]
    if missing:
        raise ValueError(f"{src} has no {', '.join(missing)}: give cifar-100-python.tar.gz.")
    return {
        name: load_dict(io.BytesIO(data[name]), needed, f"{name} in {src}")
        for name, needed in NEEDED.items()
    }
