"""Pickles that hold numpy arrays and plain containers, read without running anything they ask for.

A pickle is a program that may call whatever it can name. Here it can name seven things (ADMITTED),
and gets stand-ins for them that check what numpy's own code would believe.
A few bytes can also ask for copies of a long string again and again; what is made of a pickle is
therefore limited.
"""

from __future__ import annotations

import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

MOST_ITEMS = 20_000_000
"""Operations of a pickle, each of which makes at most one item; TieredImageNet has five million."""
MOST_BYTES = 2**26
"""Bytes that calls may make over and above those of the file itself."""


def load_pickle(source: Path | BinaryIO, name: str = "") -> Any:
    """The content of a pickle of numpy arrays, plain containers, numbers, strings and bytes.

    Pickles of Python 2 give bytes where it had strings: see `text`.
    """
    if isinstance(source, Path):
        with open(source, "rb") as file:
            return load_pickle(file, str(source))
    try:
        start = source.tell()
        _check_operations(source)
        size = source.seek(0, 2) - start
        source.seek(start)
        return _Unpickler(source, size).load()
    except TooLargeError as error:
        raise ValueError(
            f"{name} asks for {error}, more than any data set we read has: do not trust it."
        ) from None
    except ForbiddenError as error:
        raise ValueError(
            f"{name} asks for {error}, and only numpy arrays and plain containers are read: do not "
            "trust it."
        ) from None
    except Exception as error:  # a broken pickle may fail in any way
        raise ValueError(
            f"{name} is not a readable pickle ({type(error).__name__}: {one_line(error)}): copy it "
            "again."
        ) from None


def _check_operations(file: BinaryIO) -> None:
    """Not too many, and no far place in the memo: Python would set aside all that are before it."""
    for n, (op, argument, _) in enumerate(pickletools.genops(file)):
        if n >= MOST_ITEMS:
            raise TooLargeError(f"more than {MOST_ITEMS:,} operations")
        if "PUT" in op.name and isinstance(argument, int) and argument > n:
            raise TooLargeError(f"place {argument:,} of the memo in operation {n:,}")


def text(value: str | bytes) -> str:
    """A name, which Python 2 wrote as bytes.

    Raises ValueError for what is none."""
    if not isinstance(value, str | bytes):
        raise ValueError(
            f"names in a pickle are strings, got {type(value).__name__}: copy it again."
        )
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def load_dict(source: Path | BinaryIO, needed: tuple[str, ...], name: str = "") -> dict[str, Any]:
    """The content of a pickle of a dict with these keys, which come as strings whatever wrote
    them."""
    content = load_pickle(source, name)
    entries = by_name(content) if isinstance(content, dict) else {}
    if not set(needed) <= set(entries):
        got = ", ".join(entries) or type(content).__name__
        raise ValueError(f"{name or source} must be a dict with {' and '.join(needed)}, got {got}.")
    return entries


def by_name(content: dict[Any, Any]) -> dict[str, Any]:
    """
    >>> by_name({b"labels": [1]})
    {'labels': [1]}
    """
    return {text(key): value for key, value in content.items()}


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


class ForbiddenError(Exception):
    """The pickle named something that is not admitted."""


class TooLargeError(Exception):
    """The pickle asks for more than there may be."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, size: int):
        super().__init__(file, encoding="bytes")
        self.left = size + MOST_BYTES

    def find_class(self, module: str, name: str) -> Any:
        admitted = ADMITTED.get((module.replace("numpy._core", "numpy.core"), name))
        if admitted is None:
            raise ForbiddenError(f"{module}.{name}")

        # a new object each time: the pickle can set attributes of what it gets
        def call(*args: Any) -> Any:
            # a call copies what it is given, which the pickle may name again and again
            self.left -= sum(len(a) for a in args if hasattr(a, "__len__"))
            if self.left < 0:
                raise TooLargeError(f"copies of more than its own size and {MOST_BYTES:,} bytes")
            return admitted(*args)

        return call


class _Dtype:
    """A plain type of numbers or strings. numpy's own would take flags and offsets from the file,
    with which bytes of the file become addresses."""

    def __init__(self, code: str | bytes, align: object = False, copy: object = False) -> None:
        self.code, self.order = text(code), "|"
        if not re.fullmatch(r"[biufc](1|2|4|8|16)|[SU][1-9]\d{0,5}", self.code):
            raise ForbiddenError(f"numpy arrays of kind {self.code!r}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, order, subarray, names, fields = state[:5]
        if subarray is not None or names is not None or fields is not None:
            raise ForbiddenError("numpy arrays of records")
        self.order = text(order)
        if self.order not in ("<", ">", "|", "="):
            raise ForbiddenError(f"numpy arrays of byte order {self.order!r}")

    @staticmethod
    def real(value: Any) -> np.dtype[Any]:
        """numpy's own."""
        if not isinstance(value, _Dtype):
            raise ForbiddenError("numpy arrays without a plain type")
        return np.dtype(value.order + value.code)


class _Array(np.ndarray):
    """What numpy's _reconstruct makes, to be filled by __setstate__."""

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, data = state
        if any(n < 0 for n in shape):
            raise ForbiddenError(f"numpy arrays of shape {shape}")
        super().__setstate__((1, shape, _Dtype.real(dtype), bool(fortran), data))  # type: ignore[arg-type]


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    flat = np.frombuffer(data, _Dtype.real(dtype))
    return flat.reshape(shape, order="F" if text(order) == "F" else "C")


def _scalar(dtype: Any, data: Any) -> Any:
    data = data.encode("latin1") if isinstance(data, str) else data
    return np.frombuffer(data, _Dtype.real(dtype)).item()


def _encode(string: str, encoding: str) -> bytes:
    """Python 3 writes bytes this way for Python 2."""
    if encoding not in ("latin1", "latin-1"):
        raise ForbiddenError(f"_codecs.encode to {encoding}")
    return string.encode("latin1")


ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): lambda *_: None,  # only ever an argument of _reconstruct
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Array(0, np.uint8),
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): lambda: b"",  # written so only where they are empty
}
"""All that a pickle may name."""
