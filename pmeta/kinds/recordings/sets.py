"""All windows of a folder of recordings, and whose they are. Needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pmeta.data.recordings.files import Recording, RecordingError, find_recordings, read_recordings
from pmeta.data.recordings.windows import NO_LABEL, Windowing
from pmeta.data.tasks import random_order


@dataclass(frozen=True)
class WindowSet:
    """Windows with labels, of some people. A group is a person with one device."""

    x: np.ndarray  # (N, C, length) float32, scaled
    y: np.ndarray  # (N,) int64
    group: np.ndarray  # (N,) int64, index of `groups`
    recording: np.ndarray  # (N,) int64, a number for each file
    start: np.ndarray  # (N,) int64, rows of the recording before the window
    groups: list[str]  # PERSON or PERSON/DEVICE
    windowing: Windowing
    name: str  # for messages

    @property
    def shape(self) -> tuple[int, int]:
        """(C, length) of a window."""
        return self.x.shape[1], self.x.shape[2]


def person(group: str) -> str:
    """The first folder: what is never shared between splits.

    >>> person("s01/watch")
    's01'
    """
    return group.split("/")[0]


def read_all(root: Path, columns: Sequence[str] = ()) -> list[Recording]:
    """Every recording of a folder PERSON/[DEVICE/]RECORDING.csv, with the same columns."""
    recordings = [r for path in find_recordings(root) for r in read_recordings(path, root, columns)]
    for r in recordings:
        if not r.group:
            raise RecordingError(
                f"{r.name}: a recording lies in a folder named after its person, or its own name "
                f"begins with theirs, as in {root}/anna/{Path(r.name).name} or "
                f"{root}/anna_{Path(r.name).name}: move or rename it."
            )
        if r.labels is None:
            raise RecordingError(f"{r.name} line 1: the column 'label' is missing: add it.")
        if set(r.columns) != set(recordings[0].columns):
            raise RecordingError(
                f"{r.name} line 1: all recordings have the same columns, this one has "
                f"{', '.join(r.columns)} and {recordings[0].name} "
                f"{', '.join(recordings[0].columns)}: "
                "rename them, or give --columns."
            )
    return [
        r._replace(
            columns=recordings[0].columns,
            values=r.values[:, [r.columns.index(c) for c in recordings[0].columns]],
        )
        for r in recordings
    ]


def split_people(
    people: Sequence[str], val: Sequence[str], test: Sequence[str], seed: int
) -> dict[str, list[str]]:
    """Who trains, validates and tests: those named, or a fifth of the people, drawn by `seed`, to
    validate.

    >>> split_people(["a", "b", "c", "d"], val=["b"], test=["d"], seed=0)
    {'train': ['a', 'c'], 'val': ['b'], 'test': ['d']}
    """
    unknown = sorted({*val, *test} - {*people})
    if unknown:
        raise ValueError(
            f"--val-people and --test-people name folders of the data, which has no {unknown[0]!r}:"
            f" choose from {', '.join(people)}."
        )
    rest = [p for p in sorted(people) if p not in test]
    if not val:
        random = np.random.Philox(key=np.array([seed, 0], dtype=np.uint64))
        order = random_order(random, len(rest))
        val = [rest[i] for i in order[: max(1, len(rest) // 5)]]
    train = [p for p in rest if p not in val]
    if not train or set(val) & set(test):
        raise ValueError(
            "training, validation and test need people of their own, got "
            f"{len(people)} people, {len(val)} to validate and {len(test)} to test: record more "
            "people, or name others."
        )
    return {"train": train, "val": sorted(val), "test": sorted(test)}


def by_split(
    recordings: Sequence[Recording], val: Sequence[str], test: Sequence[str], seed: int
) -> dict[str, list[Recording]]:
    """The recordings of those who train, validate and test."""
    people = split_people(sorted({person(r.group) for r in recordings}), val, test, seed)
    return {
        split: [r for r in recordings if person(r.group) in names]
        for split, names in people.items()
    }


def fitted(windowing: Windowing, recordings: Sequence[Recording], triples: bool) -> Windowing:
    """The windowing with a scale that gives channels a mean square of 1 over these recordings.

    With `triples` three channels in a row are the axes of one sensor: they share a scale and keep
    their zero, so that a turned sensor gives turned windows."""
    rows = np.concatenate([r.values for r in recordings]).astype(np.float64)
    if triples:
        if rows.shape[1] % 3:
            raise ValueError(
                f"--triples: sensors have three axes each, got {rows.shape[1]} columns: name them "
                "with --columns, or leave it out."
            )
        power = (rows**2).mean(0).reshape(-1, 3).mean(1).repeat(3)
        mean = np.zeros(rows.shape[1])
    else:
        mean = rows.mean(0)
        power = rows.var(0)
    scale = 1 / np.sqrt(np.maximum(power, 1e-12))
    return replace(windowing, scale=_plain(scale), shift=_plain(-mean * scale))


def _plain(numbers: np.ndarray) -> tuple[float, ...]:
    return tuple(float(n) for n in numbers.astype(np.float32))


def window_set(recordings: Sequence[Recording], windowing: Windowing, name: str) -> WindowSet:
    """The windows of recordings that have a label."""
    groups = sorted({r.group for r in recordings})
    parts = []
    for i, r in enumerate(recordings):
        cut = windowing.cut(r)
        keep = cut.y != NO_LABEL
        own = np.full(int(keep.sum()), groups.index(r.group)), np.full(int(keep.sum()), i)
        parts.append((cut.x[keep], cut.y[keep], *own, cut.start[keep]))
    if not sum(len(y) for _, y, *_ in parts):
        raise ValueError(f"{name} has no window with a label: lower --length or --share.")
    x, y, group, recording, start = (np.concatenate(p) for p in zip(*parts, strict=True))
    return WindowSet(x, y, group, recording, start, groups, windowing, name)
