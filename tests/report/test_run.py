"""A run as the report sees it: the network that was trained, and what was measured."""

import dataclasses
import json
from pathlib import Path

import pytest

from pmeta.kinds.policies.config import RLConfig
from pmeta.report.read import read_run
from pmeta.report.shapes import PaperScore
from pmeta.training.run_folder import write_json
from tests.helpers.report_folders import MINI, WALK, evaluation, run_of, write_run


def test_a_cheetah_keeps_432_kb_of_episodes(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", RLConfig(env="cheetah-velocity")), [])
    assert run.network.kept_words * 4 == 432_000


@pytest.mark.parametrize("other", [{"n_way": 3}, {"n_shot": 5}, {"classes": 20}])
def test_an_evaluation_on_tasks_of_another_kind_does_not_count(
    tmp_path: Path, other: dict[str, int]
) -> None:
    path = write_run(tmp_path / "run", MINI)
    write_json(
        path / "other.json", {**evaluation(accuracy=61.0), "n_way": None, "n_shot": None, **other}
    )
    run = read_run(path, [])
    assert run.score
    assert run.score.source == "best validation"
    write_json(
        path / "same.json",
        {**evaluation(accuracy=62.0), "n_way": 5, "n_shot": 1, "n_query": 15, "classes": None},
    )
    score = read_run(path, []).score
    assert score
    assert score.value == 62.0


def test_without_an_evaluation_the_best_validation_counts(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"), [])
    assert run.score
    assert run.score == (31.0, 1.5, (1.03, 1.93, 0.2), "best validation")
    assert run.finished


def test_a_policy_is_scored_by_its_validation_not_by_its_training(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", WALK), [])
    assert run.score
    assert run.score.value == -39.0
    assert run.setup == "2D navigation, 20 episodes of 200 steps"


def test_an_evaluation_on_test_classes_comes_first(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    write_json(path / "val.json", evaluation(split="val", tasks=5000, accuracy=1.0))
    (path / "evaluations").mkdir()
    write_json(path / "evaluations" / "test.json", evaluation())
    write_json(
        path / "evaluations" / "cub.json", evaluation(data="/data/cub", tasks=9000, accuracy=2.0)
    )
    write_json(path / "evaluations" / "batch5.json", evaluation(batch=5, tasks=9000, accuracy=3.0))
    run = read_run(path, [])
    assert len(run.evaluations) == 4
    assert run.score
    assert (run.score.value, run.score.source) == (36.4, "test, 1,000 tasks")


def test_a_run_before_its_layers_are_chosen(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", validations=1, best=False), [])
    assert run.score
    assert run.score.source == "last validation, layers not chosen yet"
    assert not run.finished
    assert run.setup == "mini 84x84, 4Conv, 5-way 1-shot"


def test_a_run_without_a_validation(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", validations=0), [])
    assert (run.score, run.chosen, run.done) == (None, None, 0)


def test_masks_and_bounds_of_the_chosen_model(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"), [])
    assert run.masks == [["conv4", "fc"]] * 5
    assert run.mu_fw["conv4"] == 22 / 32  # rho = 0.3
    assert (
        read_run(write_run(tmp_path / "lr", dataclasses.replace(MINI, method="pmeta-lr")), []).mu_fw
        == {}
    )


def test_the_paper_is_quoted_as_the_run_has_it(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    assert run.paper == PaperScore(48.8, 0.99, 0.15)
    assert run_of(tmp_path / "flowers", data="/d/flowers102").paper is None
    assert run_of(tmp_path / "walk", WALK, method="maml").paper == PaperScore(-13.3, 0.21, 0.12)
    assert run_of(tmp_path / "short", WALK, horizon=100).paper is None


def test_the_title_says_what_a_run_changes(tmp_path: Path) -> None:
    config = dataclasses.replace(MINI, clip_ratio_fw=None, scores="static")
    run = read_run(write_run(tmp_path / "run", config), [])
    assert run.title == "p-Meta (LR+attention), scores = static, clip_ratio_fw = None"
    assert run.paper is None  # its 48.8 % is of rho = 0.3 and 0
    assert read_run(write_run(tmp_path / "plain"), []).paper


def test_settings_are_kept_as_they_are(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    config = json.loads((path / "config.json").read_text())
    write_json(path / "config.json", {**config, "of_a_later_version": 3})
    assert read_run(path, []).settings["of_a_later_version"] == 3
