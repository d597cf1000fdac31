"""The best model of a run on recordings, and people never seen."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pmeta.data.recordings.windows import Windowing
from pmeta.kinds.recordings.config import SensorConfig
from pmeta.kinds.recordings.evaluate import PersonResult, person_result, summarise
from pmeta.kinds.recordings.sets import WindowSet, by_split, read_all, window_set
from pmeta.kinds.recordings.train import build
from pmeta.method.learned import Meta
from pmeta.network.layers import Network
from pmeta.training.budget import Sample
from pmeta.training.restored import Asked, Restored, Unseen, check_seed
from pmeta.training.run_folder import Checkpoint, Run, restored
from pmeta.training.workers import Group

DRAWS, CALIBRATION_DRAWS = 5, 4
"""Tasks of each person with each device. Four are two in each half of a calibration."""
SHOTS = (1, 2, 5, 10)
"""Windows of each activity for which a temperature is fitted, besides those of the training."""


class Trained(NamedTuple):
    """A run's best model, and how its windows are made."""

    config: SensorConfig
    windowing: Windowing
    net: Network
    meta: Meta
    best: Checkpoint


def load(path: str) -> Trained:
    """The best model of a run folder."""
    run = Run(path)
    config, best = run.settings(SensorConfig), run.best()
    windowing = Windowing.from_facts(run.json("windows"), f"{run.path / 'windows.json'}")
    net, meta = build(config, windowing)
    return Trained(config, windowing, net, restored(meta, best.tensors), best)


def restore_run(group: Group, asked: Asked) -> Restored:
    """The best model of a run, and tasks of people of its validation or its test."""
    trained = load(asked.run)
    w, config = trained.windowing, trained.config
    meta = trained.meta.without_steps_below(asked.least_step)
    return Restored(
        config,
        trained.net,
        meta,
        Sample((len(w.columns), w.length)),
        trained.best.info,
        lambda group: unseen(group, trained._replace(meta=meta), asked),
        summarise,
        (config.memory_budget, "arena"),
        w.scale,
        w.shift,
        {
            "reads": "recordings",
            "windows": w.as_facts(),
            "classes": list(w.labels),
            "fixed_classes": True,
        },
        config.n_shot,
        tuple(sorted({*SHOTS, config.n_shot})),
        CALIBRATION_DRAWS,
    )


def unseen(group: Group, trained: Trained, asked: Asked) -> Unseen:
    """Draws of people, one person after the other: half of the numbers, every second one, has all
    of them."""
    if asked.split == "train":
        raise ValueError("people of the training are not unseen: give --split val or test.")
    check_seed(asked, trained.config.seed)
    windows = group.from_first(lambda: open_people(trained, asked.data, asked.split))
    draws = asked.tasks or DRAWS
    shots = trained.config.n_shot if asked.n_shot is None else asked.n_shot

    def results(numbers: Sequence[int]) -> list[PersonResult]:
        return [
            person_result(trained, windows, *divmod(i, draws), asked.seed, shots, asked.batch)
            for i in numbers
        ]

    return Unseen(len(windows.groups) * draws, results)


def open_people(trained: Trained, data: str, split: str) -> WindowSet:
    """The windows of the people of a split; other data than the run's are all unseen."""
    config = trained.config
    recordings = read_all(Path(data or config.data), trained.windowing.columns)
    if data in ("", config.data):
        own = by_split(recordings, config.val_people, config.test_people, config.seed)
        if not own[split]:
            raise ValueError(
                f"the run has no people for {split}: name some with --test-people when it is "
                "trained, or give --data or --split val."
            )
        recordings = own[split]
    return window_set(recordings, trained.windowing, f"{split} of {data or config.data}")
