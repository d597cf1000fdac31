"""MiniImageNet (Vinyals et al. 2016) in the split of Ravi & Larochelle: 64, 16, 20 classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pmeta.data.importers.pickles import by_name, load_dict
from pmeta.data.importers.write import Picture, files_of_splits


def pictures(src: Path) -> Iterator[Picture]:
    """mini-imagenet-cache-<split>.pkl: {"image_data": (N, 84, 84, 3) uint8, "class_dict": {class:
    rows}}."""
    for split, path in files_of_splits(src, "mini-imagenet-cache-{}.pkl").items():
        content = load_dict(path, needed=("image_data", "class_dict"))
        images = content["image_data"]
        if (
            not isinstance(images, np.ndarray)
            or images.dtype != np.uint8
            or images.ndim != 4
            or images.shape[3] != 3
        ):
            raise ValueError(f"image_data of {path} must be an (N, H, W, 3) array of uint8.")
        for name, rows in sorted(by_name(content["class_dict"]).items()):
            for row in rows:
                yield Picture(split, name, f"{name}_{int(row):05}.png", images[int(row)])
