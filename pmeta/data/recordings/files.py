"""Recordings of sensors: rows of numbers in time, from .csv, .npz and .npy files. Needs no
torch."""

import csv
import math
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

LABEL = "label"
TIMES = {"time": 1.0, "timestamp": 1e-3}
"""Names of a column of time, and the seconds that one unit of it is."""
MAX_GAP = 0.5
"""Seconds without a row that a recording may have: a window must not reach over a longer gap."""
ENDINGS = (".csv", ".npz", ".npy")
MAX_BYTES = 2**30
"""A larger file is no recording to learn from: it is refused, not read whole."""


LARGEST = np.float64(np.finfo(np.float32).max)
"""Values are kept as float32: what is larger would be infinite."""


class RecordingError(ValueError):
    """A file that is no recording, with its name and line."""


class Recording(NamedTuple):
    """Rows of numbers in time."""

    name: str  # of the file, for messages
    group: str  # whose it is: the folders above the file
    columns: tuple[str, ...]  # of the values
    values: np.ndarray  # (n, C) float32
    rate: float | None  # rows a second; None: the file does not say
    labels: np.ndarray | None  # (n,) strings; None: the file has none
    lines: Sequence[int] = ()  # where each row is in a .csv; none: arrays have rows, not lines

    def place(self, row: int) -> str:
        """Where a row is, for messages."""
        return f"{self.name} line {self.lines[row]}" if self.lines else f"{self.name} row {row}"


def find_recordings(root: Path) -> list[Path]:
    """All recordings below a folder, sorted; a file is itself.

    Raises RecordingError where there are none."""
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise RecordingError(f"no recordings at {root}: give a folder of .csv files, or one file.")
    inside = (path.relative_to(root).parts for path in root.rglob("*"))
    paths = [root.joinpath(*parts) for parts in sorted(inside) if _is_recording(parts)]
    if not paths:
        raise RecordingError(
            f"a folder of recordings holds {', '.join(ENDINGS)} files in folders named after "
            f"people, {root} has none: give another folder."
        )
    return paths


def _is_recording(parts: Sequence[str]) -> bool:
    return parts[-1].lower().endswith(ENDINGS) and not any(part.startswith(".") for part in parts)


def read_recordings(path: Path, root: Path, columns: Sequence[str] = ()) -> list[Recording]:
    """Those of one file; `columns` says which columns are wanted, in this order (none: all
    numbers).

    A .csv has a header line; the column `label` names the activity of each row, `time` (seconds)
    or `timestamp` (milliseconds) its moment, all others are numbers. A .npz has `x` (n, C) and may
    have `y` (n,), `time` (n,), `columns` (C,) and `group` (n,), whose every run of rows with the
    same name is a recording of its own; a .npy is `x` alone."""
    if path.stat().st_size > MAX_BYTES:
        raise RecordingError(
            f"{path} has {path.stat().st_size:,} bytes, a recording has at most {MAX_BYTES:,}: "
            "cut it into several files."
        )
    recordings = [_read_csv(path)] if path.suffix.lower() == ".csv" else _read_arrays(path)
    recordings = [r._replace(group=r.group or group_of(path, root)) for r in recordings]
    return [_with_columns(r, columns) for r in recordings] if columns else recordings


def group_of(path: Path, root: Path) -> str:
    """Whose a recording is: the folders above it; of a file that lies in no folder its name up to
    the last `_`.

    >>> group_of(Path("data/anna/watch/1.csv"), Path("data"))
    'anna/watch'
    >>> group_of(Path("data/anna_watch_1.csv"), Path("data"))
    'anna/watch'
    """
    if path == root:
        return ""
    return "/".join(path.relative_to(root).parts[:-1] or path.stem.split("_")[:-1])


def _with_columns(recording: Recording, columns: Sequence[str]) -> Recording:
    missing = [name for name in columns if name not in recording.columns]
    if missing:
        raise RecordingError(
            f"{recording.name} line 1: the column {missing[0]!r} is missing, the file has "
            f"{', '.join(map(repr, recording.columns))}: rename a column of the file or add one."
        )
    order = [recording.columns.index(name) for name in columns]
    return recording._replace(columns=tuple(columns), values=recording.values[:, order])


