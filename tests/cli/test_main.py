"""The dispatcher: help, errors in one line, quiet ends."""

import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from pmeta import cli


def add_command(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[list[str]], int | None]
) -> None:
    """Add the command `fake`."""
    module = ModuleType("pmeta.cli.fake")
    module.__dict__["main"] = function
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(cli.COMMANDS, "fake", ("fake", "nothing"))


def raising(error: str, owner: str) -> Callable[[list[str]], int | None]:
    scope = {"__name__": owner}
    exec(f"def run(argv): raise {error}", scope)
    return scope["run"]  # type: ignore[return-value]


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name}" in out and line in out for name, (_, line) in cli.COMMANDS.items())
    assert cli.main([]) == 2
    assert capsys.readouterr().out == out


def test_every_command_can_be_imported() -> None:
    for name in cli.COMMANDS:
        run = subprocess.run(
            [sys.executable, "-m", "pmeta", name, "--help"], capture_output=True, text=True
        )
        assert (run.returncode, run.stderr) == (0, "")
        assert f"pmeta {name}" in run.stdout


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("pmeta ")


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["costs"]) == 2
    message = (
        f"pmeta: error: the commands are {', '.join(cli.COMMANDS)}, got 'costs': see pmeta "
        "--help.\n"
    )
    assert capsys.readouterr().err == message


def test_a_command_gets_its_arguments_and_gives_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_command(monkeypatch, lambda argv: len(argv))
    assert cli.main(["fake", "a", "b", "c"]) == 3
    add_command(monkeypatch, lambda argv: None)
    assert cli.main(["fake"]) == 0


def test_our_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_command(
        monkeypatch, raising("ValueError('the rule, what came, the way out.')", "pmeta.fake")
    )
    assert cli.main(["fake"]) == 2
    assert capsys.readouterr().err == "pmeta: error: the rule, what came, the way out.\n"
    add_command(
        monkeypatch, raising("FileNotFoundError('no run at x: train one first.')", "pathlib")
    )
    assert cli.main(["fake"]) == 2
    assert capsys.readouterr().err == "pmeta: error: no run at x: train one first.\n"


def test_errors_of_others_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    add_command(monkeypatch, raising("ValueError('shapes differ')", "numpy.fake"))
    with pytest.raises(ValueError, match="shapes differ"):
        cli.main(["fake"])
    add_command(monkeypatch, raising("KeyError('bug')", "pmeta.fake"))
    with pytest.raises(KeyError):
        cli.main(["fake"])


def test_ctrl_c_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_command(monkeypatch, raising("KeyboardInterrupt", "pmeta.fake"))
    assert cli.main(["fake"]) == 130
    assert tuple(capsys.readouterr()) == ("", "")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["cost", "--backbone", "resnet12", "--method", "maml"]]
)
def test_a_reader_that_leaves_early_is_met_quietly(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        run = subprocess.run(
            [sys.executable, "-m", "pmeta", *arguments],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (run.returncode, run.stderr) == (1, "")
