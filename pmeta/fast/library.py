"""The library of C kernels; where there is none, PyTorch does the same more slowly.

Each kernel is compiled for 4, 8 and 16 floats at a time (lanes), and a result has the same bits
with any of them.
"""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from pmeta.base.native import CompileError, find

FLAGS = ("-std=c99", "-O3", "-ffp-contract=off", "-fPIC")
LANES = (4, 8, 16)


@cache
def library() -> ctypes.CDLL | None:
    """The shared library of the kernels, or None where there is neither a wheel of this machine nor
    a C compiler."""
    try:
        return ctypes.CDLL(str(find(Path(__file__).parent / "c", "_kernels", FLAGS)))
    except (OSError, CompileError):
        return None


@cache
def lanes() -> int:
    """How many floats the kernels take at a time: the most that this processor can, or
    PMETA_LANES."""
    kernels = library()
    assert kernels is not None
    most = int(kernels.most_lanes())
    asked = os.environ.get("PMETA_LANES", "") or str(most)
    allowed = [str(n) for n in LANES if n <= most]
    if asked not in allowed:
        raise ValueError(
            f"PMETA_LANES must be a number of lanes that this processor has, one of "
            f"{', '.join(allowed)}, got {asked!r}: unset it for the most."
        )
    return int(asked)


def call(name: str, sizes: tuple[int, ...], *arguments: Any) -> None:
    """A kernel by its name, with the sizes that its struct has in C; a tensor is passed as a
    pointer to its data."""
    values = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else a for a in arguments]
    kernel = getattr(library(), f"{name}_{lanes()}")
    kernel((ctypes.c_int32 * len(sizes))(*sizes), *values)
