"""Which data sets the user has: MiniImageNet to train on, others to test on besides."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pmeta.data.open import open_source

TITLES = {"mini": "MiniImageNet", "tiered": "TieredImageNet", "cub": "CUB"}
IMPORTS = {"mini": "miniimagenet-pickle", "tiered": "tieredimagenet", "cub": "cub"}


@dataclass(frozen=True)
class Dataset:
    """A folder of classes that plays the part of one of the paper's data sets."""

    root: str
    title: str
    split: Literal["val", "test"]
    """The classes that are evaluated on: test, or val where there are no others."""


def named(words: Sequence[str]) -> dict[str, str]:
    """mini, tiered, cub -> folder, from `NAME=DIR`, or from a folder whose name tells.

    >>> named(["cub=birds", "/data/miniImageNet"])
    {'cub': 'birds', 'mini': '/data/miniImageNet'}
    """
    folders: dict[str, str] = {}
    for word in words:
        name, equals, root = word.partition("=")
        if not equals:
            name, root = _recognised(word), word
        if name not in TITLES:
            raise ValueError(
                "--data takes mini=DIR, tiered=DIR and cub=DIR, or folders with such names, got "
                f"{word!r}."
            )
        if name in folders:
            raise ValueError(
                f"--data takes one folder for {TITLES[name]}, got {folders[name]} and {root}."
            )
        folders[name] = root
    return folders


def _recognised(root: str) -> str:
    """The data set that the last folder of a path is named after; glyphs stand in for
    MiniImageNet."""
    last = Path(root).name.lower()
    if root == "glyphs":
        return "mini"
    return next((name for name in TITLES if name in last), "")


def open_datasets(words: Sequence[str], size: int | None) -> dict[str, Dataset]:
    """The data sets that --data names, each with the split to evaluate on; raises ValueError for a
    folder without classes."""
    given = {
        name: root if root == "glyphs" else os.path.abspath(root)
        for name, root in named(words).items()
    }
    datasets, channels = {}, None  # a run remembers where its data were: whole paths
    for name in (name for name in TITLES if name in given):
        root = given[name]
        cached = open_source(root, size, None if root == given.get("mini") else channels)
        # what the network takes, so that nothing is decoded twice
        channels = channels or cached.images.shape[-1]
        splits = {own for own, *_ in cached.classes}
        title = "glyphs" if root == "glyphs" else TITLES[name]
        only_val = "val" in splits and "test" not in splits
        datasets[name] = Dataset(root, title, "val" if only_val else "test")
    return datasets


def missing_line(name: str) -> str:
    """What to put where for a data set that is not there."""
    use = "nothing can be trained on images" if name == "mini" else "its columns are left out"
    return (
        f"no {TITLES[name]}: {use}. With it: --data {name}=DIR, a folder, .tar or .zip of train, "
        f"val and test (pmeta data import {IMPORTS[name]} SRC DIR makes one)."
    )
