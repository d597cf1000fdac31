"""Unseen tasks (Sec. 4.3, Table 3): return with CI95, and what adapting costs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pmeta.kinds.policies.outer import Batch
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta
from pmeta.training.results import CostSummary, ci95, cost_of_tasks, task_cost


class TaskReturn(NamedTuple):
    """One task: its mean return over the episodes, and the cost of adapting to it."""

    before: float
    after: float
    first_half: float
    """Of `after`, what the first half of the steps gives."""
    peak_words: float
    """In the paper's accounting, which leaves out the estimate of the advantages."""
    exact_peak_words: float
    """With the episodes that are kept for the baseline."""
    macs: float
    ratios: Tensor
    """Share of the weights of layer l that step k updates. (K, L)"""


def task_returns(loop: InnerLoop, meta: Meta, data: Batch) -> list[TaskReturn]:
    """The results of the tasks of a batch."""
    out = []
    halves = data.after.rewards[..., : data.after.rewards.shape[-1] // 2].sum(-1).mean(1)
    for before, after, half, (x, y), adapted in zip(
        *data.returns(), halves, data.support, data.adapted, strict=True
    ):
        peak, exact, macs, ratios = task_cost(loop, meta, adapted.scores, len(x))
        kept = x.numel() + y.numel()  # observations, actions and rewards of every episode
        out.append(
            TaskReturn(float(before), float(after), float(half), peak, exact + kept, macs, ratios)
        )
    return out


@dataclass(frozen=True)
class ReturnSummary(CostSummary):
    """The mean over tasks, as in the paper's Table 3; the exact memory with the episodes kept."""

    before: float
    """Return without adaptation."""
    before_ci95: float
    after: float
    """Return after adaptation, the paper's figure."""
    after_ci95: float
    after_median: float
    """Of the tasks: the mean is led by the few that go astray."""
    first_half: float
    """Return after adaptation in the first half of the steps: others end an episode of navigation
    after 100."""
    first_half_ci95: float

    def words(self) -> list[str]:
        """Returns of unseen tasks."""
        after, before = (
            f"{mean:.2f} ± {ci95:.2f}"
            for mean, ci95 in ((self.after, self.after_ci95), (self.before, self.before_ci95))
        )
        half = f"{self.first_half:.2f} ± {self.first_half_ci95:.2f}"
        return [
            f"return {after} after adaptation ({before} before) on {self.tasks} tasks",
            f"median of the tasks {self.after_median:.2f}; first half of the steps {half}",
        ]


def summarise(results: Iterable[TaskReturn]) -> ReturnSummary:
    """Mean, CI95 and worst."""
    results = list(results)
    rows = [(r.before, r.after, r.first_half) for r in results]
    before, after, half = torch.tensor(rows, dtype=torch.float64).T.contiguous()
    return ReturnSummary(
        **cost_of_tasks(results),
        before=float(before.mean()),
        before_ci95=ci95(before),
        after=float(after.mean()),
        after_ci95=ci95(after),
        after_median=float(after.median()),
        first_half=float(half.mean()),
        first_half_ci95=ci95(half),
    )
