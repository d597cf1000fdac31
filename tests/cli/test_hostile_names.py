"""Escape sequences in the names of files, classes and weights never reach the terminal."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pmeta import cli
from pmeta.device import model_file as flatfile
from tests.helpers.device_models import case

EVIL = "\x1b[2J\x9bcat\x07"
SHOWN = r"\x1b[2J\x9bcat\x07"


def printed(argv: list[str], capfd: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert cli.main(argv) == code
    out, err = capfd.readouterr()
    assert not {"\x1b", "\x9b", "\x07"} & set(out + err)
    return out + err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (EVIL, "dog"):
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((12, 12, 3), np.uint8)).save(tmp_path / "set" / name / "a.png")
    return tmp_path


def test_skipped_files(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "set" / EVIL / f"{EVIL}.jpg").write_text("no picture")
    shown = printed(["data", "info", str(folder / "set")], capfd)
    assert shown.count(f"{SHOWN}/{SHOWN}.jpg: not an image") == 2


def test_adapt(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Classes, pictures, and the names of weights in the model."""
    exported = case("depthwise-12", "pmeta", seed=1, raw=True).exported.data
    name, evil = b"depthwise.weight", rb"\u001b[2J\u009bx"  # in JSON, of one length
    assert exported.count(b'"' + name + b'"') == 1
    model = folder / "model.pmeta"
    model.write_bytes(flatfile.seal(exported.replace(name, evil)))
    set_ = str(folder / "set")
    shown = printed(["adapt", str(model), "--support", set_, "--query", set_, "--verbose"], capfd)
    assert f"{SHOWN}/a.png\t" in shown
    assert r"\x1b[2J\x9bx " in shown


def test_errors(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = folder / "model.pmeta"
    model.write_bytes(case("depthwise-12", "pmeta", seed=1, raw=True).exported.data)
    (folder / "set" / EVIL / "a.png").write_text("no picture")
    set_ = str(folder / "set")
    assert SHOWN in printed(["adapt", str(model), "--support", set_], capfd, code=2)
    assert SHOWN in printed(["data", "info", str(folder / EVIL)], capfd, code=2)
    assert SHOWN in printed([EVIL], capfd, code=2)


def test_json_is_escaped_by_itself(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shown = printed(["data", "info", str(folder / "set"), "--json"], capfd)
    assert json.loads(shown)["height"] == 12
