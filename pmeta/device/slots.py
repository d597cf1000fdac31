"""Adapted weights in a file of two slots, as a device keeps them in flash.

A power cut at any moment leaves the state that was saved before, or the new one
(docs/reference/format.md).
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any, BinaryIO

MAGIC = b"pmslot\r\n"
_ERASE = CFUNCTYPE(c_int, c_void_p, c_int)
_ACCESS = CFUNCTYPE(c_int, c_void_p, c_int, c_size_t, c_void_p, c_size_t)


class Slots(ctypes.Structure):
    """pmeta_slots of pmeta.h."""

    _fields_ = (
        ("context", c_void_p),
        ("slot_bytes", c_size_t),
        ("erase", _ERASE),
        ("write", _ACCESS),
        ("read", _ACCESS),
    )


@contextmanager
def opened(path: Path, slot_bytes: int, create: bool = False) -> Iterator[Slots]:
    """The two slots of a file, one behind the other.

    Every write is on the disk before the next one begins."""
    with open(path, "x+b" if create and not path.exists() else "r+b") as file:
        first = file.read(len(MAGIC)).rstrip(b"\0")  # a first save may have been cut
        if not MAGIC.startswith(first):
            raise ValueError(
                f"{path} holds something else than the state of a model: give the name of a new "
                f"file."
            )
        yield Slots(None, slot_bytes, _ERASE(), _write(file, slot_bytes), _read(file, slot_bytes))


def _write(file: BinaryIO, slot_bytes: int) -> Any:
    def write(_: int, slot: int, at: int, data: int, count: int) -> int:
        try:
            file.seek(slot * slot_bytes + at)
            file.write(ctypes.string_at(data, count))
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            return 1
        return 0

    return _ACCESS(write)


def _read(file: BinaryIO, slot_bytes: int) -> Any:
    def read(_: int, slot: int, at: int, data: int, count: int) -> int:
        try:
            file.seek(slot * slot_bytes + at)
            found = file.read(count).ljust(count, b"\xff")  # what never came is as if erased
        except OSError:
            return 1
        ctypes.memmove(data, found, count)
        return 0

    return _ACCESS(read)
