"""Pre-training before meta-training: an ordinary classifier, validated by nearest centroids."""

from typing import TYPE_CHECKING

from pmeta.kinds.pictures.pretraining.config import NAMED, PretrainConfig
from pmeta.kinds.pictures.pretraining.figures import FIGURES

if TYPE_CHECKING:
    from pmeta.training.run_folder import Run
    from pmeta.training.trainer import Training
    from pmeta.training.workers import Group

__all__ = ["COMMON", "FIGURES", "NAMED", "NEXT", "OTHERWISE", "TAKES", "Config", "training"]
Config = PretrainConfig
COMMON = (
    "data",
    "out",
    "backbone",
    "channels",
    "image_size",
    "epochs",
    "batch",
    "lr",
    "seed",
    "workers",
)
"""Options that the short help shows."""
NEXT = "pmeta train NAME --init {run}"
TAKES: dict[str, tuple[str, ...]] = {}
OTHERWISE = dict.fromkeys(
    ("evaluate", "calibrate", "export"),
    "{run} is a pre-training, which cannot be adapted yet: pmeta train NAME --init {run} goes on "
    "from it.",
)


def training(group: "Group", run: "Run", config: PretrainConfig) -> "Training":
    """What the trainer drives."""
    from pmeta.kinds.pictures.pretraining.pretrain import training

    return training(group, run, config)
