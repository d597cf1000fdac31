"""The most channels that Alg. 1 can leave: memory that is known before any data is seen."""

import math
from collections.abc import Sequence

from pmeta.cost.ops import Op, channels, layer_names

TOLERANCE = 1e-6  # Alg. 1 clips up to a sum >= rho - 1e-6, lest rounding in float32 decide


def max_survivors(C: int, rho: float) -> int:
    """The most channels that Alg. 1 can leave: the c it clips hold at least rho of the scores, but
    at most c / C.

    >>> max_survivors(10, 0.3), max_survivors(32, 0.3), max_survivors(3, 0.9)
    (7, 22, 1)
    """
    if not 0 <= rho < 1:
        raise ValueError(
            f"clip ratio rho must be in [0, 1), got {rho}: at 1 no channel is left to update."
        )
    return min(C, max(1, math.floor((1 - rho + TOLERANCE) * C)))


def max_mu_fw(C: int, rho: float) -> float:
    """The bound mu_fw <= max(1, floor((1 - rho) C)) / C, whatever the data: memory can be promised
    beforehand."""
    return max_survivors(C, rho) / C


def bound_mu_fw(ops: Sequence[Op], rho: float | None) -> dict[str, float]:
    """max_mu_fw of every layer but the output layer, which has no attention; rho None: all are
    dense."""
    if rho is None:
        return {}
    return {
        op.name: max_mu_fw(channels(op)[0], rho) for op in ops if op.name in layer_names(ops)[:-1]
    }
