"""The short help: sentences from below the fields, choices, values."""

from dataclasses import dataclass
from typing import Literal

from pmeta.cli.options import docstrings, short_help


@dataclass(frozen=True)
class Base:
    """Of all."""

    seed: int = 0
    """Where random numbers begin. Any number will do."""


@dataclass(frozen=True)
class Settings(Base):
    """Try something."""

    colour: Literal["red", "blue"] = "red"
    """What it looks like."""
    unnamed: int = 3


def test_sentences_stand_below_their_fields() -> None:
    said = {
        "seed": "Where random numbers begin. Any number will do.",
        "colour": "What it looks like.",
    }
    assert docstrings(Settings) == said


def test_a_line_for_each_option_that_is_asked_for() -> None:
    lines = short_help(Settings(seed=7), ("seed", "colour"), "usage: try").splitlines()
    assert lines[0] == "usage: try"
    assert "Try something." in lines
    assert "  --seed 7                  Where random numbers begin." in lines
    assert "  --colour red              What it looks like. One of red, blue." in lines
