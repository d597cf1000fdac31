"""What a training shows: the line beside the bar, lines without a terminal, TensorBoard."""

import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from pmeta.training import log as module
from pmeta.training.log import Log
from pmeta.training.run_folder import Run
from tests.training.test_trainer import Counting, train


def log_of(training: Counting, path: Path = Path(), tensorboard: bool = False) -> Log:
    return Log(Run(path), training, shown=True, tensorboard=tensorboard)


def test_without_a_terminal_it_says_now_and_then_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    training = Counting()
    with log_of(training) as log:
        training.at = 3
        log.update({"loss": 1.5}, {}, 0)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
        log.update({"loss": 1.5}, {"val_loss": 0.25}, 2)
    said = r"3 of 7 updates  [\d.]+ updates/s  loss 1\.5  best val loss 0\.2500  2 tasks skipped\n"
    assert re.fullmatch(said, capsys.readouterr().err)


def test_a_validation_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with log_of(Counting()) as log:
        record = {"tasks": 4, "loss": 1.0, "val_loss": 0.5, "val_ci95": 0.1, "memory_mb": 0.25}
        log.show(record, skipped=0)
        log.show(record, skipped=3)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "      4 tasks  loss 1.0000  val loss 0.5000 ± 0.1000  memory 0.25 MB"
    assert second == f"{first}  3 tasks skipped"


def test_a_narrow_terminal_shows_how_far_it_is_and_how_long_it_takes() -> None:
    training = Counting()
    training.title, training.total = "p-Meta (LR+attention)", 100_000
    with log_of(training) as log:
        status = "10.1 updates/s  loss 1.843  best val 49.1 %  memory 0.99 MB"
        log.bar.update(log.row, completed=1234, status=status)
        shown = io.StringIO()
        Console(file=shown, width=90).print(log.bar.get_renderable())
    (line,) = shown.getvalue().splitlines()
    assert re.fullmatch(
        r"p-Meta \(LR\+attention\) +1234/100000 updates +-:--:-- 10\.1 updates/s .*", line
    )


@pytest.mark.parametrize(
    ("done", "said"), [(0, ""), (3, "going on after 3 of 7 updates\n"), (7, "")]
)
def test_a_run_that_goes_on_says_from_where(
    done: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    training = Counting()
    training.at = done
    with log_of(training):
        assert capsys.readouterr().err == said


def test_tensorboard_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    message = (
        "--tensorboard needs the package tensorboard: run pip install --constraint constraints.txt "
        "'.[tensorboard]' in"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        log_of(Counting(), tmp_path, tensorboard=True)


def test_skipped_tasks_are_told_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "bad", Counting(bad=3))
    assert "1 of 7 tasks were skipped, since their loss" in capsys.readouterr().err
    train(tmp_path / "good", Counting())
    assert "were skipped" not in capsys.readouterr().err
