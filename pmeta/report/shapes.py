"""What stands in the JSON files that a report reads, and a check that it does."""

from typing import Annotated, Any, NotRequired, TypedDict

import msgspec

MOST = 10**15
"""No figure of a run is larger, and larger ones cannot be drawn."""
Number = Annotated[float, msgspec.Meta(ge=-MOST, le=MOST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class Start(TypedDict):
    """What every config.json has."""

    kind: str
    method: str
    inner_steps: Count
    versions: dict[str, Any]


class Best(TypedDict):
    """best.json."""

    tasks: Count


class BestOfSamples(Best):
    """Of a network that takes pictures or other samples; its shape."""

    input: list[Count]


class Costs(TypedDict):
    """What an adaptation takes, mean over tasks."""

    tasks: Count
    memory_mb: Number
    exact_memory_mb: NotRequired[Number | None]
    gmac: Number


class Validation(Costs):
    """A line of metrics.jsonl."""

    val_ci95: Number | None
    alpha: list[list[Number]]


class ValidationOfPictures(Validation):
    val_accuracy: Number


class ValidationOfPolicy(Validation):
    val_after: Number


class Evaluation(Costs):
    """What `pmeta evaluate --json` prints."""

    data: NotRequired[str | None]
    split: NotRequired[str]
    batch: NotRequired[Count | None]
    update_ratios: NotRequired[list[list[Number]]]
    ci95: NotRequired[Number | None]
    after_ci95: NotRequired[Number | None]


class EvaluationOfPictures(Evaluation):
    accuracy: Number


class EvaluationOfPolicy(Evaluation):
    after: Number


class EvaluationOfQuickstart(EvaluationOfPictures):
    method: str


class Bin(TypedDict):
    """Of a reliability diagram."""

    count: Count
    confidence: Number
    accuracy: Number


class CalibrationOfShots(TypedDict):
    """With one number of samples of each class."""

    n_shot: Count
    temperature: Number
    ece: Number
    ece_before: Number
    bins: list[Bin]


class Calibration(TypedDict):
    """calibration.json."""

    temperatures: list[Number]
    shots: list[CalibrationOfShots]


class Failed(TypedDict):
    """failed.json."""

    error: str


class Operation(TypedDict):
    """Of network.json; `pmeta.cost.ops.Op`."""

    kind: str
    name: str
    weight: Count
    bias: Count
    groups: Count
    x: list[Count]
    y: list[Count]
    kernel: list[Count]
    inputs: list[Number]


class OwnNetwork(TypedDict):
    """network.json."""

    layers: list[str]
    ops: list[Operation]
    samples: NotRequired[Count]


class Cell(TypedDict):
    """Of a table of `pmeta reproduce`."""

    row: str
    column: str
    unit: str
    ours: Number | None
    ci95: Number | None
    paper: Number | None
    tasks: Count | None
    eval_tasks: Count | None
    missing: str | None
    split: NotRequired[str | None]
    note: NotRequired[str | None]
    difference: NotRequired[Number]
    difference_ci95: NotRequired[Number]
    difference_paper: NotRequired[Number]
    seeds: list[Count]
    versus: NotRequired[str]


class Table(TypedDict):
    """A table of `pmeta reproduce`."""

    rows: list[str]
    columns: list[str]
    data: list[str]
    cells: list[Cell]


def check(where: str, value: Any, shape: Any) -> Any:
    """The value as `shape`; ValueError where it has another type or range.

    >>> check("x.json", {"error": 4}, Failed)
    Traceback (most recent call last):
    ValueError: x.json is not as we write it (Expected `str`, got `int` - at `$.error`): have it \
written anew, or leave it out.
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        said = str(error).rstrip(".")
        raise ValueError(
            f"{where} is not as we write it ({said}): have it written anew, or leave it out."
        ) from None
