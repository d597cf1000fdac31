"""Few-shot reinforcement learning (Sec. 4.3)."""

from typing import TYPE_CHECKING

from pmeta.rl.config import NAMED, RLConfig
from pmeta.rl.figures import FIGURES

if TYPE_CHECKING:
    from pmeta.training.restored import Asked, Restored
    from pmeta.training.run_folder import Run
    from pmeta.training.trainer import Training
    from pmeta.training.workers import Group

__all__ = ["COMMON", "FIGURES", "NAMED", "NEXT", "TAKES", "Config", "restore", "training"]
Config = RLConfig
COMMON = (
    "out", "env", "method", "epochs", "meta_batch", "episodes", "horizon", "inner_steps", "alpha_0",
    "alpha_lr", "memory_budget", "freeze_at", "max_kl", "val_every", "val_tasks", "seed", "workers",
)  # fmt: skip
"""Options that the short help shows."""
NEXT = "pmeta evaluate {run}"
TAKES = {
    "evaluate": ("tasks", "batch", "least_step", "seed", "render"),
    "export": ("batch", "memory_budget", "least_step", "constants", "frontier"),
}
OTHERWISE = {
    "calibrate": "certainty is of a classifier, and {run} is a policy: leave this step out.",
}


def training(group: "Group", run: "Run", config: RLConfig) -> "Training":
    """What the trainer drives."""
    from pmeta.rl.train import training

    return training(group, run, config)


def restore(group: "Group", asked: "Asked") -> "Restored":
    """The best model of a run, and unseen tasks."""
    from pmeta.rl.restore import restore_run

    return restore_run(group, asked)
