"""docs/reference/python.md names every public function, field and JSON key."""

import dataclasses
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pmeta
from pmeta import device, zoo
from pmeta.cli import main
from pmeta.device.description import Description
from pmeta.kinds.policies.evaluate import ReturnSummary
from pmeta.method.outer import Schedule
from pmeta.training.results import Summary

TEXT = (Path(__file__).parents[2] / "docs/reference/python.md").read_text(encoding="utf-8")
SIGNATURES = dict(re.findall(r"^\| `(?:pmeta)?([.\w]+)\((.*?)\)` \|", TEXT, re.M))


def public(of: type) -> list[str]:
    return [name for name in vars(of) if not name.startswith("_")]


@pytest.mark.parametrize("name", pmeta.__all__)
def test_what_the_package_exports(name: str) -> None:
    assert f"`pmeta.{name}" in TEXT


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (".Learner", pmeta.Learner),
        (".meta_train", pmeta.Learner.meta_train),
        (".cost", pmeta.Learner.cost),
        (".Method", pmeta.Method),
        (".take_in", pmeta.take_in),
        (".replace_batch_norm", pmeta.replace_batch_norm),
        (".open_split", pmeta.open_split),
        (".sample_task", pmeta.sample_task),
    ],
)
def test_arguments_and_defaults(name: str, function: Callable[..., Any]) -> None:
    documented = re.findall(r"\*{0,2}\w+(?==|,|$)", re.sub(r"=[^,]+", "=", SIGNATURES[name]))
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    assert [d.lstrip("*") for d in documented] == [p.name for p in parameters]
    for p in parameters:
        if isinstance(p.default, (str, int, float, type(None))):
            assert f"{p.name}={p.default!r}".replace("'", '"') in SIGNATURES[name]


@pytest.mark.parametrize(
    "name", [*public(pmeta.Learner), *public(device.DeviceModel), *public(Description)]
)
def test_methods_and_properties(name: str) -> None:
    assert f"`.{name}" in TEXT


@pytest.mark.parametrize(
    "name", [f.name for f in dataclasses.fields(Schedule) if f.name != "updates"]
)
def test_settings_of_the_schedule(name: str) -> None:
    assert f"`{name}`" in TEXT


def test_json_keys(capsys: pytest.CaptureFixture[str]) -> None:
    main(["cost", "--backbone", "4conv", "--method", "pmeta", "--json"])
    returns = {f.name for f in dataclasses.fields(ReturnSummary)} - {
        f.name for f in dataclasses.fields(Summary)
    }
    keys = {
        *json.loads(capsys.readouterr().out),
        *zoo.card(zoo.names()[0]),
        *(key for key in returns if "ci95" not in key),
    }
    assert not {key for key in keys if f"`{key}`" not in TEXT}
