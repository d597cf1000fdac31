"""Pickles that hold numpy arrays and plain containers, read without running anything they ask for.

A pickle is a program that may call whatever it can name. Here it can name a handful of things, and
gets stand-ins written in Python for them: not even numpy's own unpickling code sees the file's
bytes before they have been checked.
A few bytes can also ask for containers that all hold each other, or for copies of a long string
again and again; what is made of a pickle is therefore limited.
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
"""Items of all containers together, and operations of a pickle; TieredImageNet has five million."""
MOST_BYTES = 2**26
"""Bytes that calls may make over and above those of the file itself."""


def load_pickle(source: Path | BinaryIO, name: str = "") -> Any:
    """The content of a pickle of numpy arrays, dicts, lists, tuples, sets, numbers, strings and
    bytes.

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
        return _Plain().of(_Unpickler(source, size).load(), 0)
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
    found = by_name(content) if isinstance(content, dict) else {}
    if not set(needed) <= set(found):
        got = ", ".join(found) or type(content).__name__
        raise ValueError(f"{name or source} must be a dict with {' and '.join(needed)}, got {got}.")
    return found


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

    def _spend(self, args: tuple[Any, ...]) -> None:
        """A call copies what it is given, which the pickle may name again and again."""
        self.left -= sum(
            8 * len(a) if isinstance(a, list | tuple | dict | set) else len(a)
            for a in args
            if hasattr(a, "__len__")
        )
        if self.left < 0:
            raise TooLargeError(f"copies of more than its own size and {MOST_BYTES:,} bytes")

    def find_class(self, module: str, name: str) -> Any:
        old_name = module.replace("numpy._core", "numpy.core").replace("__builtin__", "builtins")
        admitted = _ADMITTED.get((old_name, name))
        if admitted is None:
            raise ForbiddenError(f"{module}.{name}")

        # a new object each time: the pickle can set attributes of what it gets
        def call(*args: Any) -> Any:
            self._spend(args)
            return admitted(*args)

        return call


class _Dtype:
    def __init__(self, code: str | bytes, align: object = False, copy: object = False) -> None:
        self.code = text(code)
        if not re.fullmatch(r"[biufcSU?]\d{0,6}", self.code):
            raise ForbiddenError(f"numpy arrays of kind {self.code!r}")
        self.order = "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, order, subarray, names, fields = state[:5]
        if subarray is not None or names is not None or fields is not None:
            raise ForbiddenError("numpy arrays of records")
        self.order = text(order)
        if self.order not in ("<", ">", "|", "="):
            raise ForbiddenError(f"numpy arrays of byte order {self.order!r}")

    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.code)


class _Array:
    """What numpy's _reconstruct makes, to be filled by __setstate__."""

    array: np.ndarray

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran, data = state
        self.array = _from_buffer(data, dtype, shape, "F" if fortran else "C")


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(dtype, _Dtype):
        raise ForbiddenError("numpy arrays without a plain type")
    if isinstance(data, str):
        data = data.encode("latin1")
    flat = np.frombuffer(data, dtype=dtype.dtype())
    return flat.reshape([int(n) for n in shape], order="F" if text(order) == "F" else "C")


def _scalar(dtype: Any, data: Any) -> Any:
    return _from_buffer(data, dtype, (), "C").item()


def _encode(string: str, encoding: str) -> bytes:
    """Python 3 writes bytes this way for Python 2."""
    if encoding not in ("latin1", "latin-1"):
        raise ForbiddenError(f"_codecs.encode to {encoding}")
    return string.encode("latin1")


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): lambda *_: None,  # only ever an argument of _reconstruct
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Array(),
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): dict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytes"): lambda: b"",  # written so only where they are empty
}


class _Plain:
    """The stand-ins replaced by the arrays they hold; what is shared stays shared."""

    def __init__(self) -> None:
        self.items = 0
        # by id: the old one, so that it lives, and the new
        self.done: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any, depth: int) -> Any:
        """A value in plain containers."""
        if depth > 20:
            raise ForbiddenError("containers more than 20 deep")
        if isinstance(value, _Array):
            return value.array
        if isinstance(value, dict | list | tuple):
            if id(value) not in self.done:
                self.done[id(value)] = value, self._container(value, depth)
            return self.done[id(value)][1]
        if isinstance(value, PLAIN):
            return value
        raise ForbiddenError(f"an object of type {type(value).__name__}")

    def _container(self, value: dict[Any, Any] | list[Any] | tuple[Any, ...], depth: int) -> Any:
        self.items += len(value)
        if self.items > MOST_ITEMS:
            raise TooLargeError(f"more than {MOST_ITEMS:,} items")
        if isinstance(value, dict):
            return {key: self.of(item, depth + 1) for key, item in value.items()}
        return type(value)(self.of(item, depth + 1) for item in value)


PLAIN = (str, bytes, bytearray, int, float, complex, np.ndarray, set, frozenset, type(None))
