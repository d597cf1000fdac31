"""Images kept as one memory-mapped uint8 array and a small JSON, shared by all processes."""

from __future__ import annotations

import contextlib
import glob
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypedDict

import numpy as np

from pmeta.base.files import lock, new_part
from pmeta.base.reading import Count, Size, read


class Cached(NamedTuple):
    """The whole of a source: every split, every class."""

    images: np.ndarray  # (N, H, W, C) uint8, read-only, memory-mapped
    classes: list[tuple[str, str, int, int]]  # (split or "", class, first image, images)
    skipped: list[tuple[str, str]]  # (path, why)


class Index(TypedDict):
    """The JSON beside the images."""

    root: str
    shape: list[Size]
    classes: list[tuple[str, str, Count, Count]]
    skipped: list[tuple[str, str]]


def open_or_build(
    folder: Path, key: str, mark: str, root: str, build: Callable[[BinaryIO], dict[str, Any]]
) -> Cached:
    """Open `folder/key-mark.{u8,json}`, or make it: `build(file)` writes the images and returns the
    JSON's content.

    Both are written under other names and moved, the JSON last: a reader sees a whole cache or
    none. Of processes that want one source at once one builds while the others wait; where the file
    system has no locks each builds the same bytes.
    """
    data, index = folder / f"{key}-{mark}.u8", folder / f"{key}-{mark}.json"
    cached = _open(data, index)
    if cached is not None:
        return cached
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = lock(folder / f".{key}.lock", wait=True)
    except OSError as error:
        raise ValueError(
            f"cannot write decoded images to {folder} ({error}): set PMETA_CACHE to a folder."
        ) from None
    try:
        if held:  # without locks the work is done twice, not wrongly
            _drop_unfinished(folder, key)
        cached = _open(data, index)
        if cached is None:
            _write(data, index, root, build)
            _drop_stale(folder, key, index, root)
            cached = _open(data, index)
    finally:
        if held:
            held.release()
    if cached is None:
        raise ValueError(
            f"the decoded images {data} were changed while they were being opened: start again."
        )
    return cached


def _open(data: Path, index: Path) -> Cached | None:
    try:
        content = read(index, index.read_bytes(), Index)
        shape = tuple(content["shape"])
        if data.stat().st_size != int(np.prod(shape)):  # cut short
            return None
        images = np.memmap(data, dtype=np.uint8, mode="r", shape=shape)
    except (OSError, ValueError):  # not there, or not whole
        return None
    classes = [(split, name, first, count) for split, name, first, count in content["classes"]]
    return Cached(images, classes, [(path, why) for path, why in content["skipped"]])


def _write(data: Path, index: Path, root: str, build: Callable[[BinaryIO], dict[str, Any]]) -> None:
    new_data, new_index = new_part(data), new_part(index)
    try:
        with new_data.open("r+b") as file:
            content = build(file)
        new_index.write_text(json.dumps({"root": root, **content}, indent=1), encoding="utf-8")
        os.replace(new_data, data)
        os.replace(new_index, index)
    finally:
        new_data.unlink(missing_ok=True)
        new_index.unlink(missing_ok=True)


def _drop_unfinished(folder: Path, key: str) -> None:
    """Remove what processes that were killed left of this source, which may be gigabytes."""
    for kind in ("u8", "json"):
        for left in folder.glob(f".{glob.escape(key)}-*.{kind}.*.part"):
            left.unlink(missing_ok=True)


def _drop_stale(folder: Path, key: str, index: Path, root: str) -> None:
    """Remove what an older state of the same source left; processes that hold it mapped keep it
    until they end."""
    for old in folder.glob(f"{glob.escape(key)}-*.json"):
        # one that cannot be read is not known to be ours
        with contextlib.suppress(OSError, ValueError):
            if old != index and read(old, old.read_bytes(), Index)["root"] == root:
                old.unlink()
                old.with_suffix(".u8").unlink(missing_ok=True)
