"""Few-shot classification of pictures (Sec. 4.2)."""

from typing import TYPE_CHECKING

from pmeta.kinds.pictures.config import NAMED, ImageConfig
from pmeta.training.figures import CLASSIFIER as FIGURES

if TYPE_CHECKING:
    from pmeta.training.restored import Asked, Restored
    from pmeta.training.run_folder import Run
    from pmeta.training.trainer import Training
    from pmeta.training.workers import Group

__all__ = ["COMMON", "FIGURES", "NAMED", "NEXT", "TAKES", "Config", "restore", "training"]
Config = ImageConfig
COMMON = (
    "data", "out", "method", "init", "tasks", "epoch_tasks", "n_way", "n_shot", "n_query",
    "backbone", "channels", "head", "image_size", "inner_steps", "alpha_0", "memory_budget",
    "freeze_at", "lr", "seed", "workers", "device",
)  # fmt: skip
"""Options that the short help shows."""
NEXT = "pmeta evaluate {run}"
TAKES = {
    "evaluate": (
        "data", "split", "tasks", "batch", "n_way", "n_shot", "n_query", "least_step", "model",
        "seed", "device",
    ),
    "calibrate": ("data", "tasks", "n_query", "model", "seed", "device"),
    "export": (
        "batch", "model", "classes", "float32", "memory_budget", "least_step", "constants",
        "frontier",
    ),
}  # fmt: skip
OTHERWISE: dict[str, str] = {}


def training(group: "Group", run: "Run", config: ImageConfig) -> "Training":
    """What the trainer drives."""
    from pmeta.kinds.pictures.train import training

    return training(group, run, config)


def restore(group: "Group", asked: "Asked") -> "Restored":
    """The best model of a run, and unseen tasks."""
    from pmeta.kinds.pictures.best import restore_run

    return restore_run(group, asked)
