"""The best model of a run and unseen tasks, as every command that reads a run sees them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal

import tyro

from pmeta.base.progress import progress
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta
from pmeta.method.meta_gradient import AnyTask
from pmeta.network.layers import Network
from pmeta.training.budget import Sample
from pmeta.training.results import CostSummary
from pmeta.training.settings import Settings, check_counts, check_processes
from pmeta.training.workers import Group


@dataclass(frozen=True)
class Asked:
    """Adapt the best model of a run to unseen tasks: how well, peak memory, MACs, update ratios."""

    run: tyro.conf.Positional[str]
    """Run folder, or a model that `pmeta zoo` lists."""
    data: str = ""
    """Where to draw tasks from; by default the data of the run."""
    _: KW_ONLY
    split: Literal["train", "val", "test"] = "test"
    """Which classes, or which people."""
    tasks: int | None = None
    """Number of tasks; by default the paper's, 5000 for pictures and 400 for policies; of
    recordings those of each person with each device, by default 5."""
    batch: int | None = 1
    """Samples that adaptation takes at a time (gradient accumulation); None: the whole support
    set."""
    n_way: int | None = None
    """Classes in a task, by default as in training; a learned head tells at most as many apart as
    it has outputs, a head from prototypes any number."""
    n_shot: int | None = None
    """Support samples of each class; by default as in training."""
    n_query: int | None = None
    """Query samples of each class; by default as in training."""
    least_step: float | None = None
    """Leave a layer alone in a step whose step size is below this, as `pmeta export --least-step`
    does; None: update all that the run does."""
    model: str = ""
    """Of a run with a network of your own: FILE.py:FUNCTION, which makes it."""
    seed: int = 1
    """Of the tasks; where the best model was chosen another one than the training's."""
    render: str = ""
    """Of a policy: write a picture of episodes before and after adaptation here."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto: on the GPU if there is one."""
    workers: int = 0
    """Processes; 0: one for each core."""
    json: bool = False
    """Print one JSON object instead of tables."""

    def __post_init__(self) -> None:
        check_counts(self, *(n for n in ("tasks", "batch") if getattr(self, n) is not None))
        check_processes(self)


def check_seed(asked: Asked, trained: int) -> None:
    """Raise ValueError where the tasks would be those that chose the model."""
    if asked.split == "val" and asked.seed == trained:
        raise ValueError(
            f"the model was chosen on the validation tasks of seed {trained}: give another --seed."
        )


@dataclass(frozen=True)
class Unseen:
    """Tasks by number, none of which the model has seen."""

    tasks: int
    """How many."""
    results: Callable[[Sequence[int]], list[Any]]
    """What adapting to the tasks of these numbers gives."""
    at_once: int = 1
    """So many tasks are adapted to together."""
    task: Callable[[int], AnyTask] | None = None
    """The task of a number, where tasks are sets of samples."""


@dataclass(frozen=True)
class Restored:
    """The best model of a run, for whatever command reads it."""

    config: Settings
    net: Network
    meta: Meta
    sample: Sample
    """What the device reads."""
    info: dict[str, Any]
    """What the checkpoint says of itself."""
    unseen: Callable[[Group], Unseen]
    summarise: Callable[[list[Any]], CostSummary]
    budget: tuple[str, str] = ("", "arena")
    """Of the training, and what it counts."""
    scale: Sequence[float] | None = None
    shift: Sequence[float] | None = None
    """Of each channel of a sample."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the file for the device says of classes and samples."""
    n_shot: int = 0
    """Support samples of a class in training; 0: there are no classes."""
    shots: tuple[int, ...] = ()
    """Support samples of a class for which a temperature is fitted; none: there are no
    classes."""
    calibration_tasks: int = 0
    """Of each of these numbers."""

    def without_small_steps(self, least: float | None) -> "Restored":
        """The same, where step sizes below a limit update nothing."""
        return replace(self, meta=self.meta.without_steps_below(least))

    def loop(self, batch: int | None = 1) -> InnerLoop:
        """Adaptation as on a device, so many samples at a time."""
        return InnerLoop(self.net, self.config.method_row(), batch=batch)


Restore = Callable[[Group, Asked], Restored]


def evaluate(group: Group, restore: Restore, asked: Asked) -> tuple[list[str], CostSummary]:
    """The names of the layers, and the summary over all tasks; each process takes its share."""
    restored = restore(group, asked)
    results = all_results(group, restored.unseen(group), "adapting")
    return [layer.name for layer in restored.net.layers], restored.summarise(results)


def all_results(group: Group, unseen: Unseen, doing: str) -> list[Any]:
    """What adapting to all tasks gives, in order."""
    numbers = group.share(range(unseen.tasks))
    chunks = math.ceil(len(numbers) / unseen.at_once)
    found: list[Any] = []
    for i in progress(range(chunks), doing, shown=group.rank == 0):
        found += unseen.results(numbers[i * unseen.at_once : (i + 1) * unseen.at_once])
    return group.gather(found)
