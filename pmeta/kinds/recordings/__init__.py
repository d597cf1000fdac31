"""Recognising activities in recordings of sensors; a task is a person."""

from typing import TYPE_CHECKING

from pmeta.sensors.config import NAMED, SensorConfig
from pmeta.training.figures import CLASSIFIER as FIGURES

if TYPE_CHECKING:
    from pmeta.training.run_folder import Run
    from pmeta.training.trainer import Training
    from pmeta.training.workers import Group

__all__ = ["FIGURES", "NAMED", "Config", "training"]
Config = SensorConfig


def training(group: "Group", run: "Run", config: SensorConfig) -> "Training":
    """What the trainer drives."""
    from pmeta.sensors.train import training

    return training(group, run, config)
