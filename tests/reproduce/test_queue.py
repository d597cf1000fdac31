"""The queue of `pmeta reproduce`: its order, and what is stopped, busy, failed or changed."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pmeta.base.errors import DivergedError
from pmeta.reproduce import evaluations, figure5, queue
from pmeta.reproduce.cells import TABLES, TRAININGS
from pmeta.reproduce.data import Dataset
from pmeta.reproduce.queue import Job, Options
from pmeta.training.restored import Asked
from pmeta.training.run_folder import BusyError, Run, write_json

MINI = Dataset("/data/mini", "MiniImageNet", "val")
CUB = Dataset("/data/cub", "CUB", "test")


def options_of(tmp_path: Path, **changes: Any) -> Options:
    return dataclasses.replace(
        Options(tmp_path, "short", {"mini": MINI}, tasks=8, eval_tasks=4), **changes
    )


class Fakes:
    """Training and evaluation that only leave their files, and a record of who was called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.evaluated: list[Asked] = []
        self.drawn: list[str] = []
        self.trouble: dict[str, BaseException] = {}
        monkeypatch.setattr(queue.kinds, "train", self.train)
        monkeypatch.setattr(
            queue.figures, "run_pictures", lambda run: self.drawn.append(Path(run).name)
        )
        monkeypatch.setattr(evaluations, "evaluate_images", self.evaluate)
        monkeypatch.setattr(
            evaluations,
            "evaluate_policy",
            lambda group, restore, asked, path: self.evaluate(group, restore, None, path),
        )
        monkeypatch.setattr(figure5, "measure", self.measure)

    def note(self, what: str) -> None:
        if what in self.trouble:
            raise self.trouble.pop(what)
        self.done.append(what)

    def train(self, group: Any, config: Any) -> None:
        with Run(config.out) as run:
            run.start(config)
            self.note(f"train {run.path.name}")
            for name in ("last", "best"):
                (run.path / f"{name}.safetensors").touch()
                write_json(run.path / f"{name}.json", {"tasks": config.tasks})

    def evaluate(self, group: Any, restore: Any, config: Any, path: Path) -> None:
        self.note(f"evaluate {path.parent.parent.name} {path.stem}")
        self.evaluated.append(config)
        path.parent.mkdir(exist_ok=True)
        write_json(
            path, {"tasks": config.tasks if config else 1000, "seconds": 2.0, "accuracies": []}
        )

    def measure(self, group: Any, restore: Any, asked: Asked) -> None:
        self.note(f"figure5 {Path(asked.run).name}")
        path = figure5.path_of(Path(asked.run), asked.split)
        path.parent.mkdir(exist_ok=True)
        write_json(path, {"eval_tasks": asked.tasks})


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    return Fakes(monkeypatch)


def cells_of(table: str, pick: Callable[[Any], bool] = lambda cell: True) -> list[Any]:
    return [cell for cell in TABLES[table] if pick(cell)]


def work(cells: list[Any], options: Options, figure: tuple[str, ...] = ()) -> list[Job]:
    jobs = queue.plan(cells, figure, options)
    return queue.work_off(jobs, options, lambda step: None, lambda: None)


def test_the_most_telling_come_first_and_each_run_is_evaluated_as_soon_as_it_is_trained(
    tmp_path: Path, fakes: Fakes
) -> None:
    rows = cells_of("table4", lambda cell: cell.row in ("0/x", "x/x", "0.3/0"))
    work(rows, options_of(tmp_path))
    order = [name.removeprefix("train ") for name in fakes.done if name.startswith("train")]
    one, five = (
        ["4conv-1shot-pmeta", "4conv-1shot-pmeta-lr"],
        ["4conv-5shot-pmeta", "4conv-5shot-pmeta-lr"],
    )
    assert order == [*one, *five, "4conv-1shot-fw0", "4conv-5shot-fw0"]
    assert fakes.drawn == order
    assert fakes.done[:2] == [
        "train 4conv-1shot-pmeta",
        "evaluate 4conv-1shot-pmeta mini-val-batch1",
    ]


