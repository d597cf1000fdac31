"""The pictures show the figures that they were given."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from pmeta.cost.memory import peak_words
from pmeta.cost.networks import four_conv
from pmeta.cost.ops import layer_names
from pmeta.method.methods import METHODS
from pmeta.report.comparison import (
    computation,
    labels,
    learning_curves,
    score_against_memory,
    shorten,
)
from pmeta.report.memory import dense_walk, memory_along_layers, walk_of
from pmeta.report.read import read_run
from pmeta.report.run import RunRecord
from pmeta.report.setup import finding, memory_cards, overview
from pmeta.report.steps import (
    heat_map,
    largest_shares,
    stages,
    step_size_text,
    step_sizes,
    update_ratios,
)
from pmeta.report.tables import difference_picture, differences, notes, score_picture
from pmeta.report.tables import table as table_html
from pmeta.training.run_folder import write_json
from tests.helpers.report_folders import MINI, WALK, evaluation, table, write_run


def run_of(path: Path, config: Any = MINI, **changes: Any) -> RunRecord:
    settings = {f.name for f in dataclasses.fields(config)}
    own = {key: value for key, value in changes.items() if key in settings}
    rest = {key: value for key, value in changes.items() if key not in settings}
    return read_run(write_run(path, dataclasses.replace(config, **own), **rest), [])


@pytest.fixture
def six(tmp_path: Path) -> list[RunRecord]:
    return [
        run_of(
            tmp_path / name, method=name, memory_mb=2.06 if i < 4 else 1.0, val_accuracy=30.0 + i
        )
        for i, name in enumerate(METHODS)
    ]


def test_score_against_memory_has_ours_filled_and_the_papers_hollow(six: list[RunRecord]) -> None:
    picture = score_against_memory(six)
    assert len(re.findall('class="mark c-[a-z-]+"', picture)) == 6
    assert len(re.findall('class="mark c-[a-z-]+ hollow"', picture)) == 6
    assert len(re.findall('class="ci ', picture)) == 6
    assert "p-Meta: 35.0 ± 1.5 in 1.00 MB (best validation, 100 tasks)" in picture
    assert "the paper&#x27;s MAML: 46.2 in 2.06 MB" in picture


def test_a_method_without_a_run_is_named_at_the_papers_mark(tmp_path: Path) -> None:
    picture = score_against_memory([run_of(tmp_path / "run")])
    shown = re.findall(r'class="name">([^<]+)<', picture)
    assert sorted(shown) == sorted(["p-Meta", "MAML", "ANIL", "BOIL", "MAML++", "p-Meta (LR)"])


def test_an_ablation_is_not_led_to_the_papers_main_figure(tmp_path: Path) -> None:
    picture = score_against_memory(
        [run_of(tmp_path / "a"), run_of(tmp_path / "b", clip_ratio_fw=None)]
    )
    assert picture.count("to-paper") == 1


def test_the_place_of_a_mark_is_its_figures(tmp_path: Path) -> None:
    """Twice the memory is twice as far from zero; more accuracy is higher up."""
    runs = [
        run_of(
            tmp_path / "a",
            data="glyphs",
            image_size=28,
            memory_mb=1.0,
            val_accuracy=30.0,
            best=False,
        )
    ]
    runs += [
        run_of(
            tmp_path / "b",
            data="glyphs",
            image_size=28,
            memory_mb=2.0,
            val_accuracy=40.0,
            best=False,
        )
    ]
    lines = re.findall(
        r'<line x1="([\d.]+)" y1="([\d.]+)" x2="[\d.]+" y2="([\d.]+)" class="ci',
        score_against_memory(runs),
    )
    (xa, *ya), (xb, *yb) = ([float(v) for v in found] for found in lines)
    assert xb - 36 == pytest.approx(2 * (xa - 36), abs=0.05)  # the axis begins at 36
    assert sum(yb) < sum(ya)


def test_runs_of_one_method_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / "a"), run_of(tmp_path / "b"), run_of(tmp_path / "c", method="anil")]
    assert labels(runs) == ["p-Meta: a", "p-Meta: b", "ANIL"]
    assert labels([run_of(tmp_path / "x-1-ab"), run_of(tmp_path / "x-1-ac")]) == [
        "p-Meta: ab",
        "p-Meta: ac",
    ]
    assert shorten("x" * 30) == "x" * 23 + "…"


def test_learning_curves_have_every_validation(tmp_path: Path) -> None:
    picture = learning_curves(
        [run_of(tmp_path / "a", validations=3), run_of(tmp_path / "b", method="maml")]
    )
    assert len(re.findall("<circle", picture)) == 5
    assert "p-Meta, 1,200 tasks: 32.0 ± 1.5" in picture
    assert "accuracy on validation tasks (%)" in picture
    assert "return on validation tasks" in learning_curves([run_of(tmp_path / "c", WALK)])


def test_a_validation_of_one_task_has_no_interval(tmp_path: Path) -> None:
    assert "± 0.0" in learning_curves([run_of(tmp_path / "a", val_ci95=None)])


def test_computation_splits_a_step_in_forward_and_the_rest(tmp_path: Path) -> None:
    picture = computation([run_of(tmp_path / "a", method="maml", gmac=0.387)])
    assert "MAML, forward: 144 MMACs" in picture  # the paper's 0.14 of inference
    assert "MAML, backward: 243 MMACs" in picture
    assert picture.count("paper-line") == 1


def test_the_walk_of_maml_is_the_papers_2_06_mb_and_stores_every_input(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", method="maml")
    walk, dense = walk_of(run), dense_walk(run)
    assert walk == dense
    assert walk
    assert walk.peak_mb("paper") == pytest.approx(
        peak_words(four_conv(), layer_names(four_conv()), samples=5) * 4e-6
    )
    picture = memory_along_layers(walk, walk.peak_mb("paper"))
    assert all(f"<title>input of {name}: " in picture for name in layer_names(four_conv()))
    assert "input of norm1: 0.90 MB" in picture
    assert "peak 2.06 MB" in picture


def test_what_p_meta_does_not_update_it_does_not_store(tmp_path: Path) -> None:
    walk = walk_of(run_of(tmp_path / "a"))
    assert walk
    picture = memory_along_layers(walk, 2.06)
    assert re.findall(r"<title>input of (\w+): ", picture) == ["conv4", "fc"]
    # conv4: (32, 10, 10), 22 of 32 channels by the bound, and 64 scores
    assert f"input of conv4: {4 * (22 * 100 + 64) / 1000:.2g} kB" in picture


def test_methods_that_store_the_same_share_a_picture(six: list[RunRecord]) -> None:
    titles = [re.findall("<b>([^<]*)</b>", card)[0] for card in memory_cards(six)]
    assert titles == ["MAML, MAML++", "ANIL", "BOIL", "p-Meta (LR)", "p-Meta"]


def test_maml_stands_beside_a_run_of_p_meta_alone(tmp_path: Path) -> None:
    titles = [
        re.findall("<b>([^<]*)</b>", card)[0] for card in memory_cards([run_of(tmp_path / "a")])
    ]
    assert titles == ["MAML", "p-Meta"]


def test_scores_from_different_measurements_say_so_row_by_row(tmp_path: Path) -> None:
    plain, tested = run_of(tmp_path / "a", method="maml"), run_of(tmp_path / "b")
    assert "Measured on: best validation, 100 tasks." in overview([plain])
    write_json(tested.path / "test.json", evaluation())
    shown = overview([plain, read_run(tested.path, [])])
    assert "MAML<br><small>best validation, 100 tasks</small>" in shown
    assert "p-Meta (LR+attention)<br><small>test, 1,000 tasks</small>" in shown
    assert "Measured on" not in shown


def test_the_finding_is_said_in_figures(six: list[RunRecord], tmp_path: Path) -> None:
    assert "MAML++ takes 2.06 MB, 2.1 times as much: 33.0 ± 1.5 %." in str(finding(six))
    assert "Updating every layer, as MAML does, takes 2.06 MB, 2.0 times as much." in str(
        finding([run_of(tmp_path / "a")])
    )
    assert finding([run_of(tmp_path / "b", method="maml")]) is None


def test_step_sizes_over_layers_and_steps(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a")
    assert run.chosen
    picture = step_sizes(run, run.chosen)
    assert picture.count("data-kl=") == 45
    assert picture.count("heat zero") == 35
    assert "step size of fc at step 5: 0.1<" in picture
    assert '"history":[[400,' in picture
    assert "hidden" in picture  # the slider, until the script shows it
    assert step_size_text(0.02) in picture


def test_stages_from_the_first_to_the_last_validation(tmp_path: Path) -> None:
    few, many = (
        run_of(tmp_path / "few", validations=3),
        run_of(tmp_path / "many", validations=100, tasks=40_000),
    )
    captions = re.findall("<figcaption>([^<]*)<", stages(few))
    assert captions == ["400", "800", "1,200 best"]
    captions = re.findall("<figcaption>([^<]*)<", stages(many))
    assert (len(captions), captions[0], captions[-1]) == (8, "400", "40,000 best")


def test_a_model_without_a_step_size_above_zero(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", alpha=[[0.0] * 9] * 5)
    assert run.chosen
    assert step_sizes(run, run.chosen).count("heat zero") == 45
    assert walk_of(run)


def test_update_ratios_are_measured_ones_or_the_most_they_can_be(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a")
    assert update_ratios(run) == ([[0.0] * 6 + [22 / 32, 0.0, 1.0]] * 5, False)
    assert largest_shares(run)["norm1"] == 22 / 32
    write_json(run.path / "evaluation.json", evaluation())
    assert update_ratios(read_run(run.path, [])) == (evaluation()["update_ratios"], True)
    lr = run_of(tmp_path / "b", method="pmeta-lr")
    assert update_ratios(lr) == ([[0.0] * 6 + [1.0, 0.0, 1.0]] * 5, True)


def test_dark_cells_have_light_text() -> None:
    picture = heat_map([[1.0, 0.01, 0.0]], ["a", "b", "c"], 1.0, str, "share")
    assert re.findall(r'class="(on|value)"', picture) == ["on", "value", "value"]


def test_a_table_has_ours_beside_the_papers_and_says_what_is_missing() -> None:
    shown = table_html(table())
    assert "<b>36.4 ± 0.5</b><br><small>paper 47.1</small>" in shown
    assert "<b>≤ 0.99</b><br><small>paper 1.00</small>" in shown
    assert "–<br><small>paper 47.1</small>" in shown
    told = notes(table())
    assert "Schedule: short. Data: MiniImageNet. Evaluated on: val." in told
    assert "Ours: trained on 2,000 tasks, seed 0, evaluated on 1,000 tasks (val)." in told
    assert "1 cell is missing: no CUB: --data cub=DIR." in told


def test_pictures_of_a_table() -> None:
    shown = score_picture(table(), "1-shot Mini")
    assert shown
    assert "0/0, ours: 36.80 ± 0.50" in shown
    assert "0/0, paper: 49.00" in shown
    assert score_picture(table(), "1-shot CUB") is None  # nothing of ours
    assert score_picture(table(), "memory") is None  # a cost, not a score
    compared = differences(table())
    assert "0/0, 1-shot Mini, ours: 0.40 ± 0.60" in difference_picture(compared)
