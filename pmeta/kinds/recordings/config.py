"""The settings of training on recordings of sensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pmeta.training.settings import AdamSettings, by, check, check_counts


@dataclass(frozen=True)
class SensorConfig(AdamSettings):
    """Meta-train a recogniser of activities on tasks that are people."""

    kind = "recordings"

    data: str = ""
    """Folder of recordings: PERSON/[DEVICE/]RECORDING.csv with columns of numbers and `label`."""
    method: Literal["maml", "anil", "boil", "maml++", "pmeta-lr", "pmeta"] = "pmeta-lr"
    """The method to train."""
    devices: tuple[str, ...] = ()
    """Train with these devices alone (the folders below a person); none: with all."""
    columns: tuple[str, ...] = ()
    """The channels, in order; none: all columns of numbers."""
    val_people: tuple[str, ...] = ()
    """People to validate with; none: a fifth of them, drawn by the seed."""
    test_people: tuple[str, ...] = ()
    """People to leave out altogether."""
    rate: float = 50.0
    """Rows a second that the network sees; recordings are resampled to it."""
    length: int = 64
    """Rows of a window."""
    stride: int = 16
    """Rows from one window to the next."""
    share: float = 0.75
    """A window has a label if at least this share of its rows does."""
    triples: bool = True
    """Three columns in a row are the axes of one sensor (x, y, z): they share a scale."""
    rotate: float = 0.3
    """Share of the tasks whose sensors are turned at random, as if worn another way."""
    channels: int = 32
    """Channels of each conv."""
    n_shot: int = 5
    """Support windows of each activity."""
    n_query: int = 10
    """Query windows of each activity."""
    inner_steps: int = 10
    """K. More steps take no more memory."""
    second_order: bool = False
    """Differentiate through the gradients of the inner steps too, for three times the time."""
    alpha_0: float = 0.03
    pooled_epochs: int = 15
    """First train as an ordinary classifier of all people for so many passes; 0: not at all."""
    pooled_lr: float = 3e-3
    """Step size of that, at its highest."""
    tasks: int = 400
    epoch_tasks: int = 100
    val_draws: int = 4
    """Tasks of each person and device in a validation."""
    alpha_lr: float = 3e-3
    freeze_at: float = 0.3
    ema: float = 0.98

    def __post_init__(self) -> None:
        for name in ("devices", "columns", "val_people", "test_people"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON has lists
        super().__post_init__()
        check_counts(self, "channels", "n_shot", "n_query", "val_draws", "length", "stride")
        check(self, "positive", "pooled_lr")
        check(self, "share", "rotate")
        if self.rotate and not self.triples:
            raise ValueError(
                "--rotate turns sensors of three axes, and --no-triples says that there are none: "
                "give --rotate 0."
            )
        if self.channels % 4:
            raise ValueError(f"--channels are four groups, got {self.channels}: take 24 or so.")
        check(self, "not negative", "pooled_epochs")

    def check_start(self) -> None:
        """Raise ValueError where the command line has to say more before a training can begin."""
        super().check_start()
        if not self.data:
            raise ValueError(
                "--data names the recordings, got none: give --data DIR, a folder of "
                "PERSON/[DEVICE/]RECORDING.csv."
            )

    def setup(self, sample: Sequence[int]) -> str:
        """The recordings, their windows, and how many of each activity there are."""
        windows = f"{Path(self.data).name} {by(sample)} at {self.rate:g} Hz"
        return f"{windows}, {self.channels} channels, {self.n_shot} windows of each activity"


NAMED: dict[str, SensorConfig] = {"har-conv1d": SensorConfig()}
"""Configurations by the name that `pmeta train NAME` takes."""
