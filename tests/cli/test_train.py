"""`pmeta train` on the command line: every setting is an option, and mistakes are told."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from pmeta import kinds
from pmeta.cli import main
from pmeta.cli.train import parse
from pmeta.kinds.pictures.config import ImageConfig

NAMED: dict[str, Any] = kinds.named()
GLYPHS = "glyphs-4conv-5way-1shot"


def test_options_change_a_named_configuration() -> None:
    words = (
        "--method maml++ --tasks 10 --image-size None --clip-ratio-fw None --first-order --data "
        "DIR --out RUN --lr 1e-4"
    )
    config = parse([GLYPHS, *words.split()])
    changed: dict[str, Any] = {
        "method": "maml++",
        "tasks": 10,
        "clip_ratio_fw": None,
        "first_order": True,
        "lr": 1e-4,
    }
    expected = dataclasses.replace(NAMED[GLYPHS], **changed, data="DIR", out="RUN", image_size=None)
    assert config == expected


def test_a_network_of_ones_own() -> None:
    config = parse(["my_model.py:make_net", "--data", "DIR", "--out", "RUN", "--no-for-device"])
    expected = ImageConfig(data="DIR", out="RUN", model="my_model.py:make_net", for_device=False)
    assert config == expected


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit code, output, error of `pmeta train`."""
    try:
        code = main(["train", *argv])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    return code, *capsys.readouterr()


def test_the_pictures_of_the_paper_are_to_be_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = told(capsys, "miniimagenet-4conv-5way-1shot", "--out", str(tmp_path / "run"))
    told_so = (
        "pmeta: error: --data names the pictures, got none: give --data DIR, or --data glyphs for "
        "the embedded set.\n"
    )
    assert (code, out, err) == (2, "", told_so)
    assert not (tmp_path / "run").exists()


def test_help_lists_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(capsys, "--help")
    assert (code, err) == (0, "")
    assert all(f"\n  {name}\n" in out for name in NAMED)
    assert told(capsys) == (2, out, "")


def test_all_help_of_a_name_shows_every_setting_with_its_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = told(capsys, GLYPHS, "--help-all")
    assert (code, err) == (0, "")
    flat = re.sub(r"[^\w.,:;'()]+", " ", out)
    for field in dataclasses.fields(ImageConfig):
        assert f"--{field.name.replace('_', '-')}" in out
    for sentence in (
        "The method to train.",
        "a run that is there already goes on.",
        "Tasks in one outer update.",
    ):
        assert sentence in flat


@pytest.mark.parametrize("name", NAMED)
def test_help_of_a_name_fits_a_screen(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(capsys, name, "--help")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= 45
    assert all(len(line) <= 100 for line in lines)
    options = re.findall(r"^  --([\w-]+)", out, re.M)
    assert "out" in options
    known = {f.name.replace("_", "-") for f in dataclasses.fields(NAMED[name])}
    assert set(options) <= known
    assert out.endswith("--help-all shows all options.\n")


def test_mistakes_on_the_command_line_exit_2_with_a_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    message = (
        "pmeta: error: --out names the run folder, got none: say where to keep the run, as in "
        "--out runs/first.\n"
    )
    assert told(capsys, GLYPHS) == (2, "", message)
    message = (
        f"pmeta: error: the configurations are {', '.join(NAMED)}, and FILE.py:FUNCTION for a "
        "network of your own, got 'glyphs'.\n"
    )
    assert told(capsys, "glyphs", "--out", "x") == (2, "", message)
    for words, told_why in (
        ("--groups 5", "--groups must divide --channels, got 5 groups for 32 channels."),
        ("--tasks many", "many"),
        ("--method sgd", "maml"),
        ("--batches 3", "--batches"),
    ):
        code, out, err = told(capsys, GLYPHS, "--out", "x", *words.split())
        assert (code, out) == (2, "")
        assert told_why in " ".join(err.split())


def test_a_run_leaves_its_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = "--tasks 4 --epoch-tasks 2 --val-tasks 2 --channels 4 --groups 2 --workers 1"
    code, out, _ = told(capsys, GLYPHS, *words.split(), "--out", str(tmp_path))
    assert code == 0
    assert out.endswith(f"next: pmeta evaluate {tmp_path}\n")
    for name in ("curve.png", "step_sizes.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
