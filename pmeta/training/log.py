"""What a training run writes and shows: metrics, checkpoints, the best model, a progress bar."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from pmeta.base.console import Console
from pmeta.base.errors import how_to_install
from pmeta.cost.adaptation import Cost
from pmeta.method.learned import Meta
from pmeta.method.outer import Outer, about_skipped
from pmeta.training.evaluate import cost_of_tasks, summarise
from pmeta.training.run_folder import Run, write_json
from pmeta.training.settings import Settings
from pmeta.training.workers import Group

CHECKPOINT_SECONDS = 30.0
COSTS = ("memory_mb", "exact_memory_mb", "gmac")


class Log:
    """The record of one run. All processes keep it, process 0 writes and shows it."""

    sums: tuple[str, ...] = ("loss", "correct", "tasks", "skipped")
    """What is added up from update to update until the epoch ends."""
    scalars: tuple[str, ...] = ("loss", "train_accuracy", "val_accuracy", *COSTS)
    """What TensorBoard shows."""
    kept: tuple[str, ...] = ("tasks", "val_accuracy", "val_ci95", *COSTS)
    """What is known of the best model."""
    score: str = "val_accuracy"
    """What the best model is chosen by."""
    line: str = (
        "{tasks:>7} tasks  loss {loss:.3f}  train {train_accuracy:.1f} %  "
        "val {val_accuracy:.2f} ± {val_ci95:.2f} %  memory {memory_mb:.2f} MB"
    )
    """Of a validation."""
    best_line: str = "best val {val_accuracy:.1f} %"
    """Of the best one so far, beside the progress bar."""

    def __init__(
        self,
        run: Run,
        group: Group,
        config: Settings,
        outer: Outer,
        sample: Sequence[int] = (),
        whole: Callable[[Meta], Meta] | None = None,
    ):
        """Where only the upper part of a network is trained, `sample` is the shape that the whole
        reads, and `whole` gives it with what was learned."""
        self.run, self.group, self.config, self.outer = run, group, config, outer
        self.sample = sample
        self.whole = whole or (lambda meta: meta)
        self.first = group.rank == 0
        self.best: dict[str, Any] = {}
        self.since_epoch: dict[str, float] = dict.fromkeys(self.sums, 0)
        self.skipped = self.lines = 0
        self.cost: Cost | None = None
        self._resume()
        self.started = self.saved_at = time.monotonic()
        self.first_task = outer.done * config.meta_batch
        self.board = _tensorboard(run, config) if self.first else None

    def _resume(self) -> None:
        found = self.group.from_first(lambda: self.run.newest(self.outer.check))
        if found is None:
            self.run.rewind_metrics(0) if self.first else None
            return
        self.outer.load(found.tensors)
        self.best, self.since_epoch, self.skipped = (
            found.info[key] for key in ("best", "since_epoch", "skipped")
        )
        self.lines = self.run.logged_lines(found.info)
        if self.first:
            self.run.rewind_metrics(self.lines)
            # a kill may have come between the checkpoint and this
            write_json(self.run.path / "last.json", found.info)

    def __enter__(self) -> "Log":
        title, tasks = self.config.method_row().title, self.config.tasks
        columns = (  # in a narrow terminal the bar and the end of the status give way
            TextColumn("{task.description}", table_column=_whole(len(title))),
            BarColumn(),
            TextColumn(
                "{task.completed}/{task.total} tasks",
                table_column=_whole(len(f"{tasks}/{tasks} tasks")),
            ),
            TimeRemainingColumn(table_column=_whole(len("0:00:00"))),
            TextColumn("{task.fields[status]}"),
        )
        self.bar = Progress(
            *columns, console=Console(stderr=True), disable=not (self.first and sys.stderr.isatty())
        )
        self.row = self.bar.add_task(title, total=tasks, completed=self.tasks_done, status="")
        if self.first and 0 < self.tasks_done < tasks:
            self.bar.console.print(
                f"going on after {self.tasks_done} of {tasks} tasks", highlight=False
            )
        self.bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.bar.stop()
        if self.first and self.outer.done == self.config.updates and self.skipped:
            said = about_skipped(self.skipped, self.tasks_done)
            self.bar.console.print(said, highlight=False, soft_wrap=True)
        if self.board:
            self.board.close()

    @property
    def tasks_done(self) -> int:
        return min(self.outer.done * self.config.meta_batch, self.config.tasks)

    def update(self, g: Any, cost: Cost) -> None:
        """Take note of an outer update, which has all of `sums`."""
        self.cost = cost
        for key in self.since_epoch:
            self.since_epoch[key] += getattr(g, key)
        self.skipped += g.skipped
        self.outer.check_finite(f" The last good checkpoint is kept in {self.run.path}.")
        self.bar.update(self.row, completed=self.tasks_done, status=self.status())

    def status(self) -> str:
        """The line beside the progress bar."""
        parts = self.so_far()
        if self.best:
            parts.append(self.best_line.format(**self.best))
        if self.cost:
            parts.append(f"memory {self.cost.memory_mb:.2f} MB")
        if self.skipped:
            parts.append(f"[red]{self.skipped} tasks skipped[/red]")
        return "  ".join(parts)

    def so_far(self) -> list[str]:
        """What the tasks of this epoch have shown."""
        speed = (self.tasks_done - self.first_task) / max(time.monotonic() - self.started, 1e-9)
        return [f"{speed:.1f} tasks/s", f"loss {self._mean('loss'):.3f}"]

    def _mean(self, key: str) -> float:
        tasks = self.since_epoch["tasks"]
        return self.since_epoch[key] / tasks if tasks else math.nan

    def epoch_ends(self) -> bool:
        """Whether the model is to be validated now: after each epoch and at the end."""
        per_epoch = max(1, round(self.config.epoch_tasks / self.config.meta_batch))
        return self.outer.done % per_epoch == 0 or self.outer.done == self.config.updates

    def epoch(self, results: list[Any]) -> None:
        """Log a validation, and keep the model if it is the best so far among those whose layers
        are chosen."""
        costs = cost_of_tasks(results)
        record = {
            "tasks": self.tasks_done,
            **self.figures(results),
            **{key: costs[key] for key in COSTS},
            "frozen": self.outer.frozen,
            "alpha": self.outer.averaged().alpha.tolist(),
            "seconds": round(time.monotonic() - self.started, 1),
        }
        self.since_epoch = dict.fromkeys(self.sums, 0)
        if self.outer.frozen and (not self.best or self.is_better(record)):
            self.best = {**self.about_model(), **{key: record[key] for key in self.kept}}
        self.keep(record)

    def figures(self, results: list[Any]) -> dict[str, Any]:
        """What the epoch and its validation showed, but for the costs."""
        summary = summarise(results)
        return {
            "loss": self._mean("loss"),
            "train_accuracy": 100 * self._mean("correct"),
            "skipped": self.skipped,
            "val_accuracy": summary.accuracy,
            "val_ci95": summary.ci95,
        }

    def is_better(self, record: dict[str, Any]) -> bool:
        """Whether a validation is better than the best before it."""
        return record[self.score] > self.best[self.score]

    def about_model(self) -> dict[str, Any]:
        """What a checkpoint says of its network."""
        net = self.outer.loop.net
        return {"input": list(self.sample or net.ops[0].x)}

    def keep(self, record: dict[str, Any]) -> None:
        """Write what a validation showed, the model if it is now the best, and a checkpoint."""
        if not self.first:
            return
        if self.best.get("tasks") == record["tasks"]:
            meta = self.whole(self.outer.averaged())
            self.run.save("best", {**meta.parameters(), "mask": meta.mask}, self.best)
        self.run.log(record)
        self.lines += 1
        self._show(record)
        self.checkpoint(now=True)

    def _show(self, r: dict[str, Any]) -> None:
        skipped = f"  [red]{self.skipped} tasks skipped[/red]" if self.skipped else ""
        self.bar.console.print(self.line.format(**r) + skipped, highlight=False, soft_wrap=True)
        if self.board:
            for key in self.scalars:
                self.board.add_scalar(key, r[key], r["tasks"])

    def checkpoint(self, now: bool = False) -> None:
        """Write the state of the training, every half minute at the least; never one of a run that
        may be going astray."""
        due = time.monotonic() - self.saved_at >= CHECKPOINT_SECONDS
        astray = self.outer.bad_in_a_row and self.outer.done < self.config.updates
        if not self.first or astray or not (now or due):
            return
        info = {
            "tasks": self.tasks_done,
            "best": self.best,
            "since_epoch": self.since_epoch,
            "skipped": self.skipped,
            "lines": self.lines,
        }
        self.run.save("last", self.outer.state(), info)
        self.saved_at = time.monotonic()


def _whole(width: int) -> Column:
    """A column of the progress bar that is not cut off."""
    return Column(no_wrap=True, min_width=width)


def _tensorboard(run: Run, config: Settings) -> Any:
    if not config.tensorboard:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            f"--tensorboard needs the package tensorboard: {how_to_install('tensorboard')}."
        ) from None
    return SummaryWriter(run.path / "tensorboard")
