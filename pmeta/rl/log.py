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
    score = "val_after"
    line = (
        "{epoch:>5} epochs  return {before:.1f} -> {after:.1f}  val {val_before:.1f} -> "
        "{val_after:.2f} ± {val_ci95:.2f}  memory {memory_mb:.2f} MB"
    )
    best_line = "best val {val_after:.1f}"

    def so_far(self) -> list[str]:
        return [f"return {self._mean('before'):.1f} -> {self._mean('after'):.1f}"]

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

    def about_model(self) -> dict[str, Any]:
        return {}  # a policy has a head and an input of its own
