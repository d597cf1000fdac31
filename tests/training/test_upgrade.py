"""Settings of older runs: what they are now, and what is refused."""

import json
from pathlib import Path

import pytest

from pmeta import kinds
from pmeta.training.run_folder import Run
from pmeta.training.upgrade import VERSION, upgraded

RUNS = Path(__file__).parents[2] / "zoo/runs"


@pytest.mark.parametrize("name", sorted(path.name for path in RUNS.iterdir()))
def test_a_run_that_ships_can_be_continued_with_its_own_settings(name: str) -> None:
    run = Run(RUNS / name)
    found = run.config()
    config = run.settings(kinds.kind(found["kind"]).Config)
    run.compare(config)
    assert found["settings_version"] == VERSION
    assert found.keys() >= vars(config).keys()


def test_kinds_of_older_runs() -> None:
    settings = {"policies": "env", "recordings": "pooled_epochs", "pre-training": "crop_size"}
    assert {upgraded({key: 1})["kind"] for key in settings.values()} == set(settings)
    assert upgraded({"model": "Sequential"})["kind"] == "own"
    assert upgraded({"model": "my.py:net"})["kind"] == upgraded({})["kind"] == "pictures"


def test_the_first_budgets_were_in_the_exact_accounting() -> None:
    assert upgraded({"memory_budget": "1MB"})["budget_accounting"] == "exact"
    arena = {"memory_budget": "1MB", "budget_accounting": "arena"}
    assert upgraded(arena)["budget_accounting"] == "arena"
    assert upgraded({})["budget_accounting"] == "arena"


def test_scores_made_another_method_of_a_live_model() -> None:
    found = {"model": "Sequential", "method": "pmeta-lr", "scores": "attention"}
    assert upgraded(found)["method"] == "pmeta"
    assert upgraded({**found, "scores": "none"})["method"] == "pmeta-lr"


def test_settings_of_a_newer_release_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"settings_version": 99, "versions": {}}))
    with pytest.raises(
        ValueError, match=r"is not as we write it \(settings of version 99, this release"
    ):
        Run(tmp_path).config()
