"""Runs of one set-up: what is compared with what, and what is said of it."""

import re
from pathlib import Path
from typing import Any

import pytest

from pmeta.method.methods import METHODS
from pmeta.report.figures import curve_of, score_against_memory
from pmeta.report.read import read_run
from pmeta.report.run import RunRecord
from pmeta.report.setup import (
    bars,
    finding,
    hero,
    learning,
    memory_cards,
    overview,
    points,
    setup_section,
)
from pmeta.training.run_folder import write_json
from tests.helpers.report_folders import WALK, evaluation, inside, run_of


@pytest.fixture
def six(tmp_path: Path) -> list[RunRecord]:
    return [
        run_of(
            tmp_path / name, method=name, memory_mb=2.06 if i < 4 else 1.0, val_accuracy=30.0 + i
        )
        for i, name in enumerate(METHODS)
    ]


def shown(runs: list[RunRecord]) -> str:
    (card,) = hero(runs)
    return inside(card.picture)


def test_score_against_memory_has_ours_filled_and_the_papers_hollow(six: list[RunRecord]) -> None:
    picture = shown(six)
    assert [picture.count(f'id="{kind}"') for kind in ("mark", "hollow", "ci")] == [6, 6, 6]
    found = {(p.method, p.hollow): p[2:5] for p in points(six)}
    assert found["pmeta", False] == (1.0, 35.0, 1.5)
    assert found["maml", True] == (2.06, 46.2, 0.0)
    assert "Hollow: what the paper prints" in hero(six)[0].caption


def test_a_method_without_a_run_is_named_at_the_papers_mark(tmp_path: Path) -> None:
    picture = shown([run_of(tmp_path / "run")])
    names = re.findall(r'id="name">.*?<text[^>]*>([^<]+)<', picture, re.S)
    assert sorted(names) == sorted(["p-Meta", "MAML", "ANIL", "BOIL", "MAML++", "p-Meta (LR)"])


def test_an_ablation_is_not_led_to_the_papers_main_figure(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / "a"), run_of(tmp_path / "b", clip_ratio_fw=None)]
    lines = score_against_memory(points(runs), "accuracy").axes[0].lines
    assert [line.get_gid() for line in lines].count("to-paper") == 1


def test_learning_curves_have_every_validation(tmp_path: Path) -> None:
    (card,) = learning(
        [run_of(tmp_path / "a", validations=3), run_of(tmp_path / "b", method="maml")]
    )
    assert inside(card.picture).count('id="dots"') == 2
    assert "accuracy on validation tasks (%)" in inside(card.picture)
    (card,) = learning([run_of(tmp_path / "c", WALK)])
    assert "return after adaptation on validation tasks" in inside(card.picture)
    assert learning([run_of(tmp_path / "d", validations=1)]) == []


def test_a_validation_of_one_task_has_no_interval(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", val_ci95=None)
    assert [ci95 for *_, ci95 in curve_of(run, "a").validations] == [0.0, 0.0]
    assert len(learning([run])) == 1


def test_a_step_is_split_in_what_inference_takes_and_the_rest(tmp_path: Path) -> None:
    (bar,) = bars([run_of(tmp_path / "a", method="maml", gmac=0.387)])
    assert bar[:2] == ("maml", "MAML")
    assert bar.forward == pytest.approx(0.144, abs=5e-4)  # the paper's 0.14 of inference
    assert (bar.whole, bar.paper) == (0.387, 0.39)


def test_methods_that_store_the_same_share_a_picture(six: list[RunRecord]) -> None:
    titles = [card.title for card in memory_cards(six)]
    assert titles == ["MAML, MAML++", "ANIL", "BOIL", "p-Meta (LR)", "p-Meta"]


def test_maml_stands_beside_a_run_of_p_meta_alone(tmp_path: Path) -> None:
    cards = memory_cards([run_of(tmp_path / "a")])
    assert [card.title for card in cards] == ["MAML", "p-Meta"]
    assert cards[0].caption.startswith("Updates every layer and stores 1.64 MB for that.")
    assert cards[1].caption.startswith("Updates conv4, fc and stores")


def rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(row["name"], row["source"]) for row in found["rows"]]


def test_scores_from_different_measurements_say_so_row_by_row(tmp_path: Path) -> None:
    plain, tested = run_of(tmp_path / "a", method="maml"), run_of(tmp_path / "b")
    assert "Measured on: best validation." in overview([plain])["notes"]
    assert rows(overview([plain])) == [("MAML", "")]
    write_json(tested.path / "test.json", evaluation())
    found = overview([plain, read_run(tested.path, [])])
    assert rows(found) == [
        ("MAML", "best validation"),
        ("p-Meta (LR+attention)", "test, 1,000 tasks"),
    ]
    assert not any("Measured on" in note for note in found["notes"])
    assert found["rows"][1]["cells"][:2] == [
        ("36.4 ± 0.5", "paper 48.8"),
        ("1.01 MB", "paper 0.99 MB"),
    ]


def test_the_finding_is_said_in_figures(six: list[RunRecord], tmp_path: Path) -> None:
    assert "MAML++ takes 2.06 MB, 2.1 times as much: 33.0 ± 1.5 %." in finding(six)
    every = "Updating every layer, as MAML does, takes 2.06 MB, 2.0 times as much."
    assert every in finding([run_of(tmp_path / "a")])
    assert finding([run_of(tmp_path / "b", method="maml")]) == ""


def test_a_set_up_without_a_validation_has_no_pictures(tmp_path: Path) -> None:
    waiting = run_of(tmp_path / "a", validations=0)
    assert setup_section("x", [waiting]) == {"title": "x", "overview": None}
