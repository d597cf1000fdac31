"""What stands in the JSON files that a report reads, and a check that it does."""

from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec

from pmeta.cost.ops import Op, m
from pmeta.method.methods import Method
from pmeta.training.figures import Figure

MOST = 10**15
"""No figure of a run is larger, and larger ones cannot be drawn."""
Number = Annotated[float, msgspec.Meta(ge=-MOST, le=MOST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class Start(TypedDict):
    """What every config.json has."""

    kind: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Network:
    """network.json: how the network adapts."""

    layers: list[str]
    ops: tuple[Op, ...]
    samples: Count
    kept_words: Count
    method: Method | None

    def __post_init__(self) -> None:
        if not self.layers or not any(op.kind in ("conv", "fc") for op in self.ops):
            raise ValueError("it has no layers")
        for i, op in enumerate(self.ops):
            sizes = (op.weight, op.bias, m(op.x), m(op.y), *op.x, *op.y, *op.kernel)
            sized = op.x and op.y and op.groups > 0 and all(0 <= n <= MOST for n in sizes)
            known = not op.name or op.kind in ("conv", "norm", "fc")
            if not (sized and known and all(-1 <= source < i for source in op.inputs)):
                raise ValueError(f"operation {i} is none of a network")


@dataclass(frozen=True)
class PaperScore:
    """The score as the paper prints it, and what adapting takes."""

    score: Number
    memory_mb: Number
    gmac: Number


@dataclass(frozen=True)
class Figures:
    """figures.json: what the run is in words, and what is measured."""

    title: str
    changes: list[str]
    setup: str
    total: Count
    given: list[str]
    paper: dict[str, PaperScore]
    score: str
    ci95: str
    count: str
    figures: dict[str, Figure]

    def __post_init__(self) -> None:
        for key in (self.score, self.count):
            if key not in self.figures:
                raise ValueError(f"figures has no {key!r}")

    @property
    def counted(self) -> Figure:
        """What is counted to say how far a training is."""
        return self.figures[self.count]

    @property
    def evaluated(self) -> str:
        """The key of the score in what `pmeta evaluate --json` prints."""
        return self.score.removeprefix("val_")


class Evaluation(TypedDict):
    """What `pmeta evaluate --json` prints, besides the score."""

    tasks: Count
    memory_mb: Number
    exact_memory_mb: NotRequired[Number | None]
    gmac: Number
    data: NotRequired[str | None]
    split: NotRequired[str]
    batch: NotRequired[Count | None]
    update_ratios: NotRequired[list[list[Number]]]
    ci95: NotRequired[Number | None]


class EvaluationOfQuickstart(Evaluation):
    method: str
    accuracy: Number


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
