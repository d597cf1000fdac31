"""What a pre-training writes and shows: metrics, checkpoints, the best weights."""

import sys
import time
from typing import Any

from torch import Tensor

from pmeta.method.outer import check_alike
from pmeta.network.layers import Weights
from pmeta.training.log import CHECKPOINT_SECONDS
from pmeta.training.pretraining.classifier import Classifier
from pmeta.training.run_folder import Run
from pmeta.training.workers import Group

LINE = (
    "epoch {epoch:>3}  loss {loss:.3f}  train {train_accuracy:.1f} %  nearest centroid "
    "{val_1shot:.2f} ± {val_1shot_ci95:.2f} % (1-shot) {val_5shot:.2f} ± {val_5shot_ci95:.2f} % "
    "(5-shot)"
)
"""Of a validation."""


class PretrainLog:
    """What a pre-training writes and shows. All processes keep it, process 0 writes."""

    def __init__(self, run: Run, group: Group, classifier: Classifier):
        self.run, self.classifier, self.first = run, classifier, group.rank == 0
        self.best: dict[str, Any] = {}
        self.sums, self.lines = {"loss": 0.0, "hits": 0.0, "cpu_seconds": 0.0}, 0
        found = group.from_first(
            lambda: run.newest(lambda tensors: check_alike(tensors, classifier.state()))
        )
        if found is not None:
            classifier.load(found.tensors)
            self.best = found.info["best"]
            self.sums |= found.info["sums"]
            self.lines = run.logged_lines(found.info)
        if self.first:
            run.rewind_metrics(self.lines)
        self.saved_at, self.cpu = time.monotonic(), time.process_time()

    def add(self, loss: Tensor, hits: Tensor) -> None:
        """Take note of an update."""
        self.sums["loss"] += float(loss)
        self.sums["hits"] += float(hits)

    def epoch(self, validation: dict[str, float], w: Weights) -> None:
        """Log a validation of the weights w, and keep them if their mean over 1 and 5 shots is the
        best so far."""
        per_epoch = self.classifier.per_epoch
        self._count_cpu()
        score = (validation["val_1shot"] + validation["val_5shot"]) / 2
        record = {
            "epoch": self.classifier.done // per_epoch,
            "loss": self.sums["loss"] / per_epoch,
            "train_accuracy": 100 * self.sums["hits"] / per_epoch,
            **validation,
            "val_accuracy": score,
            "cpu_seconds": round(self.sums["cpu_seconds"], 1),
        }
        self.sums = {**self.sums, "loss": 0.0, "hits": 0.0}
        better = not self.best or score > self.best["val_accuracy"]
        if better:
            left_out = ("loss", "train_accuracy", "cpu_seconds")
            self.best = {k: v for k, v in record.items() if k not in left_out}
        if not self.first:
            return
        if better:
            self.run.save("best", {f"w/{name}": t for name, t in w.items()}, self.best)
        self.run.log(record)
        self.lines += 1
        print(LINE.format(**record), file=sys.stderr, flush=True)
        self.checkpoint(now=True)

    def checkpoint(self, now: bool = False) -> None:
        """Write the state of the training, every half minute at the least."""
        if not self.first or not (now or time.monotonic() - self.saved_at >= CHECKPOINT_SECONDS):
            return
        self._count_cpu()
        sums = {key: self.sums[key] for key in ("loss", "hits")}  # and no times: files are equal
        info = {"best": self.best, "sums": sums, "lines": self.lines}
        self.run.save("last", self.classifier.state(), info)
        self.saved_at = time.monotonic()

    def _count_cpu(self) -> None:
        now = time.process_time()
        self.sums["cpu_seconds"] += now - self.cpu
        self.cpu = now