def test_tables_share_runs_and_evaluations(tmp_path: Path, fakes: Fakes) -> None:
    one = "4conv-1shot-pmeta"
    cells = [
        cell
        for table in ("table2", "table4", "table6")
        for cell in cells_of(table, lambda cell: cell.training == one)
    ]
    work(cells, options_of(tmp_path, datasets={"mini": MINI, "cub": CUB}), (one,))
    evaluated = [f"{data}-batch{batch}" for batch in (1, 2, 5) for data in ("mini-val", "cub-test")]
    assert fakes.done == [
        f"train {one}",
        *(f"evaluate {one} {name}" for name in evaluated),
        f"figure5 {one}",
    ]


def test_an_evaluation_has_its_own_data_and_queries(tmp_path: Path, fakes: Fakes) -> None:
    cells, options = (
        cells_of("table6", lambda cell: cell.column == "1-shot batch 2"),
        options_of(tmp_path, given=["n_query=3"]),
    )
    work(cells, dataclasses.replace(options, datasets={"mini": MINI, "cub": CUB}))
    run = tmp_path / "runs" / "4conv-1shot-pmeta"
    assert Run(run).config()["n_query"] == 3
    mini = Asked(str(run), MINI.root, split="val", tasks=4, batch=2, n_query=15, seed=1)
    assert fakes.evaluated == [mini, dataclasses.replace(mini, data=CUB.root, split="test")]


def test_no_run_is_evaluated_on_the_tasks_that_chose_its_model(
    tmp_path: Path, fakes: Fakes
) -> None:
    cells = cells_of("table6", lambda cell: cell.column == "1-shot batch 2")
    work(cells, dataclasses.replace(options_of(tmp_path), seeds=(0, 1, 2)))
    assert [config.seed for config in fakes.evaluated] == [1, 2, 3]


def test_nothing_is_done_twice(tmp_path: Path, fakes: Fakes) -> None:
    cells, options = cells_of("table6"), options_of(tmp_path)
    work(cells, options, ("4conv-1shot-pmeta",))
    assert len(fakes.done) == 2 * 4 + 1
    work(cells, options, ("4conv-1shot-pmeta",))
    assert len(fakes.done) == 2 * 4 + 1
    assert [
        step for job in queue.plan(cells, (), options) for step in queue.steps(job, options)
    ] == []


def test_more_tasks_of_evaluation_are_evaluated_and_fewer_are_there_already(
    tmp_path: Path, fakes: Fakes
) -> None:
    cells = cells_of("table4", lambda cell: cell.training == "4conv-1shot-pmeta")
    for tasks, calls in ((4, 2), (3, 2), (9, 3)):
        work(cells, options_of(tmp_path, eval_tasks=tasks))
        assert len(fakes.done) == calls


