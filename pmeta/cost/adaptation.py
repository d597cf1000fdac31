"""What one adaptation costs (App. A): memory, computation (Eq. 18), and a bound known before any data is seen.

Plain Python over a list of operations; it starts without torch. The memory comes from the walk of cost_memory.py.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pmeta.cost.memory import backward_walk, forward_walk, peak_words, stored_words
from pmeta.cost.networks import four_conv, mlp, resnet12
from pmeta.cost.ops import (
    MB,
    WORD,
    Op,
    Ratio,
    attended,
    below,
    channels,
    input_words,
    layer_names,
    m,
    ratio_of_layers,
    reached,
    weight_words,
)

__all__ = [
    "MB", "WORD", "Cost", "Op", "Ratio", "attended", "backward_walk", "bound_mu_fw", "channels", "cost", "forward_walk",
    "four_conv", "input_words", "layer_macs", "layer_names", "m", "macs", "max_mu_fw", "max_survivors", "mlp", "peak_words",
    "resnet12", "stored_words", "weight_words",
]  # fmt: skip

TOLERANCE = 1e-6  # Alg. 1 clips up to a sum >= rho - 1e-6, lest rounding in float32 decide


def layer_macs(
    ops: Sequence[Op],
    update: Collection[str] = (),
    mu_fw: Ratio = 1.0,
    mu_bw: Ratio = 1.0,
    attention: bool = False,
) -> dict[str, tuple[float, float]]:
    """MACs a sample of each layer, forward and backward (Eq. 18; attention's count as backward).

    A group norm takes 5 MACs an element forward, 2 for the input gradient, 1 for the weight gradient: with these the
    paper's figures come out. An input gradient costs what the forward pass costs, strides or not.
    """
    fw, bw = ratio_of_layers(ops, mu_fw), ratio_of_layers(ops, mu_bw)
    hit = reached(ops, update)
    with_scores = attended(ops, update) if attention else set()
    counts = {}
    for op in (op for op in ops if op.name):
        forward, g_x, g_w = _macs(op, fw[op.name], bw[op.name])
        backward = g_w if op.name in update else 0.0
        # Eq. 18 counts g(x) at the first updated layer too, the text before it does not; Table 3 (fc) follows the one
        # and Table 2 (conv) the other.
        if below(op, hit) or (op.kind == "fc" and op.name in update):
            backward += g_x
        if op.name in with_scores:
            backward += m(op.x) + m(op.y) + 2 * sum(c**2 for c in channels(op))
        counts[op.name] = forward, backward
    return counts


def _macs(op: Op, mu_fw: float, mu_bw: float) -> tuple[float, float, float]:
    """MACs a sample of y, g(x) and g(w)."""
    if op.kind == "norm":  # one weight a channel: no more survive than the smaller ratio says
        return 5 * m(op.x), 2 * m(op.x), min(mu_fw, mu_bw) * m(op.x)
    forward = op.weight * m(op.y[:-1] if op.kind == "fc" else op.y[1:])  # H_O W_O m(w)
    return forward, forward, mu_fw * mu_bw * forward


def macs(
    ops: Sequence[Op],
    update: Collection[str] = (),
    mu_fw: Ratio = 1.0,
    mu_bw: Ratio = 1.0,
    attention: bool = False,
) -> float:
    """MACs a sample of one adaptation step (Eq. 18), of inference where nothing is updated."""
    return sum(
        forward + backward
        for forward, backward in layer_macs(ops, update, mu_fw, mu_bw, attention).values()
    )


def max_survivors(C: int, rho: float) -> int:
    """The most channels that Alg. 1 can leave: the c it clips hold at least rho of the scores, but at most c / C.

    >>> max_survivors(10, 0.3), max_survivors(32, 0.3), max_survivors(3, 0.9)
    (7, 22, 1)
    """
    if not 0 <= rho < 1:
        raise ValueError(
            f"clip ratio rho must be in [0, 1), got {rho}: at 1 no channel is left to update."
        )
    return min(C, max(1, math.floor((1 - rho + TOLERANCE) * C)))


def max_mu_fw(C: int, rho: float) -> float:
    """The bound mu_fw <= max(1, floor((1 - rho) C)) / C, whatever the data: memory can be promised beforehand."""
    return max_survivors(C, rho) / C


def bound_mu_fw(ops: Sequence[Op], rho: float) -> dict[str, float]:
    """max_mu_fw of every layer but the output layer, which has no attention."""
    return {
        op.name: max_mu_fw(channels(op)[0], rho) for op in ops if op.name in layer_names(ops)[:-1]
    }


@dataclass(frozen=True)
class Cost:
    """What adapting in K steps costs. Words in all, not a sample; MACs over all support samples."""

    peak_words: float
    """the largest over the steps, in the paper's accounting"""
    exact_peak_words: float
    inference_words: float
    """one sample"""
    step_macs: tuple[float, ...]
    inference_macs: float

    @property
    def memory_mb(self) -> float:
        return self.peak_words * WORD / MB

    @property
    def exact_memory_mb(self) -> float:
        return self.exact_peak_words * WORD / MB

    @property
    def inference_mb(self) -> float:
        return self.inference_words * WORD / MB

    @property
    def gmac(self) -> float:
        """The mean over the steps, as the paper reports it."""
        return self.total_gmac / len(self.step_macs)

    @property
    def total_gmac(self) -> float:
        return sum(self.step_macs) / 10**9

    @property
    def inference_gmac(self) -> float:
        return self.inference_macs / 10**9


def cost(
    ops: Sequence[Op],
    masks: Sequence[Collection[str]],
    samples: int,
    batch: int = 1,
    mu_fw: Ratio | Sequence[Ratio] = 1.0,
    mu_bw: Ratio | Sequence[Ratio] = 1.0,
    attention: bool = False,
    kept_words: int = 0,
) -> Cost:
    """Cost of adapting in K steps: `masks` names, step by step, the layers with alpha > 0 (alpha-hat).

    mu_fw and mu_bw are for all steps, or one a step.

    >>> round(cost(four_conv(), [{"fc"}], samples=25).memory_mb, 2)  # ANIL, Table 2
    0.92
    """
    if not masks:
        raise ValueError(
            "masks gives the updated layers of each inner step, got none: without a step nothing is adapted."
        )
    fw, bw = _each_step(mu_fw, len(masks)), _each_step(mu_bw, len(masks))

    def peak(accounting: str) -> float:
        words = (
            peak_words(ops, mask, batch, samples, mu, accounting, attention, kept_words)
            for mask, mu in zip(masks, fw, strict=True)
        )
        return max(words)

    return Cost(
        peak_words=peak("paper"),
        exact_peak_words=peak("exact"),
        inference_words=peak_words(ops, ()),
        step_macs=tuple(
            samples * macs(ops, *step, attention) for step in zip(masks, fw, bw, strict=True)
        ),
        inference_macs=samples * macs(ops),
    )


def _each_step(mu: Ratio | Sequence[Ratio], K: int) -> list[Ratio]:
    mus = list(mu) if isinstance(mu, Sequence) else [mu] * K
    if len(mus) != K:
        raise ValueError(f"mu is given once or for each inner step, got {len(mus)} for {K} steps.")
    return mus
