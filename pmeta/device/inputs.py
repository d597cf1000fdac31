"""What a model takes: samples and labels as arrays, checked before the engine reads them."""

from collections.abc import Sequence

import numpy as np

from pmeta.device.description import Description


def checked_samples(x: np.ndarray, model: Description) -> np.ndarray:
    """Samples (n, *input_shape) as the engine reads them; numbers of another type are cast."""
    x = np.asarray(x)
    if x.shape[1:] != model.input_shape or not fits(x, model.input_type):
        raise ValueError(
            f"the model reads {model.input_type} samples of shape {model.input_shape}, "
            f"got {x.dtype} samples of shape {x.shape[1:]}{beyond(x, model.input_type)}."
        )
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        bad = np.flatnonzero(~np.isfinite(x).all(axis=tuple(range(1, x.ndim))))
        raise ValueError(
            f"samples must be finite, {len(bad)} of {len(x)} are not, the first is number "
            f"{bad[0]}: mend it."
        )
    return np.require(x, model.input_type, requirements=["C", "A"])


def with_mirrored(x: np.ndarray) -> np.ndarray:
    """Pictures (n, C, H, W), each followed by its copy mirrored left-right. (2n, C, H, W)"""
    if x.ndim != 4:
        raise ValueError(
            f"pictures (channels, height, width) are mirrored, the model reads samples of shape "
            f"{x.shape[1:]}: leave mirror out."
        )
    return np.stack([x, x[..., ::-1]], axis=1).reshape(-1, *x.shape[1:])


def fits(x: np.ndarray, input_type: str) -> bool:
    """Whether numbers may be cast: any to float32, only whole ones from 0 to 255 to uint8."""
    if x.dtype.kind not in "fiub":
        return False
    if input_type == "float32" or x.dtype == input_type or not x.size:
        return True
    return bool(((x >= 0) & (x <= 255) & (x == np.floor(x))).all())


def beyond(x: np.ndarray, input_type: str) -> str:
    """Why numbers do not fit, to end a sentence; empty where they do."""
    if fits(x, input_type):
        return ""
    if x.dtype.kind not in "fiub":
        return ", which are no numbers"
    return ", not all of them whole numbers from 0 to 255"


def checked_labels(y: Sequence[int] | np.ndarray, outputs: int) -> np.ndarray:
    """Labels (n,) of a classifier with so many outputs."""
    y = np.asarray(y)
    rule = (
        f"a label is one of the model's classes, a whole number from 0 to {outputs - 1}, "
        f"for each sample"
    )
    if y.ndim != 1 or (len(y) and y.dtype.kind not in "iu"):
        raise ValueError(f"{rule}, got {y.dtype} of shape {y.shape}.")
    if len(y) and (y.min() < 0 or y.max() >= outputs):
        raise ValueError(f"{rule}, got {y.min()} to {y.max()}.")
    return y
