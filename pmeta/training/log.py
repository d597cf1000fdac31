"""What a training shows while it runs: a progress bar, a line a validation, TensorBoard."""

import sys
import time
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from pmeta.base.console import Console
from pmeta.base.errors import how_to_install
from pmeta.method.outer import about_skipped
from pmeta.training.run_folder import Run

if TYPE_CHECKING:  # the trainer imports this file
    from pmeta.training.trainer import Training

QUIET_SECONDS = 30.0
"""Without a terminal, a line at least this often."""


class Log:
    """Shows one training; only process 0 does."""

    def __init__(self, run: Run, training: "Training", shown: bool, tensorboard: bool = False):
        self.training, self.shown = training, shown
        self.started = self.said_at = time.monotonic()
        self.cpu, self.first = time.process_time(), self.so_far
        self.board = _tensorboard(run) if shown and tensorboard else None

    @property
    def so_far(self) -> int:
        """Units that are used up."""
        return min(self.training.done * self.training.each, self.training.total)

    def __enter__(self) -> "Log":
        title, unit, total = self.training.title, self.training.unit, self.training.total
        columns = (  # in a narrow terminal the bar and the end of the status give way
            TextColumn("{task.description}", table_column=_whole(len(title))),
            BarColumn(),
            TextColumn(
                f"{{task.completed}}/{{task.total}} {unit}",
                table_column=_whole(len(f"{total}/{total} {unit}")),
            ),
            TimeRemainingColumn(table_column=_whole(len("0:00:00"))),
            TextColumn("{task.fields[status]}"),
        )
        self.live = self.shown and sys.stderr.isatty()
        self.bar = Progress(*columns, console=Console(stderr=True), disable=not self.live)
        self.row = self.bar.add_task(title, total=total, completed=self.so_far, status="")
        if self.shown and 0 < self.so_far < total:
            self._say(f"going on after {self.so_far} of {total} {unit}")
        self.bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.bar.stop()
        if self.board:
            self.board.close()

    def seconds(self) -> dict[str, float]:
        """Since the start of this process's part, by the clock and on the processor."""
        since = {
            "seconds": time.monotonic() - self.started,
            "cpu_seconds": time.process_time() - self.cpu,
        }
        return {key: round(value, 1) for key, value in since.items()}

    def update(self, sums: dict[str, float], best: dict[str, Any], skipped: int) -> None:
        """Show how far it is: in the bar, or without a terminal in a line now and then."""
        due = time.monotonic() - self.said_at >= QUIET_SECONDS
        if not self.live and not (self.shown and due):
            return
        status = "  ".join(self._status(sums, best, skipped))
        self.bar.update(self.row, completed=self.so_far, status=status)
        if not self.live:
            total, unit = self.training.total, self.training.unit
            self._say(f"{self.so_far} of {total} {unit}  {status}")

    def _status(self, sums: dict[str, float], best: dict[str, Any], skipped: int) -> list[str]:
        passed = max(time.monotonic() - self.started, 1e-9)
        speed = f"{(self.so_far - self.first) / passed:.1f} {self.training.unit}/s"
        parts = [speed, *self.training.status(sums)]
        if best:
            parts.append(self.training.figures.best_line.format(**best))
        return [*parts, *_skipped(skipped)]

    def show(self, record: dict[str, Any], skipped: int) -> None:
        """A validation."""
        line = self.training.figures.line.format(**record)
        self._say("  ".join([line, *_skipped(skipped)]))
        if self.board:
            at = next(iter(record.values()))
            for key, value in record.items():
                if isinstance(value, int | float):
                    self.board.add_scalar(key, value, at)

    def end(self, skipped: int) -> None:
        """What is to be known of the whole training."""
        if skipped:
            self._say(about_skipped(skipped, self.training.total))

    def _say(self, line: str) -> None:
        self.bar.console.print(line, highlight=False, soft_wrap=True)
        self.said_at = time.monotonic()


def _skipped(tasks: int) -> list[str]:
    return [f"[red]{tasks} tasks skipped[/red]"] if tasks else []


def _whole(width: int) -> Column:
    """A column of the progress bar that is not cut off."""
    return Column(no_wrap=True, min_width=width)


def _tensorboard(run: Run) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            f"--tensorboard needs the package tensorboard: {how_to_install('tensorboard')}."
        ) from None
    return SummaryWriter(run.path / "tensorboard")
