"""What a run shows: the line beside the bar, when an epoch ends, missing packages."""

import dataclasses
import io
import json
import re
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from rich.console import Console

from pmeta.cost.adaptation import cost
from pmeta.method.meta_gradient import MetaGradient
from pmeta.method.outer import Outer, Schedule
from pmeta.training.config import ImageConfig
from pmeta.training.log import Log
from pmeta.training.run_folder import Run
from pmeta.training.train import build, training_loop
from pmeta.training.workers import Group

TINY = ImageConfig(image_size=None, channels=8, groups=4, tasks=10, meta_batch=2, epoch_tasks=5)


def log_in(path: Path, config: ImageConfig = TINY, rank: int = 0) -> Log:
    net, meta = build(config, (1, 28, 28), torch.device("cpu"))
    return Log(
        Run(path),
        Group(rank),
        config,
        Outer(training_loop(net, config), meta, Schedule(config.updates)),
    )


def gradient(log: Log, skipped: int = 0) -> MetaGradient:
    zeros = {n: torch.zeros_like(t) for n, t in log.outer.meta.parameters().items()}
    return MetaGradient(zeros, 3.0, 1.0, 2 - skipped, skipped)


def test_the_line_beside_the_bar(tmp_path: Path) -> None:
    costs = cost(log_in(tmp_path).outer.loop.net.ops, [{"fc"}], 5)
    with log_in(tmp_path) as log:
        assert "loss nan" in log.status()  # nothing yet
        log.outer.update(gradient(log))
        log.update(gradient(log), costs)
        assert "tasks/s  loss 1.500  memory 0.03 MB" in log.status()
        log.best = {"val_accuracy": 61.04}
        log.outer.update(gradient(log, skipped=1))
        log.update(gradient(log, skipped=1), costs)
        assert log.status().endswith(
            "tasks/s  loss 2.000  best val 61.0 %  memory 0.03 MB  [red]1 tasks skipped[/red]"
        )
        assert log.tasks_done == 4


def test_a_task_that_is_skipped_in_the_last_update_does_not_keep_the_run_from_its_end(
    tmp_path: Path,
) -> None:
    with log_in(tmp_path) as log:
        for update in range(TINY.updates):
            log.outer.update(gradient(log, skipped=int(update in (1, TINY.updates - 1))))
            log.checkpoint(now=True)
            found = log.run.load("last")
            assert found
            assert found.info["tasks"] == (2 if update == 1 else log.tasks_done)
        assert log.tasks_done == TINY.tasks


def test_a_narrow_terminal_shows_how_far_it_is_and_how_long_it_takes(tmp_path: Path) -> None:
    with log_in(tmp_path, dataclasses.replace(TINY, tasks=100_000)) as log:
        log.bar.update(
            log.row,
            completed=1234,
            status="10.1 tasks/s  loss 1.843  best val 49.1 %  memory 0.99 MB",
        )
        shown = io.StringIO()
        Console(file=shown, width=80).print(log.bar.get_renderable())
    (line,) = shown.getvalue().splitlines()
    assert re.fullmatch(
        r"p-Meta \(LR\+attention\) +1234/100000 tasks +-:--:-- 10\.1 tasks/s .*", line
    )


def test_a_checkpoint_that_is_ahead_of_its_json_puts_it_right(tmp_path: Path) -> None:
    """As after a kill between the two."""
    with log_in(tmp_path) as log:
        log.outer.done = 5
        log.checkpoint(now=True)
    assert Run(tmp_path).tasks_done() == 10
    for text in ('{"tasks": 8}', ""):
        (tmp_path / "last.json").write_text(text)
        log_in(tmp_path)
        assert Run(tmp_path).tasks_done() == 10


def test_a_run_that_goes_on_says_from_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for done, said in ((0, ""), (3, "going on after 6 of 10 tasks\n"), (5, "")):
        log = log_in(tmp_path)
        log.outer.done = done
        log.checkpoint(now=True)
        with log_in(tmp_path):
            assert capsys.readouterr().err == said


def test_epochs_end_after_so_many_updates_and_at_the_end(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    ends = []
    for done in range(1, 6):
        log.outer.done = done
        ends.append(log.epoch_ends())
    assert ends == [False, True, False, True, True]  # 5 tasks are 2 updates of 2, to the nearest


def test_other_processes_write_nothing(tmp_path: Path) -> None:
    with log_in(tmp_path / "none", rank=1) as log:
        log.checkpoint(now=True)
    assert not (tmp_path / "none").exists()


def test_tensorboard_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    message = (
        "--tensorboard needs the package tensorboard: run pip install --constraint constraints.txt "
        "'.[tensorboard]' in"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        log_in(tmp_path, dataclasses.replace(TINY, tensorboard=True))


def test_skipped_tasks_are_told_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_in(tmp_path)
    log.skipped = 3
    with log:
        pass
    assert "skipped" not in capsys.readouterr().err  # stopped before the end
    log.outer.done = log.config.updates
    with log:
        pass
    assert "3 of 10 tasks were skipped, since their loss" in capsys.readouterr().err


def saved(path: Path, **changes: torch.Tensor) -> None:
    """The checkpoint of a run with some tensors changed."""
    log = log_in(path)
    log.checkpoint(now=True)
    found = log.run.load("last")
    assert found is not None
    data = safetensors.torch.save({**found.tensors, **changes}, {"info": json.dumps(found.info)})
    (path / "last.safetensors").write_bytes(data)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alpha": torch.zeros(3, 2)}, r"where alpha has the shape \(5, 9\), got \(3, 2\)"),
        ({"alpha": torch.full((5, 9), torch.nan)}, "numbers of a checkpoint are finite, alpha"),
        ({"alpha": torch.full((5, 9), -1.0)}, "step sizes of a checkpoint are not negative"),
        ({"done": torch.tensor(-7)}, "behind 0 to 5 updates, this one says -7"),
        ({"done": torch.tensor(6)}, "behind 0 to 5 updates, this one says 6"),
        ({"steps": torch.tensor(4)}, "says 0, and 4 steps of Adam"),
        ({"mask": torch.ones(2, 2)}, r"where mask has the shape \(5, 9\), got \(2, 2\)"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    changes: dict[str, torch.Tensor], words: str, tmp_path: Path
) -> None:
    saved(tmp_path, **changes)
    with pytest.raises(ValueError, match=words):
        log_in(tmp_path)


def test_shortened_metrics_are_noticed_at_the_start(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.run.log({"tasks": 2})
    log.lines = 1
    log.checkpoint(now=True)
    (tmp_path / "metrics.jsonl").write_text('{"ta')
    with pytest.raises(ValueError, match=r"behind 1 lines of metrics\.jsonl, which has 0: put"):
        log_in(tmp_path)