def _read_csv(path: Path) -> Recording:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return _rows(path, csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise RecordingError(
            f"{path} is no CSV file of text ({error}): save it as UTF-8."
        ) from None


def _rows(path: Path, rows: Iterator[list[str]]) -> Recording:
    header = [name.strip() for name in next(rows, [])]
    numbers = [i for i, name in enumerate(header) if name != LABEL and name not in TIMES]
    _check_header(path, header, numbers)
    time = next((i for i, name in enumerate(header) if name in TIMES), None)
    label = header.index(LABEL) if LABEL in header else None
    wanted = [*numbers, *([] if time is None else [time])]
    values, labels, lines = [], [], []
    for line, row in enumerate(rows, start=2):
        if not row:
            continue  # an empty line
        lines.append(line)
        if len(row) != len(header):
            raise RecordingError(
                f"{path} line {line}: a row has {len(header)} fields as the header does, this one "
                f"has {len(row)}: mend or remove it."
            )
        try:
            values.append([float(row[i]) for i in wanted])
        except ValueError:
            values.append([_number(path, line, header[i], row[i]) for i in wanted])
        if label is not None:
            labels.append(row[label].strip())
    if not values:
        raise RecordingError(f"{path} has no rows below its header: remove the file.")
    table = np.array(values, np.float64)  # (n, C) or (n, C + 1)
    for row, column in np.argwhere(~(np.abs(table) <= LARGEST))[:1].tolist():
        _number(path, lines[row], header[wanted[column]], f"{table[row, column]:g}")
    seconds = None if time is None else table[:, -1] * TIMES[header[time]]
    return Recording(
        str(path),
        "",
        tuple(header[i] for i in numbers),
        np.ascontiguousarray(table[:, : len(numbers)], np.float32),
        None if seconds is None else rate_of(path, seconds, [f"line {n}" for n in lines]),
        np.array(labels) if label is not None else None,
        lines,
    )


def _check_header(path: Path, header: list[str], numbers: list[int]) -> None:
    if not numbers or any(re.fullmatch(r"[-+.\d]*", name) for name in header):
        raise RecordingError(
            f"{path} line 1: a recording begins with the names of its columns, such as "
            f"x,y,z,time,label, got {','.join(header)[:80]!r}: add such a line."
        )
    twice = {name for name in header if header.count(name) > 1}
    if twice or sum(name in TIMES for name in header) > 1:
        raise RecordingError(
            f"{path} line 1: each column has a name of its own and one is the time, got "
            f"{','.join(header)[:80]!r}: rename them."
        )


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= LARGEST:
        raise RecordingError(
            f"{path} line {line}: {column} must be a finite number, got {text[:40]!r} (the largest "
            f"is {LARGEST:.2g}): mend or remove the row."
        )
    return value


def rate_of(path: Path, seconds: np.ndarray, places: Sequence[str]) -> float:
    """Rows a second, of a recording without a gap; `places` says where in the file each row is.

    Systems hand out rows in bursts with one time, so the rate is that of the whole recording."""
    steps = np.diff(seconds)
    for wrong, why in ((steps < 0, "time goes back by"), (steps > MAX_GAP, "a gap in time of")):
        if wrong.any():
            at = int(wrong.argmax())
            raise RecordingError(
                f"{path} {places[at + 1]}: {why} {abs(steps[at]):.3g} s, a recording "
                f"goes on without gaps of over {MAX_GAP} s: cut it there into two files."
            )
    if len(seconds) < 2 or seconds[-1] <= seconds[0]:
        raise RecordingError(
            f"{path} has no two rows at different times, so its rate is unknown: remove the file."
        )
    return float((len(seconds) - 1) / (seconds[-1] - seconds[0]))


def _read_arrays(path: Path) -> list[Recording]:
    arrays = _checked_arrays(path)
    x, n = arrays["x"], len(arrays["x"])
    columns = tuple(map(str, arrays.get("columns", np.arange(x.shape[1]))))
    if len(columns) != x.shape[1]:
        raise RecordingError(f"{path}: columns names the {x.shape[1]} columns of x, got {columns}.")
    groups = arrays.get("group", np.array([""] * n)).astype(str)
    starts = [0, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist()]
    recordings = []
    for first, last in zip(starts, [*starts[1:], n], strict=True):
        rows = slice(first, last)
        rate = labels = None
        if "time" in arrays:
            places = [f"row {i}" for i in range(first, last)]
            rate = rate_of(path, arrays["time"][rows].astype(np.float64), places)
        if "y" in arrays:
            labels = arrays["y"][rows].astype(str)
        name = str(path) if len(starts) == 1 else f"{path} rows {first} to {last - 1}"
        values = x[rows].astype(np.float32)
        recordings.append(Recording(name, str(groups[first]), columns, values, rate, labels))
    return recordings


def _checked_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = {"x": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise RecordingError(f"{path} is no .npy or .npz of plain arrays ({error}).") from None
    x = arrays.get("x")
    if x is None or x.ndim != 2 or x.dtype.kind not in "fiu" or 0 in x.shape:
        got = "nothing" if x is None else f"{x.dtype} of shape {x.shape}"
        raise RecordingError(f"{path}: x has the rows of a recording, (n, C) numbers, got {got}.")
    _check_numbers(path, "x", x)
    for name in ("y", "time", "group"):
        if name in arrays and arrays[name].shape != (len(x),):
            raise RecordingError(
                f"{path}: {name} has one entry a row of x, {len(x)}, got {arrays[name].shape}."
            )
    if "time" in arrays:
        _check_numbers(path, "time", arrays["time"])
    return arrays


def _check_numbers(path: Path, name: str, values: np.ndarray) -> None:
    """Raise RecordingError unless all are numbers that are finite in float32."""
    if values.dtype.kind not in "fiu":
        raise RecordingError(
            f"{path}: {name} holds numbers (of time: seconds), got {values.dtype}: convert it."
        )
    bad = ~(np.abs(values) <= LARGEST)
    if bad.any():
        at = tuple(np.argwhere(bad)[0].tolist())
        raise RecordingError(
            f"{path} row {at[0]}: {name} must be finite, got {values[at]} (the largest number is "
            f"{LARGEST:.2g}): mend or remove the row."
        )
