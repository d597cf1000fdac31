"""Pickles that hold numpy arrays and plain containers, read without running anything they ask for.

A pickle is a program that may call whatever it can name. Here it can name a handful of things, and
gets stand-ins written in Python for them: not even numpy's own unpickling code sees the file's
bytes before they have been checked.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np


def load_pickle(source: Path | BinaryIO, name: str = "") -> Any:
    """The content of a pickle of numpy arrays, dicts, lists, tuples, sets, numbers, strings and
    bytes.

    Pickles of Python 2 give bytes where it had strings: see `text`.
    """
    if isinstance(source, Path):
        with open(source, "rb") as file:
            return load_pickle(file, str(source))
    try:
        return _plain(_Unpickler(source, encoding="bytes").load(), 0)
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


def text(value: str | bytes) -> str:
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


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        old_name = module.replace("numpy._core", "numpy.core").replace("__builtin__", "builtins")
        admitted = _ADMITTED.get((old_name, name))
        if admitted is None:
            raise ForbiddenError(f"{module}.{name}")
        return lambda *args: admitted(
            *args
        )  # a new object each time: the pickle can set attributes of what it gets


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


def _plain(value: Any, depth: int) -> Any:
    """The stand-ins replaced by the arrays they hold."""
    if depth > 20:
        raise ForbiddenError("containers more than 20 deep")
    if isinstance(value, _Array):
        return value.array
    if isinstance(value, dict):
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(item, depth + 1) for item in value)
    if isinstance(
        value, str | bytes | bytearray | int | float | complex | np.ndarray | set | frozenset | None
    ):
        return value
    raise ForbiddenError(f"an object of type {type(value).__name__}")
