"""Tasks by number, from what a user has: a sequence, a function of the number, or an iterator."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any

from pmeta.method.meta_gradient import AnyTask

Tasks = Sequence[AnyTask] | Callable[[int], AnyTask] | Iterable[AnyTask]


def how_many(tasks: Any, n_tasks: int | None, meta_batch: int) -> int:
    """The tasks of a training in all."""
    total = len(tasks) if n_tasks is None and isinstance(tasks, Sized) else n_tasks
    if total is None:
        raise ValueError(
            "the schedule needs to know how many tasks there will be: give n_tasks with an "
            "iterator or a function."
        )
    if total < 1 or meta_batch < 1:
        raise ValueError(
            f"meta-training takes at least 1 task, 1 at a time, got {total} and "
            f"meta_batch={meta_batch}."
        )
    return total


def check_sendable(work: Any) -> None:
    """Raise ValueError unless other processes can be given the model and its tasks."""
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"with workers above 1 the model, the loss and the tasks go to other processes, and "
            f"one of them cannot ({error}): define functions and classes at the top of a module, "
            "and give the tasks as a list or as such a function."
        ) from None


class Numbered:
    """Task i of `tasks`: a sequence is repeated from its start, an iterator is run forward."""

    def __init__(self, tasks: Tasks, total: int):
        self.tasks, self.total, self.at = tasks, total, 0
        self._running: Iterator[AnyTask] | None = None

    def __call__(self, i: int) -> AnyTask:
        if isinstance(self.tasks, Sequence):
            return self.tasks[i % len(self.tasks)]
        if callable(self.tasks):
            return self.tasks(i)
        if self._running is None:
            self._running = iter(self.tasks)
        task = next(self._running, None)
        while task is not None and self.at < i:  # other processes have these, or an earlier start
            task, self.at = next(self._running, None), self.at + 1
        self.at += 1
        if task is None:
            raise ValueError(
                f"n_tasks promised {self.total} tasks and {self.at - 1} came, which cut the "
                "schedule short: train again."
            )
        return task
