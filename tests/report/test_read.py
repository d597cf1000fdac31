"""What a report is given is read whole, or refused with what is wrong and where."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pmeta.report.read import read
from pmeta.training.run_folder import write_json
from tests.helpers.report_folders import MINI, WALK, cell, evaluation, table, write_run


def results(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "table4.json", table(**changes))
    return folder


def test_a_run_a_table_and_a_folder_of_both(tmp_path: Path) -> None:
    out = results(tmp_path / "out")
    run = write_run(out / "runs" / "a")
    (run / "evaluations").mkdir()
    write_json(run / "evaluations" / "mini-val-batch1.json", evaluation())
    write_json(
        out / "figure5.json",
        {"format": "pmeta-results", "version": 1, "title": "Shares", "series": []},
    )
    (out / "figure5.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    write_json(out / "queue.json", {"anything": 1})
    given = read([str(out)])
    assert [r.path for r in given.runs] == [run]
    assert len(given.runs[0].evaluations) == 1
    assert [t["name"] for t in given.tables] == ["table4"]
    assert given.figures == [("Figure 5. Shares", out / "figure5.svg")]
    assert given.left_out == [out / "queue.json"]
    again = read(
        [str(out), str(run), str(out / "table4.json")]
    )  # what is given twice is shown once
    assert (len(again.runs), len(again.tables), len(again.figures)) == (1, 1, 1)


def test_what_quickstart_measured_belongs_to_its_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "pmeta")
    write_run(tmp_path / "maml", dataclasses.replace(MINI, method="maml"))
    measured = {
        "accuracy": 91.5,
        "ci95": 1.2,
        "memory_mb": 0.1,
        "exact_memory_mb": 0.1,
        "gmac": 0.01,
        "tasks": 200,
    }
    write_json(tmp_path / "results.json", [{"method": "pmeta", **measured}])
    scores = {run.method: run.score for run in read([str(tmp_path)]).runs}
    assert scores["pmeta"]
    assert scores["maml"]
    assert (scores["pmeta"].value, scores["pmeta"].source) == (91.5, "test, 200 tasks")
    assert scores["maml"].value == 31.0


def test_a_line_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"tasks": 1200, "val_acc')
    assert read([str(path)]).runs[0].done == 800


def test_a_best_model_whose_validation_is_not_logged_yet_is_waited_for(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    write_json(path / "best.json", {"tasks": 1200, "input": [3, 84, 84]})
    run = read([str(path)]).runs[0]
    assert run.best is None
    assert run.chosen
    assert run.chosen["tasks"] == 800


def test_an_error_that_ended_a_run_is_passed_on(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    write_json(path / "failed.json", {"error": "diverged"})
    assert read([str(path)]).runs[0].failed == "diverged"


def edit(file: Path, **changes: Any) -> None:
    write_json(file, json.loads(file.read_text()) | changes)


def append(path: Path, **changes: Any) -> None:
    last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    kept = {key: value for key, value in (last | changes).items() if value is not ...}
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(kept) + "\n")


BROKEN: list[tuple[Callable[[Path], Any], str]] = [
    (
        lambda p: os.remove(p / "config.json"),
        r"a run folder holds a config\.json, .*/bad does not: train one",
    ),
    (lambda p: (p / "config.json").write_text("{"), r"the config\.json in .*/bad cannot be read"),
    (
        lambda p: (p / "config.json").write_text('{"model_type": "bert"}'),
        r"the config\.json in .*/bad is not as we write it \(Object missing",
    ),
    (
        lambda p: edit(p / "config.json", versions=3),
        r"the config\.json in .*/bad .*\(Expected `object`, got `int` - at `\$\.versions`\)",
    ),
    (
        lambda p: os.remove(p / "figures.json"),
        r"figures\.json, .*/bad does not, .*: pmeta train with the same --out writes both",
    ),
    (
        lambda p: write_json(p / "figures.json", {}),
        r"/bad/figures\.json is not as we write it \(Object missing required field `title`\)",
    ),
    (
        lambda p: edit(p / "figures.json", score="val_iq"),
        r"/bad/figures\.json is not as we write it \(figures has no 'val_iq'\)",
    ),
    (
        lambda p: edit(p / "network.json", ops=[]),
        r"/bad/network\.json is not as we write it \(it has no layers\)",
    ),
    (
        lambda p: edit(p / "network.json", method={"title": "x", "update": "some"}),
        r"/bad/network\.json .*\(update must be one of all, head, body, none, got 'some'",
    ),
    (
        lambda p: append(p, val_accuracy=...),
        r"line 3 of the metrics\.jsonl in .*/bad lacks val_accuracy: have it written anew",
    ),
    (
        lambda p: append(p, alpha=[[0.1]]),
        r"line 3 .* should have step sizes for 5 steps of 9 layers, and has others",
    ),
    (
        lambda p: append(p, gmac="much"),
        r"gmac of line 3 .*/bad .*\(Expected `float`, got `str`\)",
    ),
    (
        lambda p: append(p, val_accuracy=None),
        r"val_accuracy of line 3 .*\(Expected `float`, got `null`\)",
    ),
    (
        lambda p: (p / "metrics.jsonl").write_text("[1]\n"),
        r"line 1 .* \(Expected `object`, got `array`\)",
    ),
    (
        lambda p: (p / "metrics.jsonl").write_text("{]\n"),
        r"line 1 of the metrics\.jsonl in .*/bad cannot be read",
    ),
    (
        lambda p: (p / "best.json").write_text("{"),
        r"/bad/best\.json is not whole JSON .*: remove it, or have it written",
    ),
    (
        lambda p: write_json(p / "best.json", {"val_accuracy": 800}),
        r"/bad/best\.json lacks tasks: have it written anew",
    ),
    (
        lambda p: write_json(p / "best.json", {"tasks": 7}),
        r"speaks of 7 tasks, of which metrics\.jsonl has no line",
    ),
    (lambda p: (p / "val.json").write_text(""), r"/bad/val\.json is not whole JSON"),
    (
        lambda p: write_json(p / "val.json", evaluation(accuracy=None)),
        r"accuracy of .*/bad/val\.json .*\(Expected `float`, got `null`\)",
    ),
]


@pytest.mark.parametrize(("spoil", "message"), BROKEN)
def test_a_broken_run_among_good_ones_is_named(
    tmp_path: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    write_run(tmp_path / "runs" / "good")
    spoil(write_run(tmp_path / "runs" / "bad"))
    with pytest.raises(ValueError, match=message):
        read([str(tmp_path)])


TABLES: list[tuple[dict[str, Any], str]] = [
    (
        {"version": 2},
        r"this pmeta reads results of version 1, .*/table4\.json has 2: use a newer pmeta\.",
    ),
    (
        {"cells": [{"row": "x/x"}]},
        r"/table4\.json .*missing required field `column` - at `\$\.cells\[0\]`",
    ),
    ({"rows": "x/x"}, r"/table4\.json .*\(Expected `array`, got `str` - at `\$\.rows`\)"),
    (
        {"cells": [cell("1/1", "memory")]},
        r"has a cell for '1/1', 'memory', which is not in its table",
    ),
]


@pytest.mark.parametrize(("changes", "message"), TABLES)
def test_a_broken_table(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write_run(tmp_path / "run")
    results(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        read([str(tmp_path)])


def test_a_figure_without_its_picture(tmp_path: Path) -> None:
    write_json(tmp_path / "figure5.json", {"format": "pmeta-results", "version": 1, "series": []})
    with pytest.raises(ValueError, match=r"the picture of .*/figure5\.json is not beside it"):
        read([str(tmp_path)])


def test_a_figure_of_which_nothing_is_measured_yet_is_left_out(tmp_path: Path) -> None:
    write_json(
        tmp_path / "figure5.json",
        {"format": "pmeta-results", "version": 1, "series": [{"missing": "not run yet"}]},
    )
    write_run(tmp_path / "run", MINI)
    assert (read([str(tmp_path)]).figures, read([str(tmp_path)]).left_out) == (
        [],
        [tmp_path / "figure5.json"],
    )


def test_foreign_folders_and_files(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"a report is made of run folders and results, .*/none is not there\."
    ):
        read([str(tmp_path / "none")])
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    with pytest.raises(ValueError, match=r"/photos holds neither: give another folder\."):
        read([str(tmp_path / "photos")])
    with pytest.raises(ValueError, match=r"of results that end in \.json, .*/a\.jpg is neither\.$"):
        read([str(tmp_path / "photos" / "a.jpg")])
    write_json(tmp_path / "other.json", {"a": 1})
    with pytest.raises(ValueError, match=r'say "format": "pmeta-results", .*/other\.json does not'):
        read([str(tmp_path / "other.json")])


def test_a_policy_is_checked_by_its_own_figures(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", WALK)
    append(path, val_after=...)
    with pytest.raises(ValueError, match=r"line 3 .* lacks val_after"):
        read([str(path)])
