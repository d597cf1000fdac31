"""The settings of pre-training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pmeta.kinds.pictures.config import backbone_title
from pmeta.training.settings import (
    NO_PICTURES,
    RunSettings,
    by,
    check,
    check_counts,
    check_not_negative,
    check_processes,
)

CHUNK = 32
"""Images that run through the network at once, and share the statistics of their batch norms."""


@dataclass(frozen=True)
class PretrainConfig(RunSettings):
    """Pre-train a network as a classifier of the training classes; `pmeta train NAME --init RUN`
    goes on from it."""

    kind = "pre-training"
    groups: ClassVar[int] = 1
    """Its norms are batch norms."""

    data: str = ""
    """Folder, .tar or .zip of classes (ROOT/{train,val,test}/CLASS/*.jpg), or the embedded set
    `glyphs`."""
    backbone: Literal["4conv", "resnet12"] = "4conv"
    """The network."""
    channels: int = 32
    """Channels of each block of 4Conv; ResNet12 has this number times 2, 4, 8 and 16."""
    embedding: Literal["plain", "signed"] = "signed"
    """signed: the last block of 4Conv has no ReLU, so that embeddings have all directions."""
    pool: Literal["max", "average"] = "max"
    """Pooling (Table 5)."""
    image_size: int = 84
    """Images are fitted to this size."""
    crop_size: int = 64
    """Training crops are fitted to this size; smaller ones take less time, and the network sees
    validation images whole."""
    least_area: float = 0.4
    """The least share of an image that a training crop shows."""
    jitter: float = 0.3
    """Brightness, contrast and colour of a training crop are multiplied by factors within 1 +-
    this."""
    epochs: int = 40
    """Passes over the training images."""
    batch: int = 64
    """Images in one update."""
    lr: float = 2e-3
    """Step size of AdamW at its highest; it rises over the first tenth of the updates, then falls
    along a cosine to 0."""
    weight_decay: float = 0.05
    """Of convs and head, times the step size."""
    label_smoothing: float = 0.0
    """Share of the target that is spread over all classes."""
    val_tasks: int = 500
    """Few-shot tasks (5 classes, 1 and 5 samples) of each validation, which follows each epoch."""
    val_images: int = 200
    """Images of each validation class that the tasks are drawn from."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto: on the GPU if there is one."""

    def __post_init__(self) -> None:
        check_counts(self, "channels", "image_size", "crop_size", "epochs", "batch", "val_tasks")
        check_counts(self, "val_images")
        if self.embedding == "signed" and self.backbone != "4conv":
            raise ValueError(
                "--embedding signed is for 4Conv: ResNet12 ends with an average, give plain."
            )
        check(self, "positive", "lr")
        if not 0 < self.least_area <= 1:
            raise ValueError(
                f"--least-area is a share of the image in (0, 1], got {self.least_area}: at 0 "
                "nothing is seen."
            )
        check(self, "below one", "jitter", "label_smoothing")
        check_not_negative(self, weight_decay="it off")
        check_processes(self)

    def check_start(self) -> None:
        """Raise ValueError where the command line has to say more before a training can begin."""
        super().check_start()
        if not self.data:
            raise ValueError(NO_PICTURES)

    def setup(self, sample: Sequence[int]) -> str:
        """Data and their size, and the network."""
        title = backbone_title(self.backbone, self.channels)
        return f"{Path(self.data).name} {by(sample[1:])}, {title}, {self.kind}"

    def most_workers(self, count: int) -> int:
        """How many of so many processes are of use: no more than a batch has parts."""
        return min(count, -(-self.batch // CHUNK))


NAMED: dict[str, PretrainConfig] = {
    "miniimagenet-4conv-pretrain": PretrainConfig(),
}
"""Configurations by the name that `pmeta train NAME` takes."""
