"""Figures as people write them, and short names of runs."""

from pathlib import Path

import pytest

from pmeta.report.words import labels, number, shorten
from tests.helpers.report_folders import run_of


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (12345.6, "12,346"), (0.19653, "0.197"), (-0.5, "-0.5")]
)
def test_numbers(value: float, shown: str) -> None:
    assert number(value) == shown


def test_runs_of_one_method_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / "a"), run_of(tmp_path / "b"), run_of(tmp_path / "c", method="anil")]
    assert labels(runs) == ["p-Meta: a", "p-Meta: b", "ANIL"]
    alike = [run_of(tmp_path / "x-1-ab"), run_of(tmp_path / "x-1-ac")]
    assert labels(alike) == ["p-Meta: ab", "p-Meta: ac"]
    assert shorten("x" * 30) == "x" * 23 + "…"
