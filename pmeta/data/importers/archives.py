"""Members of archives, read only as far as a data set of that kind can reach.

A gigabyte of zeros packs into a megabyte: what would be more when unpacked is refused unread.
"""

from __future__ import annotations

import functools
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pmeta.data.importers.pickles import one_line

MOST_MEMBERS = 100_000
PICTURE_BYTES = 16 * 2**20
"""Of one picture; those of CUB, the largest, have some hundred kilobytes."""
ARCHIVE_BYTES = 8 * 2**30
"""Of all members together, unpacked; CUB has 1.2 GB."""
DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
    *(EOFError, OSError, RuntimeError),
)
"""What reading a damaged, cut or encrypted archive raises."""
Members = Iterator[tuple[str, Callable[[], bytes]]]
"""Names, and how to read what is there."""


@contextmanager
def reading(path: Path, otherwise: str) -> Iterator[None]:
    """Say that an archive cannot be read, and what to do, in place of what its reader raises."""
    try:
        yield
    except DAMAGED as error:
        raise ValueError(f"cannot read {path} ({one_line(error)}): {otherwise}.") from None


def zip_members(path: Path, most: int = PICTURE_BYTES) -> Members:
    """The files in a zip, of which none that is read has more than `most` bytes."""
    with zipfile.ZipFile(path) as archive:
        count = _Count(path, most)
        for info in archive.infolist():
            count.add(info.file_size)
            read = functools.partial(archive.read, info)
            yield info.filename, functools.partial(count.read, read, info.filename, info.file_size)


def tar_members(path: Path, most: int = PICTURE_BYTES) -> Members:
    """The same of a tar, from front to back: a packed tar has no other order."""
    with tarfile.open(path, "r:*") as tar:
        count = _Count(path, most)
        for info in tar:
            count.add(info.size)
            if info.isreg():
                read = functools.partial(_read, tar, info)
                yield info.name, functools.partial(count.read, read, info.name, info.size)


def _read(tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(info)
    return file.read() if file else b""


class _Count:
    """Members and bytes of an archive so far."""

    def __init__(self, path: Path, most: int):
        self.path, self.most, self.members, self.bytes = path, most, 0, 0

    def add(self, size: int) -> None:
        self.members += 1
        self.bytes += size
        for what, count, most in (
            ("members", self.members, MOST_MEMBERS),
            ("bytes when unpacked", self.bytes, ARCHIVE_BYTES),
        ):
            if count > most:
                raise ValueError(
                    f"no data set that we read has more than {most:,} {what}, {self.path} has: "
                    "do not trust it."
                )

    def read(self, read: Callable[[], bytes], name: str, size: int) -> bytes:
        if size > self.most:
            raise ValueError(
                f"a file of this data set has at most {self.most:,} bytes, {name} in {self.path} "
                f"has {size:,}: do not trust it."
            )
        return read()
