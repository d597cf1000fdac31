"""docs/paper/map.md is complete and true: each equation has one home and a test."""

import importlib
import inspect
import re
from operator import attrgetter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| (Eq|Alg)\. (\d+) \|[^|]*\| `([^:`]+):([^`]+)` \| `([^`]+)` \|$",
    (ROOT / "docs/paper/map.md").read_text(),
    re.M,
)


def test_every_equation_and_algorithm_has_exactly_one_row():
    equations = sorted((kind, int(number)) for kind, number, *_ in ROWS)
    assert equations == [("Alg", 1), ("Alg", 2), *(("Eq", n) for n in range(1, 19))]


@pytest.mark.parametrize(("kind", "number", "file", "function", "test"), ROWS)
def test_home_exists_and_names_its_equation(kind, number, file, function, test):
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    source = inspect.getsource(attrgetter(function)(module)) + (module.__doc__ or "")
    assert int(number) in _numbers(source, kind), (
        f"{file}:{function} does not say that it is {kind}. {number}"
    )
    assert (ROOT / test).is_file()


def _numbers(text: str, kind: str) -> set[int]:
    """The numbers in "Eq. 9", "Eqs. 10 and 11", "Eqs. 1, 3, 4, 6, 13 and 14", "Eqs. 6 to 9"."""
    found = set()
    for listed in re.findall(rf"{kind}s?\. ((?:\d+(?:, | and | to )?)+)", text):
        found |= {int(n) for n in re.findall(r"\d+", listed)}
        for first, last in re.findall(r"(\d+) to (\d+)", listed):
            found |= set(range(int(first), int(last) + 1))
    return found
