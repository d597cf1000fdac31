"""How well a run does on people never seen: before and after adaptation, device by device."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pmeta.base.progress import progress
from pmeta.method.inner import InnerLoop
from pmeta.sensors.evaluate import scored
from pmeta.sensors.restore import Trained, load
from pmeta.sensors.sets import WindowSet, by_split, read_all, window_set
from pmeta.sensors.tasks import personal_task
from pmeta.training.workers import Group


@dataclass(frozen=True)
class DeviceScore:
    """Balanced accuracy in percent: the mean over people, and CI95 over people."""

    people: int
    before: float
    before_ci95: float
    after: float
    after_ci95: float
    gain: float
    gain_ci95: float


def evaluate(
    group: Group, run: str, data: str, split: str, draws: int, n_shot: int | None, batch: int | None
) -> dict[str, DeviceScore]:
    """Adapt the best model of a run to people of its validation or test, by device."""
    trained = load(run)
    windows = group.from_first(lambda: open_people(trained, data, split))
    loop = InnerLoop(trained.net, trained.config.method_row(), batch=batch)
    meta = replace(trained.meta, mask=trained.meta.updates())
    shots = trained.config.n_shot if n_shot is None else n_shot
    numbers = group.share(range(len(windows.groups) * draws))
    found = []
    for i in progress(numbers, "adapting", shown=group.rank == 0):
        draw, who = divmod(i, len(windows.groups))
        task = personal_task(windows, who, trained.config.seed + 1, draw, shots)
        w = loop.adapt(meta, (task.support_x, task.support_y)).w
        found.append((who, scored(loop.net, meta.w, task), scored(loop.net, w, task)))
    return by_device(windows.groups, group.gather(found))


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


def by_device(groups: list[str], found: list[tuple[int, float, float]]) -> dict[str, DeviceScore]:
    """Scores of draws (group, before, after) as means over people, device by device.

    >>> score = by_device(["a/watch", "b/watch"], [(0, 0.5, 0.9), (1, 0.7, 0.9), (0, 0.5, 0.9)])
    >>> score["watch"].before, score["watch"].after, score["watch"].people
    (60.0, 90.0, 2)
    """
    scores: dict[str, list[np.ndarray]] = {}
    for i, name in enumerate(groups):
        own = np.array([(before, after) for who, before, after in found if who == i])
        device = name.split("/", 1)[1] if "/" in name else "all"
        scores.setdefault(device, []).append(own.mean(0))
    return {device: _summary(np.array(rows)) for device, rows in scores.items()}


def _summary(rows: np.ndarray) -> DeviceScore:
    """(people, 2) shares -> percent."""
    columns = np.column_stack([rows, rows[:, 1] - rows[:, 0]])  # before, after, gain
    spread = columns.std(0, ddof=1) if len(rows) > 1 else np.full(3, np.nan)
    mean, ci95 = 100 * columns.mean(0), 196 * spread / len(rows) ** 0.5
    numbers = [round(float(n), 9) for pair in zip(mean, ci95, strict=True) for n in pair]
    return DeviceScore(len(rows), *numbers)
