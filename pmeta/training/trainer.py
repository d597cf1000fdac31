"""The one loop of all trainings: resume, update, validate, keep the best model, save."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

from torch import Tensor

from pmeta.base.errors import DivergedError
from pmeta.network.layers import Network
from pmeta.training.figures import COSTS, Figures
from pmeta.training.log import Log
from pmeta.training.run_folder import Run, write_json
from pmeta.training.settings import RunSettings
from pmeta.training.upgrade import upgraded_progress
from pmeta.training.workers import Group

CHECKPOINT_SECONDS = 30.0


class Training(Protocol):
    """What the trainer drives. Its unit is one update of a group of workers: a line search talks to
    all of them, and pre-training shares the chunks of a batch, so that a task is too small a
    unit."""

    title: str
    """What is trained, for the progress bar."""
    unit: str
    """What an update uses up, such as tasks."""
    each: int
    """So many of them in an update."""
    total: int
    """And in all."""
    updates: int
    """In all."""
    every: int
    """Updates between two validations; the last update is followed by one too."""
    sums: tuple[str, ...]
    """What `step` gives."""
    figures: Figures
    net: Network
    samples: int
    """Of a support set; 0: there is none."""
    sample: Sequence[int]
    """The shape of one."""
    kept_words: int
    """Of the samples, which a step keeps besides what the network does."""

    @property
    def done(self) -> int:
        """Updates so far."""

    @property
    def eligible(self) -> bool:
        """Whether the model may be the best one: its layers are chosen."""

    @property
    def astray(self) -> bool:
        """Whether the last update was a bad one, so that its state is not kept."""

    def counts(self, done: int) -> dict[str, int]:
        """How far the training is after so many updates, the first keys of a record."""

    def step(self, group: Group) -> dict[str, float]:
        """One update; sums over all workers, by the names of `sums`."""

    def validate(self, group: Group, sums: dict[str, float]) -> dict[str, Any]:
        """Figures of the updates since the last validation, whose sums these are, and of unseen
        tasks."""

    def status(self, sums: dict[str, float]) -> list[str]:
        """What is shown between two validations."""

    def about(self) -> dict[str, Any]:
        """What the best checkpoint says of its network."""

    def best(self) -> dict[str, Tensor]:
        """The model, to be kept if it is the best one."""

    def state(self) -> dict[str, Tensor]:
        """All that a resumed training needs."""

    def check(self, state: dict[str, Tensor]) -> None:
        """Raise ValueError unless `state` is one of this training."""

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up the training where `state` was taken."""


@dataclass
class Progress:
    """What a checkpoint says of a training, besides its tensors."""

    best: dict[str, Any] = field(default_factory=dict)
    since_epoch: dict[str, float] = field(default_factory=dict)
    """Sums of the updates since the last validation."""
    skipped: int = 0
    """Tasks left out in all."""
    lines: int = 0
    """Of metrics.jsonl."""

    def add(self, sums: dict[str, float]) -> None:
        """Take note of an update."""
        for key, value in sums.items():
            self.since_epoch[key] += value
        self.skipped += int(sums.get("skipped", 0))


def train_in_folder(
    group: Group, config: RunSettings, make: Callable[[Run, Any], Training]
) -> dict[str, Any]:
    """Train, or go on with, the run in `config.out`; `make` gives what is trained."""
    with Run(config.out) as run:
        if group.rank == 0:
            run.start(config)
        training = make(run, config)
        if group.rank == 0:
            describe(run, config, training)
        return train(group, run, training, config.tensorboard)


def describe(run: Run, config: RunSettings, training: Training) -> None:
    """Keep in RUN/network.json how the network adapts, and in RUN/figures.json what is measured and
    what the run is in words, for what reads a run without knowing its kind."""
    row, sample = config.method_row(), training.sample
    network = {
        "layers": [layer.name for layer in training.net.layers],
        "ops": [asdict(op) for op in training.net.ops],
        "samples": training.samples,
        "kept_words": training.kept_words,
        "method": asdict(row) if row else None,
    }
    words = {
        "title": training.title,
        "changes": config.changes,
        "setup": config.setup(sample),
        "total": training.counts(training.updates)[training.figures.count],
        "given": [f.name for f in fields(config) if getattr(config, f.name) != f.default],
        "paper": config.paper(sample),
    }
    write_json(run.path / "network.json", network)
    write_json(run.path / "figures.json", {**words, **training.figures.as_json()})


def train(group: Group, run: Run, training: Training, tensorboard: bool = False) -> dict[str, Any]:
    """Train, or go on with, a run; returns what is known of its best model.

    Every process of the group holds the same state and makes the same updates; process 0 alone
    writes and shows."""
    first = group.rank == 0
    progress = resume(group, run, training)
    saved_at = time.monotonic()
    with Log(run, training, shown=first, tensorboard=tensorboard) as log:
        while training.done < training.updates:
            try:
                progress.add(training.step(group))
            except DivergedError as error:
                kept = f"The last good checkpoint is kept in {run.path}."
                raise DivergedError(f"{error} {kept}") from error
            log.update(progress.since_epoch, progress.best, progress.skipped)
            validated = training.done % training.every == 0 or training.done == training.updates
            if validated:
                record = validate(group, training, progress, log.seconds())
                if first:
                    keep(run, training, progress, record)
                    log.show(record, progress.skipped)
            due = time.monotonic() - saved_at >= CHECKPOINT_SECONDS
            astray = training.astray and training.done < training.updates
            if first and (validated or due) and not astray:
                save(run, training, progress)
                saved_at = time.monotonic()
        if first:
            log.end(progress.skipped)
    return progress.best


def resume(group: Group, run: Run, training: Training) -> Progress:
    """The state of the last whole checkpoint, of which the training takes its part."""
    progress = Progress(since_epoch=dict.fromkeys(training.sums, 0))
    found = group.from_first(lambda: run.newest(training.check))
    if found is not None:
        training.load(found.tensors)
        told = {**upgraded_progress(found.info), "lines": run.logged_lines(found.info)}
        progress = Progress(**{f.name: told[f.name] for f in fields(Progress)})
    if group.rank == 0:
        run.rewind_metrics(progress.lines)
        if found is not None:  # a kill may have come between the checkpoint and this
            write_json(run.path / "last.json", found.info)
    return progress


def validate(
    group: Group, training: Training, progress: Progress, seconds: dict[str, float]
) -> dict[str, Any]:
    """The record of a validation; the model is the best one if it is eligible and no other was
    better."""
    found = training.validate(group, progress.since_epoch)
    progress.since_epoch = dict.fromkeys(training.sums, 0)
    record = {**training.counts(training.done), **found, "skipped": progress.skipped, **seconds}
    if training.eligible and training.figures.is_better(record, progress.best):
        of_validation = {
            key: value for key, value in found.items() if key.startswith("val_") or key in COSTS
        }
        progress.best = {**training.about(), **training.counts(training.done), **of_validation}
    return record


def save(run: Run, training: Training, progress: Progress) -> None:
    """Write the state of the training."""
    info = {**training.counts(training.done), **vars(progress)}
    run.save("last", training.state(), info)


def keep(run: Run, training: Training, progress: Progress, record: dict[str, Any]) -> None:
    """Write what a validation showed, and the model if it is now the best."""
    counts = training.counts(training.done)
    if counts.items() <= progress.best.items():
        run.save("best", training.best(), progress.best)
    run.log(record)
    progress.lines += 1
