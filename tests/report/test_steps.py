"""Step sizes over layers and steps as they evolved, and the shares of weights that are updated."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba

from pmeta.report.picture import ACCENT, LIGHT, RULE, rendered
from pmeta.report.read import read_run
from pmeta.report.steps import (
    evolution,
    largest_of,
    largest_shares,
    moments,
    shares,
    step_sizes,
    update_ratios,
)
from pmeta.training.run_folder import write_json
from tests.helpers.report_folders import evaluation, run_of


def test_step_sizes_over_layers_and_steps(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a")
    assert run.chosen
    figure = step_sizes(run.chosen["alpha"], run.layers)
    colors = [patch.get_facecolor()[:3] for patch in figure.axes[0].patches]
    assert colors.count(to_rgba(RULE)[:3]) == 35
    assert colors.count(to_rgba(ACCENT)[:3]) == 10
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert shown.count("·") == 35
    assert [shown.count(name) for name in run.layers] == [1] * 9


def test_dark_cells_have_light_text() -> None:
    texts = shares([[1.0, 0.01, 0.0]], ["a", "b", "c"]).axes[0].texts
    inks = {text.get_text(): text.get_color() for text in texts}
    assert (inks["1"], inks[".01"], inks["·"]) == (LIGHT["page"], LIGHT["ink"], LIGHT["faint"])


def test_the_larger_the_more_colour() -> None:
    patches = step_sizes([[0.01, 0.1, 0.4]], ["a", "b", "c"], largest=0.4).axes[0].patches
    strengths = [to_rgba(patch.get_facecolor())[3] for patch in patches]
    assert strengths == sorted(strengths)
    assert strengths[-1] == pytest.approx(1.0)
    assert strengths[0] > 0.1  # not to be taken for zero


def test_stages_from_the_first_to_the_last_validation(tmp_path: Path) -> None:
    few = run_of(tmp_path / "few", validations=3)
    many = run_of(tmp_path / "many", validations=100, tasks=40_000)
    assert [name for name, _ in moments(few)] == ["400", "800", "1,200 best"]
    names = [name for name, _ in moments(many)]
    assert (len(names), names[0], names[-1]) == (8, "400", "40,000 best")
    axes = evolution(moments(few), few.layers).axes[0]
    assert [text.get_text() for text in axes.texts] == ["400", "800", "1,200 best"]
    stages = [c for c in axes.collections if isinstance(c, PolyCollection)]
    assert [len(stage.get_paths()) for stage in stages] == [45, 45, 45]
    strengths = [np.asarray(stage.get_facecolor())[:, 3].max() for stage in stages]
    assert strengths == pytest.approx([0.1 + 0.9 * (i / 3) ** 0.5 for i in (1, 2, 3)])


def test_no_layer_lives() -> None:
    dead = [[0.0, 0.0]]
    assert largest_of([dead]) == 1.0
    assert rendered(step_sizes(dead, ["conv1", "fc"])).count("·".encode()) >= 2
    assert rendered(evolution([("1", dead)], ["conv1", "fc"]))


def test_update_ratios_are_measured_ones_or_the_most_they_can_be(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a")
    assert update_ratios(run) == ([[0.0] * 6 + [22 / 32, 0.0, 1.0]] * 5, False)
    assert largest_shares(run)["norm1"] == 22 / 32
    write_json(run.path / "evaluation.json", evaluation())
    assert update_ratios(read_run(run.path, [])) == (evaluation()["update_ratios"], True)
    lr = run_of(tmp_path / "b", method="pmeta-lr")
    assert update_ratios(lr) == ([[0.0] * 6 + [1.0, 0.0, 1.0]] * 5, True)
