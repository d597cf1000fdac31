"""CIFAR-FS (Bertinetto et al. 2019) and FC100 (Oreshkin et al. 2018), from CIFAR-100."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
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
# 12, 4 and 4 of the 20 superclasses, with 5 classes each: no kind of thing is in two splits.
FC100 = {
    "val": "large_carnivores large_omnivores_and_herbivores non-insect_invertebrates small_mammals",
    "test": "aquatic_mammals insects medium_mammals people",
}
PART_BYTES = 2**28
"""At most; the training part has 155 MB."""
NEEDED = {
    "meta": ("fine_label_names", "coarse_label_names"),
    "train": ("data", "fine_labels", "coarse_labels"),
    "test": ("data", "fine_labels", "coarse_labels"),
}


def cifar_fs(src: Path) -> Iterator[Picture]:
    return _pictures(src, lambda fine, coarse: _split_of(fine, CIFAR_FS))


def fc100(src: Path) -> Iterator[Picture]:
    return _pictures(src, lambda fine, coarse: _split_of(coarse, FC100))


def _split_of(name: str, lists: dict[str, str]) -> str:
    return next((split for split, names in lists.items() if name in names.split()), "train")


def _pictures(src: Path, split_of: Callable[[str, str], str]) -> Iterator[Picture]:
    """All 600 images of a class, those of CIFAR-100's training part and those of its test part."""
    files = _read(src)
    meta = files["meta"]
    fine, coarse = (
        [text(name) for name in meta[f"{kind}_label_names"]] for kind in ("fine", "coarse")
    )
    _check_names(src, fine, coarse)
    for part in ("train", "test"):
        batch = files[part]
        images = (
            np.asarray(batch["data"], dtype=np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        )
        labels = zip(batch["fine_labels"], batch["coarse_labels"], strict=True)
        for i, (image, (f, c)) in enumerate(zip(images, labels, strict=True)):
            split, pixels = split_of(fine[f], coarse[c]), np.ascontiguousarray(image)
            yield Picture(split, fine[f], f"{part}_{i:05}.png", pixels)


def _check_names(src: Path, fine: list[str], coarse: list[str]) -> None:
    for have, lists, what in ((fine, CIFAR_FS, "classes"), (coarse, FC100, "superclasses")):
        missing = sorted(set(" ".join(lists.values()).split()) - set(have))
        if missing:
            raise ValueError(f"{src} is not CIFAR-100: its {what} lack {', '.join(missing[:3])}.")


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
