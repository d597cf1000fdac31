"""Constants in two bytes or one: halves, or whole numbers of -127 to 127 times a scale a row."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FLAGS = {"float32": "", "float16": "half", "int8": "byte"}
"""By type, the flag of the instructions that read them."""
ITEM = {"": 4, "half": 2, "byte": 1}
"""Bytes of a number by that flag."""
LEAST = 16
"""Numbers of a row from which on it is packed: a scale for fewer would not pay."""


class Packed(NamedTuple):
    """A matrix (rows, n) as it stands in the file."""

    data: bytes
    scale: np.ndarray
    """Of each row; empty for halves."""
    values: np.ndarray
    """The numbers that the engine makes of it."""


def pack(w: np.ndarray, kind: str) -> Packed:
    """Round a matrix (rows, n) of float32 to float16 or int8.

    >>> packed = pack(np.array([[1.0, -0.501, 0.2]], "f4"), "int8")
    >>> np.frombuffer(packed.data, "i1").tolist(), [round(float(v), 3) for v in packed.values[0]]
    ([127, -64, 25], [1.0, -0.504, 0.197])
    """
    if kind == "float16":
        half = np.clip(w, -65504, 65504).astype("<f2")
        return Packed(half.tobytes(), np.empty(0, "f4"), half.astype("f4"))
    scale = (np.abs(w).max(1) / np.float32(127)).astype("f4")
    scale[scale == 0] = 1
    steps = np.clip(np.rint(w / scale[:, None]), -127, 127).astype("i1")
    return Packed(steps.tobytes(), scale, steps.astype("f4") * scale[:, None])


def pack_attention(module: Sequence[np.ndarray], kind: str) -> bytes:
    """W1, b1, W2 and b2 of attention: what stays float32 first."""
    w1, b1, w2, b2 = module
    matrices = [pack(w, kind) for w in (w1, w2)]
    numbers = np.concatenate([b1, b2, *(m.scale for m in matrices)]).astype("<f4")
    return numbers.tobytes() + b"".join(m.data for m in matrices)
