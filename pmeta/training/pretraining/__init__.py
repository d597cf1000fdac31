"""Pre-training before meta-training: an ordinary classifier, validated by nearest centroids."""

from typing import TYPE_CHECKING

from pmeta.training.pretraining.config import NAMED, PretrainConfig

if TYPE_CHECKING:
    from pmeta.training.run_folder import Run
    from pmeta.training.trainer import Training
    from pmeta.training.workers import Group

__all__ = ["NAMED", "Config", "training"]
Config = PretrainConfig


def training(group: "Group", run: "Run", config: PretrainConfig) -> "Training":
    """What the trainer drives."""
    from pmeta.training.pretraining.pretrain import training

    return training(group, run, config)
