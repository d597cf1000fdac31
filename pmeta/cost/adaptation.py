"""What one adaptation costs (App. A): peak memory and MACs over its steps. Plain Python."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pmeta.cost.macs import macs
from pmeta.cost.memory import peak_words
from pmeta.cost.ops import MB, WORD, Op, Ratio


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
    mu_fw: Ratio = 1.0,
    attention: bool = False,
    kept_words: int = 0,
) -> Cost:
    """Cost of adapting in K steps: `masks` names, step by step, the layers with alpha > 0
    (alpha-hat).

    >>> from pmeta.cost.networks import four_conv
    >>> round(cost(four_conv(), [{"fc"}], samples=25).memory_mb, 2)  # ANIL, Table 2
    0.92
    """
    if not masks:
        raise ValueError(
            "masks gives the updated layers of each inner step, got none: without a step nothing "
            "is adapted."
        )

    def peak(accounting: str) -> float:
        how = (batch, samples, mu_fw, accounting, attention, kept_words)
        return max(peak_words(ops, mask, *how) for mask in masks)

    return Cost(
        peak_words=peak("paper"),
        exact_peak_words=peak("exact"),
        inference_words=peak_words(ops, ()),
        step_macs=tuple(samples * macs(ops, mask, mu_fw, 1.0, attention) for mask in masks),
        inference_macs=samples * macs(ops),
    )
