"""The first command that anyone runs, in a short form."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from pmeta.cli import main
from pmeta.cli.quickstart import QuickstartConfig, quickstart, run_config
from pmeta.method.methods import METHODS
from pmeta.training import workers
from pmeta.training.run_folder import Run

KEYS = {"method", "accuracy", "ci95", "memory_mb", "exact_memory_mb", "gmac"}


def test_short_form_leaves_what_it_names_and_again_gives_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "short"
    words = [
        "--tasks",
        "8",
        "--test-tasks",
        "4",
        "--methods",
        "maml",
        "pmeta",
        "--workers",
        "1",
        "--out",
        str(out),
    ]
    assert main(["quickstart", *words]) == 0
    first, _ = capsys.readouterr()
    results = json.loads((out / "results.json").read_text())
    assert [r["method"] for r in results] == ["maml", "pmeta"]
    for r in results:
        assert set(r) >= KEYS
        assert f"{r['accuracy']:.1f} ± {r['ci95']:.1f} %" in first
        assert f"{1000 * r['memory_mb']:.0f} kB" in first
    assert results[1]["exact_memory_mb"] <= 0.105
    assert results[1]["memory_mb"] <= results[0]["memory_mb"] / 3
    named = "accuracy_against_memory.png, results.json"
    assert " ".join(first.split()).endswith(
        f"left in {out}/: a run folder for each method, {named}"
    )
    assert {p.name for p in out.iterdir()} == {"maml", "pmeta", *named.split(", ")}
    before = (out / "maml" / "last.safetensors").stat().st_mtime_ns
    assert main(["quickstart", *words]) == 0
    again, err = capsys.readouterr()
    assert (again, err) == (first, "")
    assert (
        out / "maml" / "last.safetensors"
    ).stat().st_mtime_ns == before  # nothing was trained again


def test_all_methods_by_default_within_a_third_of_the_memory_of_maml() -> None:
    config = QuickstartConfig()
    assert config.methods == tuple(METHODS)
    for name in METHODS:
        run = run_config(config, name)
        assert (run.method, run.data, run.tasks, run.n_way, run.n_shot) == (
            name,
            "glyphs",
            config.tasks,
            5,
            1,
        )
        assert run.out == f"runs/quickstart/{name}"
        assert bool(run.memory_budget) == name.startswith("pmeta")


def test_no_process_evaluates_before_the_best_model_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Run.save

    def late(self: Run, *args: Any) -> None:
        time.sleep(0.3)  # process 0, which writes, comes late
        real(self, *args)

    monkeypatch.setattr(Run, "save", late)
    config = QuickstartConfig(str(tmp_path), tasks=2, test_tasks=2, methods=("anil",))
    (found,) = workers.run(quickstart, (config,), 2)
    assert (found["method"], found["tasks"]) == ("anil", 2)


@pytest.mark.parametrize("option", [("--test-tasks", "0"), ("--workers", "-1")])
def test_numbers_that_make_no_sense_are_told_before_the_training(
    option: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quickstart", "--out", str(tmp_path / "runs"), *option]) == 2
    assert (
        "--test-tasks must be at least 1 and --workers must not be negative, got"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "runs").exists()


def test_an_unknown_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstart", "--methods", "sgd"]) == 2
    message = (
        r"pmeta: error: --methods are of maml, anil, boil, maml\+\+, pmeta-lr, pmeta, got 'sgd'\.\n"
    )
    assert re.fullmatch(message, capsys.readouterr().err)
