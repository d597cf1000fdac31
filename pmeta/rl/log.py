"""The log of a training run of policies: returns in place of accuracies."""

from typing import Any, NamedTuple

from pmeta.rl.evaluate import summarise
from pmeta.training.log import COSTS, Log


class Returns(NamedTuple):
    """An outer update, sums over its tasks."""

    before: float
    after: float
    tasks: int
    kl: float
    gain: float
    """How much the surrogate fell."""
    step: float
    """The fraction of the natural step that was taken."""
    skipped: int = 0


class RLLog(Log):
    """The record of one run. All processes keep it, process 0 writes and shows it."""

    sums = ("before", "after", "tasks", "kl", "gain", "step", "skipped")
    scalars = ("before", "after", "val_before", "val_after", *COSTS, "kl")
    kept = ("epoch", "tasks", "val_before", "val_after", "val_ci95", *COSTS)

    def status(self) -> str:
        """The line beside the progress bar."""
        parts = [f"return {self._mean('before'):.1f} -> {self._mean('after'):.1f}"]
        if self.best:
            parts.append(f"best val {self.best['val_after']:.1f}")
        if self.cost:
            parts.append(f"memory {self.cost.memory_mb:.2f} MB")
        return "  ".join(parts)

    def figures(self, results: list[Any]) -> dict[str, Any]:
        """What the epoch and its validation showed, but for the costs."""
        summary = summarise(results)
        updates = max(1, round(self.since_epoch["tasks"] / self.config.meta_batch))
        return {
            "epoch": self.outer.done,
            "before": self._mean("before"),
            "after": self._mean("after"),
            **{key: self.since_epoch[key] / updates for key in ("kl", "gain", "step")},
            "val_before": summary.before,
            "val_after": summary.after,
            "val_ci95": summary.after_ci95,
            "std": self.outer.meta.w["log_std"].exp().tolist(),
        }

    def is_better(self, record: dict[str, Any]) -> bool:
        return record["val_after"] > self.best["val_after"]

    def about_model(self) -> dict[str, Any]:
        return {}  # a policy has a head and an input of its own

    def line(self, r: dict[str, Any]) -> str:
        """One line for a validation."""
        return (
            f"{r['epoch']:>5} epochs  return {r['before']:.1f} -> {r['after']:.1f}  val "
            f"{r['val_before']:.1f} -> {r['val_after']:.2f} ± {r['val_ci95']:.2f}  memory "
            f"{r['memory_mb']:.2f} MB"
        )
