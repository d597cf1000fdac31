"""A live model of `Learner.fit`, whose code no run folder holds."""

from typing import TYPE_CHECKING

from pmeta.kinds.own.config import NAMED, OwnConfig

if TYPE_CHECKING:
    from pmeta.training.restored import Asked, Restored
    from pmeta.training.workers import Group

__all__ = ["NAMED", "OTHERWISE", "TAKES", "Config", "restore"]
Config = OwnConfig
TAKES = {"export": ("batch", "memory_budget", "least_step", "constants", "frontier")}
OTHERWISE = {
    "evaluate": "the model of {run} lives in Python: learner.load({run!r}), then "
    "learner.evaluate(tasks).",
    "calibrate": "the model of {run} lives in Python, where learner.predict gives scores of "
    "learner.adapt(x, y): fit a temperature there.",
}


def restore(group: "Group", asked: "Asked") -> "Restored":
    """The best model of a run, for an export."""
    from pmeta.kinds.own.best import restore_run

    return restore_run(group, asked)
