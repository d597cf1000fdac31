"""CUB-200-2011 (Wah et al. 2011): 200 kinds of birds, split 100/50/50 as TorchMeta does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pmeta.data.importers.archives import Members, reading, tar_members
from pmeta.data.importers.write import Picture

CLASSES = 200


def split_of(number: int) -> str:
    """Of the classes 001 to 200 the odd ones are for training; of the even ones every second for
    validation.

    >>> [split_of(number) for number in (1, 2, 3, 4, 5, 6)]
    ['train', 'val', 'train', 'test', 'train', 'val']
    """
    return "train" if number % 2 else ("val" if number % 4 == 2 else "test")


def pictures(src: Path) -> Iterator[Picture]:
    """images/<number>.<name>/*.jpg, in a folder or in CUB_200_2011.tgz; the files are kept as they
    are."""
    seen: set[str] = set()
    for path, data in _files(src):
        match = re.search(r"(?:^|/)images/((\d{3})\.[^/]+)/([^/.][^/]*\.jpg)$", path)
        if match:
            name, number, file = match.groups()
            seen.add(name)
            yield Picture(split_of(int(number)), name, file, data())
    if len(seen) != CLASSES:
        raise ValueError(
            f"CUB_200_2011 has {CLASSES} classes below images/, and {src} has {len(seen)}: it is "
            "not whole."
        )


def _files(src: Path) -> Members:
    if src.is_dir():
        for path in sorted(src.rglob("images/*/*.jpg")):
            yield path.relative_to(src.parent).as_posix(), path.read_bytes
        return
    with reading(src, "give CUB_200_2011.tgz or the folder it unpacks to"):
        yield from tar_members(src)
