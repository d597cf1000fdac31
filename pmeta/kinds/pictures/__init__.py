"""Few-shot classification of pictures (Sec. 4.2)."""

from typing import TYPE_CHECKING

from pmeta.training.config import NAMED, ImageConfig
from pmeta.training.figures import CLASSIFIER as FIGURES

if TYPE_CHECKING:
    from pmeta.training.run_folder import Run
    from pmeta.training.trainer import Training
    from pmeta.training.workers import Group

__all__ = ["FIGURES", "NAMED", "Config", "training"]
Config = ImageConfig


def training(group: "Group", run: "Run", config: ImageConfig) -> "Training":
    """What the trainer drives."""
    from pmeta.training.train import training

    return training(group, run, config)
