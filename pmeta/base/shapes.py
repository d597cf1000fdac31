"""What stands in the JSON files of a run, as far as somebody reads it.

The settings in a config.json are the dataclass of its kind, and a windows.json is a `Windowing`."""

from typing import Any, NotRequired, TypedDict

from pmeta.base.reading import Above0, Count, Finite, Number, Size


class Config(TypedDict):
    """Of every config.json, also of older releases; the settings stand beside it."""

    versions: dict[str, Any]
    kind: NotRequired[str]
    settings_version: NotRequired[Count]
    seed: NotRequired[Count]
    model: NotRequired[str]
    memory_budget: NotRequired[str]
    budget_accounting: NotRequired[str]


class Info(TypedDict, total=False):
    """What a checkpoint says of itself, and best.json and last.json once more."""

    tasks: Count
    epoch: Count
    input: list[Size]
    head: list[str]
    best: dict[str, Any]
    since_epoch: dict[str, Number]
    sums: dict[str, Number]
    skipped: Count
    lines: Count
    metrics_length: Count


Metrics = dict[str, Finite | bool | str | list[Finite | list[Finite]] | None]
"""A line of metrics.jsonl: the figures of a validation by name."""


class Bin(TypedDict):
    """Of a reliability diagram."""

    count: Count
    confidence: Number
    accuracy: Number


class CalibrationOfShots(TypedDict):
    """With one number of samples of each class."""

    n_shot: Count
    temperature: Above0
    ece: Number
    ece_before: Number
    bins: list[Bin]


class Calibration(TypedDict):
    """calibration.json."""

    tasks: Count
    best: Count
    temperatures: list[Above0]
    shots: list[CalibrationOfShots]


class Failed(TypedDict):
    """failed.json."""

    error: str
