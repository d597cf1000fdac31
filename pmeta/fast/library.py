"""The library of C kernels; where there is none, PyTorch does the same more slowly."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from pmeta.base.native import CompileError, find


@cache
def library() -> ctypes.CDLL | None:
    """The shared library of the kernels, or None where there is neither a wheel of this machine nor
    a C compiler."""
    try:
        return ctypes.CDLL(str(find(Path(__file__).parent / "c", "_kernels")))
    except (OSError, CompileError):
        return None


def call(name: str, sizes: tuple[int, ...], *arguments: Any) -> None:
    """A kernel by its name, with the sizes that its struct has in C; a tensor is passed as a
    pointer to its data."""
    values = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else a for a in arguments]
    getattr(library(), name)((ctypes.c_int32 * len(sizes))(*sizes), *values)