def test_what_was_stopped_goes_on(tmp_path: Path, fakes: Fakes) -> None:
    cells, options = cells_of("table6"), options_of(tmp_path)
    fakes.trouble["evaluate 4conv-1shot-pmeta mini-val-batch2"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        work(cells, options)
    before = list(fakes.done)
    assert before == ["train 4conv-1shot-pmeta", "evaluate 4conv-1shot-pmeta mini-val-batch1"]
    work(cells, options)
    assert fakes.done[2] == "evaluate 4conv-1shot-pmeta mini-val-batch2"
    assert len(fakes.done) == len(set(fakes.done)) == 8


def test_a_run_of_another_process_is_left_to_it_and_looked_at_again(
    tmp_path: Path, fakes: Fakes
) -> None:
    cells, options = cells_of("table6"), options_of(tmp_path)
    with Run(tmp_path / "runs" / "4conv-1shot-pmeta") as theirs:
        theirs.lock()
        (busy,) = work(cells, options)
        assert busy.run.name == "4conv-1shot-pmeta"
        assert all("5shot" in name for name in fakes.done)
        with pytest.raises(BusyError):
            Run(theirs.path).lock()
    fakes.trouble["train 4conv-1shot-pmeta"] = BusyError(
        "at work"
    )  # free again when the others are done
    assert work(cells, options) == []
    assert "train 4conv-1shot-pmeta" in fakes.done


def test_a_training_that_diverges_is_noted_and_the_others_go_on(
    tmp_path: Path, fakes: Fakes
) -> None:
    cells, options = cells_of("table6"), options_of(tmp_path)
    fakes.trouble["train 4conv-1shot-pmeta"] = DivergedError("loss was not finite.")
    work(cells, options)
    note = tmp_path / "runs" / "4conv-1shot-pmeta" / "failed.json"
    assert json.loads(note.read_text()) == {"error": "loss was not finite."}
    assert "train 4conv-5shot-pmeta" in fakes.done
    work(cells, options)
    assert not note.exists()
    assert "train 4conv-1shot-pmeta" in fakes.done


def test_what_is_broken_in_a_folder_is_done_again_or_named(tmp_path: Path, fakes: Fakes) -> None:
    cells, options = (
        cells_of("table4", lambda cell: cell.training == "4conv-1shot-pmeta"),
        options_of(tmp_path),
    )
    work(cells, options)
    run = tmp_path / "runs" / "4conv-1shot-pmeta"
    (run / "last.json").write_text("")
    work(cells, options)
    assert fakes.done[2:] == [
        "train 4conv-1shot-pmeta"
    ]  # which goes on from the checkpoint and writes last.json
    path = evaluations.path_of(run, "mini", "val", 1)
    for text, says in (
        ("{", "cannot be read .*"),
        ("{}", "is not as we write it .*`tasks`.*"),
        ("[]", "is not as we write it .*"),
    ):
        path.write_text(text)
        with pytest.raises(
            ValueError, match=rf"mini-val-batch1\.json {says}: remove it to evaluate again\.$"
        ):
            work(cells, options)


def test_why_a_training_failed(tmp_path: Path) -> None:
    assert queue.why_failed(tmp_path) == ""
    write_json(tmp_path / "failed.json", {"error": "loss was not finite."})
    assert queue.why_failed(tmp_path) == "loss was not finite."
    (tmp_path / "failed.json").write_text("{")
    with pytest.raises(
        ValueError,
        match=r"failed\.json cannot be read .*: remove it\.$",
    ):
        queue.why_failed(tmp_path)


def test_a_run_with_other_settings_is_refused_before_anything_starts(
    tmp_path: Path, fakes: Fakes
) -> None:
    cells = cells_of("table6")
    work(cells, options_of(tmp_path))
    fakes.done.clear()
    with pytest.raises(ValueError, match=r"pmeta has tasks=8 \(now 9\): choose another --out\.$"):
        queue.plan(cells, (), options_of(tmp_path, tasks=9))
    assert fakes.done == []


def test_seeds_have_their_own_runs_after_the_first_seed_of_all(
    tmp_path: Path, fakes: Fakes
) -> None:
    work(cells_of("table6"), options_of(tmp_path, seeds=(0, 3)))
    trained = [name.removeprefix("train ") for name in fakes.done if name.startswith("train")]
    assert trained == [
        f"4conv-{shots}shot-pmeta{seed}" for seed in ("", "-seed3") for shots in (1, 5)
    ]
    assert Run(tmp_path / "runs/4conv-1shot-pmeta-seed3").config()["seed"] == 3


def test_what_cannot_be_trained_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert queue.plan(cells_of("table4"), (), options_of(tmp_path, datasets={"cub": CUB})) == []
    names = {job.training.name for job in queue.plan(cells_of("table2"), (), options_of(tmp_path))}
    assert len(names) == 12
    assert not any("resnet12" in name for name in names)
    full = {
        job.training.name
        for job in queue.plan(cells_of("table2"), (), options_of(tmp_path, scale="paper"))
    }
    assert len(full) == 24
    assert queue.trainable(TRAININGS["cheetah-velocity-maml"], options_of(tmp_path)) == ""
    monkeypatch.setattr(queue.importlib.util, "find_spec", lambda name: None)
    needs = (
        "the Half-Cheetah needs MuJoCo: run pip install --constraint constraints.txt '.[rl]' in a "
        "checkout of pmeta"
    )
    assert queue.trainable(TRAININGS["cheetah-velocity-maml"], options_of(tmp_path)) == needs
    assert queue.trainable(TRAININGS["navigation-maml"], options_of(tmp_path, datasets={})) == ""


def test_cost_columns_ask_for_no_training(tmp_path: Path) -> None:
    assert queue.plan(cells_of("table2", lambda cell: cell.cost), (), options_of(tmp_path)) == []
    assert queue.plan(cells_of("table1"), (), options_of(tmp_path)) == []
