"""Samples from arrays: .npy files, and .npz files with x and the labels y."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError

import numpy as np

from pmeta.device.description import Description
from pmeta.device.inputs import beyond, fits

SUFFIXES = (".npy", ".npz")
BROKEN = (
    *(ValueError, EOFError, MemoryError, OverflowError, TypeError, SyntaxError, KeyError),
    *(TokenError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),
)
"""What numpy raises for files that are no arrays."""
MOST_BYTES = 2 << 30
"""Of the arrays of an .npz, unpacked."""


def read_npy(path: Path) -> np.ndarray:
    """The array of a file that numpy.save wrote."""
    with _reading(path, "numpy.save"), path.open("rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def read_npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """x (n, *shape), and the labels y (n,): numbers or names; None where the file has none."""
    with _reading(path, "numpy.savez(file, x=samples, y=labels)"):
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > MOST_BYTES:
            raise ValueError(f"{size:,} bytes unpacked, more than {MOST_BYTES:,}")
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files if name in ("x", "y")}
    if "x" not in found:
        raise ValueError(
            f"{path} should hold samples as x and labels as y: write it again with "
            f"numpy.savez(file, x=samples, y=labels)."
        )
    x, y = found["x"], found.get("y")
    if y is not None and (y.ndim != 1 or y.dtype.kind not in "iuU" or len(y) != len(x)):
        raise ValueError(
            f"{path} should hold a label, a whole number or a name, for each sample; y is "
            f"{y.dtype} of shape {y.shape}, x has the shape {x.shape}."
        )
    return x, y


@contextmanager
def _reading(path: Path, how: str) -> Iterator[None]:
    """Say what is wrong with a file, and how to write it, in place of what numpy raises."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot read {path} ({error.strerror or error}): give a file that {how} wrote."
        ) from None
    except BROKEN as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"cannot read {path} ({reason}): write it again with {how}.") from None


def samples_of(path: Path, x: np.ndarray, model: Description, axes: int) -> np.ndarray:
    """Numbers that the model reads, with up to so many axes before those of a sample."""
    shape = model.input_shape
    leading = x.ndim - len(shape)
    if not 0 <= leading <= axes or x.shape[leading:] != shape or x.size == 0:
        raise ValueError(
            f"{path} should hold samples and end in the shape of one, {shape}, got the shape "
            f"{x.shape}."
        )
    if not fits(x, model.input_type):
        raise ValueError(
            f"{path} should be of {model.input_type}, which the model reads, got "
            f"{x.dtype}{beyond(x, model.input_type)}."
        )
    return np.ascontiguousarray(x, model.input_type)
