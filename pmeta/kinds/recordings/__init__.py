"""Recognising activities in recordings of sensors; a task is a person."""

from typing import TYPE_CHECKING

from pmeta.kinds.recordings.config import NAMED, SensorConfig
from pmeta.training.figures import CLASSIFIER as FIGURES

if TYPE_CHECKING:
    from pmeta.training.restored import Asked, Restored
    from pmeta.training.run_folder import Run
    from pmeta.training.trainer import Training
    from pmeta.training.workers import Group

__all__ = ["COMMON", "FIGURES", "NAMED", "NEXT", "TAKES", "Config", "restore", "training"]
Config = SensorConfig
COMMON = (
    "data", "out", "method", "tasks", "epoch_tasks", "devices", "columns", "val_people",
    "test_people", "rate", "length", "n_shot", "n_query", "inner_steps", "alpha_0", "memory_budget",
    "rotate", "pooled_epochs", "seed", "workers",
)  # fmt: skip
"""Options that the short help shows."""
NEXT = "pmeta evaluate {run}"
TAKES = {
    "evaluate": ("data", "split", "tasks", "batch", "n_shot", "least_step", "seed"),
    "calibrate": ("data", "tasks", "seed"),
    "export": ("batch", "memory_budget", "least_step", "constants", "frontier"),
}
OTHERWISE: dict[str, str] = {}


def training(group: "Group", run: "Run", config: SensorConfig) -> "Training":
    """What the trainer drives."""
    from pmeta.kinds.recordings.train import training

    return training(group, run, config)


def restore(group: "Group", asked: "Asked") -> "Restored":
    """The best model of a run, and unseen tasks."""
    from pmeta.kinds.recordings.best import restore_run

    return restore_run(group, asked)
