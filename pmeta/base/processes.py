"""Jobs on every core, under a progress bar."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from rich.progress import Progress

from pmeta.base.console import Console

Item = TypeVar("Item")
Result = TypeVar("Result")


def run(
    function: Callable[[Item], Result], jobs: Sequence[Item], what: str, parallel: bool
) -> Iterator[Result]:
    """function(job) of every job, in order; `parallel` where the work is worth starting processes
    for."""
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        done: Iterable[Result] = map(function, jobs)
        if parallel and not multiprocessing.current_process().daemon:  # which may have no children
            # fork is not safe beside torch's threads
            context = multiprocessing.get_context("spawn")
            executor = ProcessPoolExecutor(os.cpu_count(), mp_context=context)
            # after an error the rest is not worth doing
            stack.callback(executor.shutdown, cancel_futures=True)
            with _main_hidden():
                done = executor.map(function, jobs)
        yield from progress.track(done, total=len(jobs), description=what)


@contextlib.contextmanager
def _main_hidden() -> Iterator[None]:
    """Start processes that do not import the main module again: the jobs need nothing of it, and a
    user's script without `if __name__ == "__main__"` would run all over in each of them."""
    main = sys.modules["__main__"]
    seen = {name: getattr(main, name, None) for name in ("__spec__", "__file__")}
    for name in seen:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in seen.items():
            setattr(main, name, value)
