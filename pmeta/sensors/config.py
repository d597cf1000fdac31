"""The settings of training on recordings of sensors."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from pmeta.method.methods import Method, method
from pmeta.training.config import check_budget, check_shares


@dataclass(frozen=True)
class SensorConfig:
    """Meta-train a recogniser of activities on tasks that are people."""

    data: str = ""
    """Folder of recordings: PERSON/[DEVICE/]RECORDING.csv with columns of numbers and `label`."""
    method: Literal["maml", "anil", "boil", "maml++", "pmeta-lr", "pmeta"] = "pmeta-lr"
    """Which method to train."""
    out: str = ""
    """Run folder. A run that is there already is continued."""
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
    """The first inner step size."""
    clip_ratio_fw: float | None = 0.3
    """rho of the forward attention; None turns it off."""
    clip_ratio_bw: float | None = 0.0
    """rho of the backward attention; None turns it off."""
    pooled_epochs: int = 15
    """First train as an ordinary classifier of all people for so many passes; 0: not at all."""
    pooled_lr: float = 3e-3
    """Step size of that, at its highest."""
    tasks: int = 400
    """Tasks to train on in all."""
    meta_batch: int = 4
    """Tasks in one outer update."""
    epoch_tasks: int = 100
    """Tasks in a meta epoch, after which the model is validated."""
    val_draws: int = 4
    """Tasks of each person and device in a validation."""
    lr: float = 1e-3
    """Outer step size beta of the weights."""
    alpha_lr: float = 3e-3
    """Outer step size of the step sizes."""
    attention_lr: float = 1e-3
    """Outer step size of the attention weights."""
    attention_bias_lr: float = 1e-2
    """Outer step size of the last bias of each attention module."""
    lam: float = 0.001
    """lambda of Eq. 9, with inputs counted in KiB."""
    warm_up: float = 0.2
    """Share of the training over which lambda rises from 0."""
    freeze_at: float = 0.3
    """Share of the training after which the layers that live are chosen and the penalty ends."""
    freeze_below: float = 0.1
    """What is small, as a share of alpha_0."""
    ema: float = 0.98
    """Validate and keep an average of what is trained that forgets over 1 / (1 - this) updates; 0:
    the last values themselves."""
    memory_budget: str = ""
    """Instead of lambda: the arena of the engine must fit in this (24kB), or in this share of what
    MAML takes (33%)."""
    seed: int = 0
    """Of the weights, the people and the tasks."""
    workers: int = 0
    """Processes that share the tasks of a meta-batch; 0: one for each core."""
    tensorboard: bool = False
    """Write TensorBoard logs to OUT/tensorboard."""

    def __post_init__(self) -> None:
        for name in ("devices", "columns", "val_people", "test_people"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON has lists
        least = ("channels", "n_shot", "n_query", "inner_steps", "tasks", "meta_batch")
        for name in (*least, "epoch_tasks", "val_draws", "length", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"--{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}."
                )
        for name in ("alpha_0", "lr", "alpha_lr", "attention_lr", "attention_bias_lr", "pooled_lr"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"--{name.replace('_', '-')} must be positive, got {getattr(self, name)}."
                )
        check_shares(warm_up=self.warm_up, freeze_at=self.freeze_at, rotate=self.rotate)
        if not 0 <= self.ema < 1:
            raise ValueError(f"--ema must be in [0, 1), got {self.ema}: 0 turns it off.")
        if self.rotate and not self.triples:
            raise ValueError(
                "--rotate turns sensors of three axes, and --no-triples says that there are none: "
                "give --rotate 0."
            )
        if self.channels % 4:
            raise ValueError(f"--channels are four groups, got {self.channels}: take 24 or so.")
        if min(self.seed, self.workers, self.pooled_epochs) < 0:
            raise ValueError("--seed, --workers and --pooled-epochs must not be negative.")
        check_budget(self.memory_budget, self.method_row())

    def method_row(self) -> Method:
        """The method with what this run changes in it."""
        return dataclasses.replace(
            method(self.method),
            clip_ratio_fw=self.clip_ratio_fw,
            clip_ratio_bw=self.clip_ratio_bw,
        )

    def most_workers(self, count: int) -> int:
        """How many of so many processes are of use: no more than there are tasks in a batch."""
        return min(count, self.meta_batch)

    @property
    def updates(self) -> int:
        """Outer updates in all."""
        return -(-self.tasks // self.meta_batch)


NAMED: dict[str, SensorConfig] = {"har-conv1d": SensorConfig()}
"""Configurations by the name that `pmeta train NAME` takes."""
