"""What a run writes and shows whose model gives no classes: the loss on unseen tasks."""

import math
from typing import Any

from pmeta.training.evaluate import summarise
from pmeta.training.log import COSTS, Log


class LossLog(Log):
    """The record of a regression: the best model is the one with the least loss on validation."""

    scalars = ("loss", "val_loss", *COSTS)
    kept = ("tasks", "val_loss", "val_ci95", *COSTS)

    def figures(self, results: list[Any]) -> dict[str, Any]:
        """What the epoch and its validation showed, but for the costs."""
        mean = summarise(results).loss
        squares = sum((r.loss - mean) ** 2 for r in results)
        spread = math.sqrt(squares / max(1, len(results) - 1))
        return {
            "loss": self._mean("loss"),
            "skipped": self.skipped,
            "val_loss": mean,
            "val_ci95": 1.96 * spread / math.sqrt(len(results)),
        }

    def is_better(self, record: dict[str, Any]) -> bool:
        return record["val_loss"] < self.best["val_loss"]

    def line(self, r: dict[str, Any]) -> str:
        """One line for a validation."""
        return (
            f"{r['tasks']:>7} tasks  loss {r['loss']:.4f}  val loss {r['val_loss']:.4f} ± "
            f"{r['val_ci95']:.4f}  memory {r['memory_mb']:.2f} MB"
        )

    def best_line(self) -> str:
        """The best validation so far, for the progress bar."""
        return f"best val loss {self.best['val_loss']:.4f}"
