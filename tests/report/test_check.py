"""Whatever stands in a JSON file, the report is made of it or says what is wrong."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pmeta.base.errors import for_user
from pmeta.report.check import COUNT, MAYBE_NUMBER, NUMBER, TEXT, check
from pmeta.report.page import page
from pmeta.report.read import read
from pmeta.training.run_folder import write_json
from tests.helpers.report_folders import WALK, evaluation, table, write_run

ODD: list[Any] = [None, "x", [[]], 10**400]


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (1, NUMBER),
        (-1.5, NUMBER),
        (None, MAYBE_NUMBER),
        (0, COUNT),
        ("", TEXT),
        ([], [NUMBER]),
        ({"a": 1, "other": None}, {"a": COUNT, "b?": TEXT}),
    ],
)
def test_what_fits(value: Any, shape: Any) -> None:
    check("x", value, shape)


@pytest.mark.parametrize(
    ("value", "shape", "message"),
    [
        (True, NUMBER, "x should have a number, and has 'True': it is broken, or not ours."),
        (float("nan"), NUMBER, "x should have a number, and has 'nan'"),
        (None, NUMBER, "x should have a number, and has 'None'"),
        (10**400, NUMBER, "x should have a number, and has '1000"),
        (-1e300, NUMBER, "x should have a number, and has '-1e+300'"),
        (10**400, COUNT, "x should have a count, and has '1000"),
        (1.5, COUNT, "x should have a count, and has '1.5'"),
        (-1, COUNT, "x should have a count, and has '-1'"),
        ({"a": [{"b": 3}]}, {"a": [{"b": TEXT}]}, "x should have a text at a[0].b, and has '3'"),
        ({"a": {}}, {"a": {"b": TEXT}}, "x has no a.b: it is broken, or not ours."),
        ({}, [TEXT], "x should have a list, and has '{}'"),
    ],
)
def test_what_does_not_fit(value: Any, shape: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        check("x", value, shape)
    assert str(error.value).startswith(message)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a value; of a list, to its first item."""
    yield at
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*at, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*at, 0))


def put(value: Any, at: tuple[Any, ...], odd: Any) -> Any:
    """A copy with something odd at a place."""
    if not at:
        return odd
    new = inner = copy.deepcopy(value)
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = odd
    return new


@pytest.mark.parametrize(
    "name",
    [
        "run/config.json",
        "run/best.json",
        "run/test.json",
        "run/metrics.jsonl",
        "rl/config.json",
        "rl/metrics.jsonl",
        "table4.json",
    ],
)
def test_odd_values_anywhere(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "run")
    write_json(tmp_path / "run" / "test.json", evaluation())
    write_run(tmp_path / "rl", WALK)
    write_json(tmp_path / "table4.json", table())
    file, given = tmp_path / name, [str(tmp_path / name.partition("/")[0])]
    *before, last = file.read_text().splitlines() if name.endswith("jsonl") else [file.read_text()]
    refused, drawn = [], []
    for at in places(json.loads(last)):
        for odd in ODD:
            file.write_text("\n".join([*before, json.dumps(put(json.loads(last), at, odd)), ""]))
            try:
                found = read(given)
                if found not in drawn:  # else it was drawn before
                    page(found, "title")
                    drawn.append(found)
            except ValueError as error:
                refused.append(for_user(error))
    assert len(refused) > 10
    assert all(refused)
