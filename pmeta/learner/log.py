"""What a run writes and shows whose model gives no classes: the loss on unseen tasks."""

import math
import time
from typing import Any

from pmeta.training.evaluate import summarise
from pmeta.training.log import Log


class LossLog(Log):
    """The record of a regression: the best model is the one with the least loss on validation."""

    scalars = ("loss", "val_loss", "memory_mb", "exact_memory_mb", "gmac")

    def epoch(self, results: list[Any]) -> None:
        """Log a validation, and keep the model if it is the best whose layers are chosen."""
        summary = summarise(results)
        losses = [r.loss for r in results]
        spread = math.sqrt(
            sum((loss - summary.loss) ** 2 for loss in losses) / max(1, len(losses) - 1)
        )
        record = {
            "tasks": self.tasks_done,
            "loss": self._mean("loss"),
            "skipped": self.skipped,
            "val_loss": summary.loss,
            "val_ci95": 1.96 * spread / math.sqrt(len(losses)),
            "memory_mb": summary.memory_mb,
            "exact_memory_mb": summary.exact_memory_mb,
            "gmac": summary.gmac,
            "frozen": self.outer.frozen,
            "alpha": self.outer.averaged().alpha.tolist(),
            "seconds": round(time.monotonic() - self.started, 1),
        }
        self.since_epoch = dict.fromkeys(self.sums, 0)
        if self.outer.frozen and (not self.best or summary.loss < self.best["val_loss"]):
            keys = ("tasks", "val_loss", "val_ci95", "memory_mb", "exact_memory_mb", "gmac")
            self.best = {
                "input": list(self.outer.loop.net.ops[0].x),
                "head": [f"w/{name}" for name in self.outer.loop.net.head.params],
                **{key: record[key] for key in keys},
            }
        self.keep(record)

    def line(self, r: dict[str, Any]) -> str:
        """One line for a validation."""
        return (
            f"{r['tasks']:>7} tasks  loss {r['loss']:.4f}  val loss {r['val_loss']:.4f} ± "
            f"{r['val_ci95']:.4f}  memory {r['memory_mb']:.2f} MB"
        )

    def best_line(self) -> str:
        """The best validation so far, for the progress bar."""
        return f"best val loss {self.best['val_loss']:.4f}"
