"""Jobs on every core, under a progress bar."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

Job = TypeVar("Job")
Result = TypeVar("Result")


def run(function: Callable[[Job], Result], jobs: Sequence[Job], what: str, parallel: bool) -> Iterator[Result]:
    """function(job) of every job, in order; `parallel` where the work is worth starting processes for."""
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        done: Iterable[Result] = map(function, jobs)
        if parallel and _can_spawn():
            context = multiprocessing.get_context("spawn")  # fork is not safe beside torch's threads
            done = stack.enter_context(ProcessPoolExecutor(os.cpu_count(), mp_context=context)).map(function, jobs)
        yield from progress.track(done, total=len(jobs), description=what)


def _can_spawn() -> bool:
    """A new process imports the main module again, so there must be one to import: a script on stdin is none."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    return path is None or os.path.exists(path)
