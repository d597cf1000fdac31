"""Results of unseen tasks (Sec. 4.1): accuracy with CI95, and what adapting to each really cost."""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pmeta.cost.macs import macs as step_macs
from pmeta.cost.memory import peak_words
from pmeta.cost.ops import MB, WORD
from pmeta.method.inner import InnerLoop, Scores
from pmeta.method.learned import Meta
from pmeta.method.step_sizes import updated_layers
from pmeta.network.layers import evaluating
from pmeta.network.tape import forward


class TaskResult(NamedTuple):
    """One task after adaptation."""

    accuracy: float
    peak_words: float
    """The largest over steps and micro-batches, in the paper's accounting."""
    exact_peak_words: float
    macs: float
    """Of one step over the whole support set, the mean over steps."""
    ratios: Tensor
    """Share of the weights of layer l that step k updates, the mean over the support set (Fig. 5).
    (K, L)"""
    loss: float = math.nan
    """Mean over the queries."""
    scores: np.ndarray = np.empty((0, 0))
    """Of the queries. (n, classes)"""
    labels: np.ndarray = np.empty(0, int)
    """Their classes. (n,)"""


def evaluate_task(loop: InnerLoop, meta: Meta, task: tuple[Any, Any, Any, Any]) -> TaskResult:
    """Adapt to the support set and classify the queries; layers with alpha = 0 are left alone
    altogether."""
    support_x, support_y, query_x, query_y = task
    meta = replace(meta, mask=meta.updates())
    with evaluating(loop.net.model):
        adapted = loop.adapt(meta, (support_x, support_y))
        with torch.no_grad():
            output, _ = forward(loop.net, adapted.w, query_x, pool_first=loop.pool_first)
            loss = float(loop.loss(output, query_y).double().mean())
    costs = task_cost(loop, meta, adapted.scores, len(support_x))
    if not _is_classes(output, query_y):
        return TaskResult(math.nan, *costs, loss)
    seen = output[:, : int(support_y.max()) + 1]  # a task may have fewer classes than outputs
    accuracy = float((seen.argmax(1) == query_y).double().mean())
    return TaskResult(accuracy, *costs, loss, seen.cpu().numpy(), query_y.cpu().numpy())


def _is_classes(output: Any, query_y: Any) -> bool:
    """Whether the targets are labels, of which there is an accuracy."""
    labels = isinstance(query_y, Tensor) and not query_y.is_floating_point()
    return labels and output.dim() == 2


def task_cost(
    loop: InnerLoop, meta: Meta, scores: list[Scores], samples: int
) -> tuple[float, float, float, Tensor]:
    """Peak words (paper, exact), MACs of a step, and update ratios (K, L), from the scores that a
    task really had."""
    net, batch = loop.net, min(loop.batch or samples, samples)
    attention = loop.method.scores == "attention"
    layers = updated_layers(net, meta.updates())
    peaks, exact, macs, ratios = [0.0], [0.0], [], meta.updates().float().cpu()
    for k, update in enumerate(layers):
        for row in _largest_rows(_mu_fw(update, scores[k])):
            mu = tuple(zip(update, row, strict=True))
            peaks.append(_peak(net.ops, mu, batch, samples, "paper", attention))
            exact.append(_peak(net.ops, mu, batch, samples, "exact", attention))
        share = {
            name: _share(*scores[k][name], net.layers[net.index(name)].kind == "norm")
            for name in update
        }
        # linear in the share of each layer
        macs.append(samples * step_macs(net.ops, update, share, 1.0, attention))
        for name in update:
            ratios[k, net.index(name)] = share[name]
    return max(peaks), max(exact), sum(macs) / len(macs), ratios


@functools.lru_cache(maxsize=100_000)
def _peak(
    ops: Any,
    mu_fw: tuple[tuple[str, float], ...],
    batch: int,
    samples: int,
    accounting: str,
    attention: bool,
) -> float:
    names = [name for name, _ in mu_fw]
    return peak_words(ops, names, batch, samples, dict(mu_fw), accounting, attention)


def _survivors(gamma: Tensor | None) -> Tensor:
    """1 where a channel has a score above 0, a row for each sample or one for all. (rows, C), or
    (1, 1) without scores."""
    return torch.ones(1, 1) if gamma is None else (gamma > 0).float().cpu()


