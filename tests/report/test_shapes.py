"""Whatever stands in a JSON file, the report is made of it or says what is wrong."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pmeta.base.errors import for_user
from pmeta.report.page import page
from pmeta.report.read import read
from pmeta.report.shapes import Count, Failed, Number, check
from pmeta.training.run_folder import write_json
from tests.helpers.report_folders import WALK, evaluation, table, write_run

ODD: list[Any] = [None, "x", [[]], 10**400, -1, 1e300, True, {}]


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (1, Number),
        (-1.5, Number),
        (None, Number | None),
        (0, Count),
        ({"error": "", "a": 1}, Failed),
    ],
)
def test_what_fits(value: Any, shape: Any) -> None:
    check("x", value, shape)


@pytest.mark.parametrize(
    ("value", "shape", "said"),
    [
        (True, Number, "Expected `float`, got `bool`"),
        (float("nan"), Number, "Expected `float` >= -1000000000000000.0"),
        (None, Number, "Expected `float`, got `null`"),
        (10**400, Number, "Number out of range"),
        (-1e300, Number, "Expected `float` >= -1000000000000000.0"),
        (1.5, Count, "Expected `int`, got `float`"),
        (-1, Count, "Expected `int` >= 0"),
        ([{"error": 3}], list[Failed], "Expected `str`, got `int` - at `$[0].error`"),
    ],
)
def test_what_does_not_fit(value: Any, shape: Any, said: str) -> None:
    message = f"x is not as we write it ({said}): have it written anew, or leave it out."
    with pytest.raises(ValueError, match=re.escape(message)):
        check("x", value, shape)


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


SHOWN = {"kind", "settings_version", "method", "data", "n_shot", "versions"}
"""Settings that a report does more with than showing them as text."""


def shorten(name: str, content: Any) -> Any:
    """Without what is like the rest."""
    if name.endswith("config.json"):
        return {key: value for key, value in content.items() if key in SHOWN}
    if name.endswith("figures.json"):
        named = {key: content["figures"][key] for key in (content["score"], content["count"])}
        return {**content, "figures": named, "paper": {"pmeta": content["paper"]["pmeta"]}}
    return content


@pytest.mark.parametrize(
    "name",
    [
        "run/config.json",
        "run/network.json",
        "run/figures.json",
        "run/best.json",
        "run/test.json",
        "run/metrics.jsonl",
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
    whole = shorten(name, json.loads(last))
    refused, drawn = [], []
    for at in places(whole):
        for odd in ODD:
            file.write_text("\n".join([*before, json.dumps(put(whole, at, odd)), ""]))
            try:
                found = read(given)
                if found not in drawn:  # else it was drawn before
                    page(found, "title")
                    drawn.append(found)
            except ValueError as error:
                refused.append(for_user(error))
    assert len(refused) > 10
    assert all(refused)
