"""What a run writes and shows whose model gives no classes: the loss on unseen tasks."""

import math
from typing import Any

from pmeta.training.evaluate import summarise
from pmeta.training.log import COSTS, Log


class LossLog(Log):
    """The record of a regression: the best model is the one with the least loss on validation."""

    scalars = ("loss", "val_loss", *COSTS)
    kept = ("tasks", "val_loss", "val_ci95", *COSTS)
    line = (
        "{tasks:>7} tasks  loss {loss:.4f}  val loss {val_loss:.4f} ± {val_ci95:.4f}  "
        "memory {memory_mb:.2f} MB"
    )
    best_line = "best val loss {val_loss:.4f}"

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