def _mu_fw(names: list[str], scores: Scores) -> Tensor:
    """A row for each sample or one for all, a column for each layer."""
    columns = [_survivors(scores[name][0]).mean(1) for name in names]
    rows = max((len(c) for c in columns), default=1)
    return torch.stack([c.expand(rows) for c in columns], 1) if columns else torch.ones(1, 0)


def _share(gamma_fw: Tensor | None, gamma_bw: Tensor | None, norm: bool) -> float:
    """The share of a layer's weights that are updated, the mean over samples; a norm has one weight
    a channel."""
    fw, bw = _survivors(gamma_fw), _survivors(gamma_bw)
    return float((fw * bw).mean() if norm else (fw.mean(1) * bw.mean(1)).mean())


def _largest_rows(mu: Tensor) -> list[list[float]]:
    """The rows that no other row tops in every layer: the peak can only be at one of these."""
    if not mu.shape[1]:
        return [[]]
    rows = torch.unique(mu, dim=0)
    topped = (rows[:, None] <= rows[None]).all(2).sum(1) > 1
    return rows[~topped].tolist()


@dataclass(frozen=True)
class CostSummary:
    """What adapting took: the mean over tasks, and the worst task."""

    tasks: int
    memory_mb: float
    """Mean over tasks of the peak, in the paper's accounting."""
    worst_memory_mb: float
    exact_memory_mb: float
    worst_exact_memory_mb: float
    gmac: float
    """One adaptation step over the support set."""
    worst_gmac: float
    update_ratios: list[list[float]]
    """Mean over tasks, a row for each step, a column for each layer."""

    def words(self) -> list[str]:
        """What an evaluation found, the most important line first."""
        return []


@dataclass(frozen=True)
class Summary(CostSummary):
    """The mean over tasks, as in the paper's Table 2."""

    accuracy: float
    """In percent."""
    ci95: float
    update_ratios_std: list[list[float]]
    loss: float = math.nan
    """Mean over the queries of all tasks."""
    loss_ci95: float = math.nan

    def words(self) -> list[str]:
        """What an evaluation found."""
        if math.isnan(self.accuracy):
            return [f"loss {self.loss:.4f} ± {self.loss_ci95:.4f} on {self.tasks} tasks"]
        return [f"accuracy {self.accuracy:.2f} ± {self.ci95:.2f} % on {self.tasks} tasks"]


def summarise(results: Iterable[TaskResult]) -> Summary:
    """Mean, CI95 and worst."""
    results = list(results)
    accuracy = torch.tensor([float(r.accuracy) for r in results], dtype=torch.float64)
    ratios = torch.stack([r.ratios for r in results])
    return Summary(
        **cost_of_tasks(results),
        accuracy=100 * float(accuracy.mean()),
        ci95=ci95(accuracy, unit=100),
        update_ratios_std=ratios.std(0, correction=0).tolist(),
        loss=sum(r.loss for r in results) / len(results),
        loss_ci95=ci95(torch.tensor([r.loss for r in results], dtype=torch.float64)),
    )


def ci95(values: Tensor, unit: float = 1) -> float:
    """1.96 std / sqrt(n), in `unit`s; nan of a single value."""
    spread = float(values.std()) if len(values) > 1 else float("nan")
    return unit * 1.96 * spread / len(values) ** 0.5


def mean_ci95(values: Tensor) -> tuple[float, float]:
    """The mean and its interval."""
    return float(values.mean()), ci95(values)


def cost_of_tasks(results: Sequence[Any]) -> dict[str, Any]:
    """`CostSummary` of tasks of images or of reinforcement learning."""
    rows = [(r.peak_words, r.exact_peak_words, r.macs) for r in results]
    peak, exact, macs = torch.tensor(rows, dtype=torch.float64).unbind(1)
    to_mb = WORD / MB
    return {
        "tasks": len(results),
        "memory_mb": float(peak.mean()) * to_mb,
        "worst_memory_mb": float(peak.max()) * to_mb,
        "exact_memory_mb": float(exact.mean()) * to_mb,
        "worst_exact_memory_mb": float(exact.max()) * to_mb,
        "gmac": float(macs.mean()) / 1e9,
        "worst_gmac": float(macs.max()) / 1e9,
        "update_ratios": torch.stack([r.ratios for r in results]).mean(0).tolist(),
    }
