"""Few-shot reinforcement learning (Sec. 4.3)."""

from typing import TYPE_CHECKING

from pmeta.rl.config import NAMED, RLConfig
from pmeta.rl.figures import FIGURES

if TYPE_CHECKING:
    from pmeta.training.run_folder import Run
    from pmeta.training.trainer import Training
    from pmeta.training.workers import Group

__all__ = ["FIGURES", "NAMED", "Config", "training"]
Config = RLConfig


def training(group: "Group", run: "Run", config: RLConfig) -> "Training":
    """What the trainer drives."""
    from pmeta.rl.train import training

    return training(group, run, config)
