"""What stands in the card of a model that ships."""

from typing import Annotated, NotRequired, TypedDict

import msgspec

from pmeta.base.reading import Count, Number, Size
from pmeta.base.shapes import Calibration, Config


class Schedule(TypedDict):
    """How a model of the zoo was trained."""

    planned: Count
    trained: Count
    chosen_at: Count
    meta_batch: Count
    n_query: Count
    memory_budget: str
    seed: Count


class Score(TypedDict):
    """An accuracy in percent."""

    tasks: Count
    accuracy: Number
    ci95: Number


class ManyClasses(Score):
    classes: Count


class CardScore(Score):
    n_query: Count
    many: NotRequired[ManyClasses]


class Memory(TypedDict):
    paper_mb: Number
    exact_mb: Number
    gmac: Number


class CardFile(TypedDict):
    """A .pmeta that ships."""

    file: str
    outputs: Size
    bytes: Size
    arena_bytes: Size
    infer_bytes: Size
    state_bytes: Size


class Classes(TypedDict):
    train: Count
    val: Count


class CardData(TypedDict):
    name: str
    classes: Classes
    image: tuple[Size, Size, Size]


class Cell(TypedDict):
    """Accuracy and CI95 in the engine with all steps and with none."""

    n_way: Count
    n_shot: Count
    tasks: Count
    steps: NotRequired[tuple[Number, Number]]
    head: NotRequired[tuple[Number, Number]]
    none: NotRequired[tuple[Number, Number]]


class Engine(TypedDict):
    outputs: Size
    arena_bytes: dict[str, Size]
    cells: list[Cell]


class SettingsOfCard(Config):
    channels: Size
    lam: Number
    init: NotRequired[str]
    train_queries: NotRequired[Count]


class Card(TypedDict):
    """Of a model of the zoo."""

    name: str
    method: str
    task: str
    backbone: str
    schedule: Schedule
    evaluation: CardScore
    updates: list[list[str]]
    memory: Memory
    files: Annotated[list[CardFile], msgspec.Meta(min_length=1)]
    command: str
    config: SettingsOfCard
    data: CardData
    calibration: NotRequired[Calibration]
    engine: NotRequired[Engine]
