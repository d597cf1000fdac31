"""The golden comparison: weights that the engine adapted against those of PyTorch."""

from collections.abc import Sequence

import numpy as np
import torch
from device_models import Case

from pmeta.inner import InnerLoop

# Why 1e-4 of the largest weight of a tensor: both sides sum some 10^4 to 10^5 float32 products in different orders (1e-7 each),
# and K steps multiply the difference; a pixel that is a hair from a ReLU's or a max-pool's kink then moves a gradient by more.
TOLERANCE = 1e-4
Weights = dict[str, np.ndarray]


def reference(c: Case, dtype: torch.dtype = torch.float32) -> Weights:
    """PyTorch's adapted weights, with the same micro-batches."""
    meta, x = c.meta.map(lambda t: t.to(dtype)), c.x.to(dtype)
    return {name: w.detach().numpy() for name, w in InnerLoop(c.net, c.method, batch=c.batch).adapt(meta, (x, c.y)).w.items()}


def errors(got: Weights, want: Weights) -> dict[str, float]:
    """By tensor: the largest difference, relative to the largest weight."""
    return {name: float(np.abs(w - want[name]).max() / np.abs(want[name]).max()) for name, w in got.items()}


def check(c: Case, got: Weights) -> None:
    """The engine's weights equal PyTorch's in float32; every layer has moved, and moved alike; nothing else has."""
    want = reference(c)
    for name, error in errors(got, want).items():
        assert error <= TOLERANCE, f"{name} is {error:.1e} from PyTorch"
        moved = np.abs(want[name] - c.meta.w[name].numpy()).max()
        assert np.abs(got[name] - want[name]).max() <= 0.02 * moved + 1e-7, f"{name} did not move as in PyTorch"
    frozen = [name for name in c.meta.w if name not in got]
    assert all(np.array_equal(want[name], c.meta.w[name].numpy()) for name in frozen)


def to_double(c: Case, got: Weights) -> tuple[float, float]:
    """How far the engine, and PyTorch in float32, are from PyTorch in float64: the largest error of any tensor."""
    single, double = reference(c), reference(c, torch.float64)
    return max(errors(got, double).values()), max(errors({name: single[name] for name in got}, double).values())


def check_in_double(pairs: Sequence[tuple[float, float]]) -> None:
    """The rule for deep networks: over some tasks, the engine is within the tolerance of float64, or no further than PyTorch.

    One pixel on the other side of a kink moves the gradients below it by 1e-3, and which side a pixel falls on is chance, in
    PyTorch's float32 as in ours. Hence the geometric mean over tasks: an error decides it, one such pixel does not."""
    engine, torch32 = np.exp(np.log(np.array(pairs) + 1e-12).mean(0))
    assert engine <= max(TOLERANCE, torch32), f"the engine is {engine:.1e} from float64, PyTorch in float32 {torch32:.1e}"
