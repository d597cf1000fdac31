"""Windows of a recording, as the network sees them: the same in training, in `pmeta adapt` and in
C. Needs no torch."""

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from pmeta.base.reading import converted
from pmeta.data.recordings.files import Recording, RecordingError

NO_LABEL = -1
MOST_RATE, MOST_ROWS = 100_000, 1_000_000


class Windows(NamedTuple):
    """Windows of one recording in the order of time."""

    x: np.ndarray  # (n, C, length) float32, scaled
    y: np.ndarray  # (n,) int64 indices of labels, or NO_LABEL
    start: np.ndarray  # (n,) int64: the first row of each, after resampling


@dataclass(frozen=True)
class Windowing:
    """How windows are made: stored with the model, and applied wherever it runs."""

    columns: tuple[str, ...]
    """The channels, in order."""
    labels: tuple[str, ...]
    """The classes, in the order of the outputs."""
    rate: float = 100.0
    """Rows a second that the network sees; a recording of another rate is resampled."""
    length: int = 64
    """Rows of a window."""
    stride: int = 32
    """Rows from one window to the next."""
    share: float = 0.75
    """A window has a label if at least this share of its rows does."""
    scale: tuple[float, ...] = ()
    """What each channel is multiplied by."""
    shift: tuple[float, ...] = ()
    """What is then added to it."""

    def __post_init__(self) -> None:
        if not 0 < self.rate <= MOST_RATE:
            raise ValueError(f"--rate must be positive, at most {MOST_RATE:,}, got {self.rate}.")
        for name in ("length", "stride"):
            if not 1 <= getattr(self, name) <= MOST_ROWS:
                raise ValueError(
                    f"--{name} must be from 1 to {MOST_ROWS:,}, got {getattr(self, name)}."
                )
        if not 0.5 < self.share <= 1:
            raise ValueError(
                f"--share of a window's rows must be in (0.5, 1], got {self.share}: at a half two "
                "labels could both have it."
            )
        if {len(self.scale), len(self.shift)} - {0, len(self.columns)}:
            raise ValueError(
                f"each of {len(self.columns)} columns has a scale and a shift, got "
                f"{len(self.scale)} and {len(self.shift)}."
            )

    def cut(self, recording: Recording) -> Windows:
        """The windows of a recording.

        Raises RecordingError where it is too short for one, or has a label that is unknown."""
        rows, labels = self._resampled(recording)
        starts = np.arange(0, len(rows) - self.length + 1, self.stride)
        if not len(starts):
            raise RecordingError(
                f"{recording.name}: a window has {self.length} rows at {self.rate:g} a second, the "
                f"recording has {len(rows)}: record for longer."
            )
        scaled = rows * np.array(self.scale, "f4") + np.array(self.shift, "f4")  # (m, C)
        at = starts[:, None] + np.arange(self.length)  # (n, length)
        x = np.ascontiguousarray(scaled[at].transpose(0, 2, 1), np.float32)
        y = np.full(len(starts), NO_LABEL) if labels is None else self._majority(labels[at])
        return Windows(x, y.astype(np.int64), starts)

    def _resampled(self, r: Recording) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows at `rate`, and their labels as indices.

        A row is the mean of as many as fall on one, then on a straight line between neighbours."""
        labels = None if r.labels is None else self._indices(r, r.labels)
        ratio = (r.rate or self.rate) / self.rate
        if abs(ratio - 1) < 1e-6:
            return r.values, labels
        k = max(1, round(ratio))
        sums = np.cumsum(np.vstack([np.zeros((1, r.values.shape[1])), r.values]), 0)
        means = (sums[k:] - sums[:-k]) / k  # (n - k + 1, C): of rows j .. j + k - 1
        places = np.arange(math.floor((len(means) - 1) / ratio + 1e-9) + 1) * ratio
        left = np.minimum(places.astype(np.int64), max(len(means) - 2, 0))
        part = (places - left)[:, None]
        right = np.minimum(left + 1, len(means) - 1)
        rows = (means[left] * (1 - part) + means[right] * part).astype(np.float32)
        nearest = np.minimum(np.floor(places + k / 2).astype(np.int64), len(r.values) - 1)
        return rows, None if labels is None else labels[nearest]

    def _indices(self, r: Recording, names: np.ndarray) -> np.ndarray:
        """Labels as indices; a row whose label is empty has none."""
        number = {name: i for i, name in enumerate(self.labels)} | {"": NO_LABEL}
        unknown = [name for name in np.unique(names).tolist() if name not in number]
        if unknown:
            row = int((names == unknown[0]).argmax())
            raise RecordingError(
                f"{r.place(row)}: the labels are {', '.join(self.labels)}, got "
                f"{unknown[0]!r}: rename or remove it."
            )
        return np.array([number[name] for name in names.tolist()])

    def _majority(self, labels: np.ndarray) -> np.ndarray:
        """(n, length) indices -> (n,)"""
        counts = (labels[..., None] == np.arange(len(self.labels))).sum(1)  # (n, labels)
        enough = counts.max(1) >= self.share * self.length
        return np.where(enough, counts.argmax(1), NO_LABEL)

    def as_facts(self) -> dict[str, Any]:
        """For the JSON of model.pmeta and of a run."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_facts(cls, facts: dict[str, Any], where: str = "what is known of windows") -> Self:
        """What `as_facts` gave, read from `where`."""
        return converted(where, facts, cls)
