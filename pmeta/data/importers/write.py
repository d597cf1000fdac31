"""Pictures written into the common layout: a killed import never looks finished."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from rich.progress import Progress

from pmeta.base.console import Console
from pmeta.base.files import cannot_write, write_atomically
from pmeta.base.reading import read
from pmeta.data.sources import SPLITS, SourceFile, fingerprint, scan

FORBIDDEN = frozenset('/\\\0:*?"<>|')
"""What no name of a picture or of a class has."""
MARK = ".import.json"  # what the folder was made of; the dot hides it from the classes


class Picture(NamedTuple):
    """One picture of a source; the class may have several parts, as in Omniglot's
    Greek/character01."""

    split: str
    name: str  # of the class
    file: str
    # a file's bytes, kept as they are, or (H, W, C) uint8, written as PNG
    content: bytes | np.ndarray


def files_of_splits(src: Path, pattern: str) -> dict[str, Path]:
    """The files of those splits that are there; at least one must be."""
    paths = {split: src / pattern.format(split) for split in SPLITS}
    there = {split: path for split, path in paths.items() if path.is_file()}
    if not there:
        raise ValueError(f"{src} has none of {', '.join(path.name for path in paths.values())}.")
    return there


def write_pictures(
    pictures: Iterable[Picture], kind: str, src: Path, dst: Path, total: int | None = None
) -> None:
    """Write to `dst.partial`, and rename that when all are there.

    A second run skips the files of a killed first. More than `total` pictures, those that the set
    has, are refused.
    """
    if dst.exists() and not (dst.is_dir() and not any(dst.iterdir())):
        raise ValueError(f"{dst} is there already: choose another place or remove it.")
    partial = dst.with_name(f"{dst.name}.partial")
    _begin(partial, {"kind": kind, "source": str(src.resolve()), "fingerprint": _fingerprint(src)})
    with Progress(console=Console(stderr=True), transient=True) as progress:
        shown = progress.track(pictures, total=total, description=f"importing {kind}")
        for i, picture in enumerate(shown):
            if total is not None and i >= total:
                raise ValueError(
                    f"{kind} has {total:,} pictures, {src} has more: the source is not what it "
                    "should be."
                )
            _write(partial, picture)
    os.replace(partial, dst)


def _begin(partial: Path, origin: dict[str, str]) -> None:
    """Take up what an import of the same source left; what another left is of no use."""
    mark = partial / MARK
    if partial.exists():
        if not mark.is_file():
            raise ValueError(
                f"{partial} is in the way, and not of our making: remove it or choose another "
                "place."
            )
        if read(mark, mark.read_bytes(), dict[str, str], "remove its folder") == origin:
            return
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    write_atomically(mark, json.dumps(origin, indent=1).encode())


def _fingerprint(src: Path) -> str:
    if src.is_dir():
        return fingerprint(scan(src))
    stat = src.stat()
    return fingerprint([SourceFile(src.name, stat.st_size, stat.st_mtime_ns)])


def _write(root: Path, picture: Picture) -> None:
    parts = (picture.split, *picture.name.split("/"), picture.file)
    for part in parts:
        strange = part.startswith(".") or any(c in FORBIDDEN for c in part)
        if not part or strange or not part.isprintable():
            raise ValueError(
                f"{'/'.join(parts)!r} cannot be the name of a picture here: the source is not what "
                "it should be."
            )
    target = root.joinpath(*parts)
    if target.exists():
        return
    data = picture.content if isinstance(picture.content, bytes) else _png(picture.content)
    new = target.with_name(f".{target.name}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        new.unlink(missing_ok=True)  # of a killed import
        with new.open("xb") as file:
            file.write(data)
        os.replace(new, target)
    except OSError as error:  # no room, or a name that is too long
        raise cannot_write(target, error) from None


def _png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()
