"""The C program for a wrist does with a stream what Python does with a recording."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pmeta import device, zoo
from pmeta.data.recordings.files import Recording
from pmeta.data.recordings.windows import NO_LABEL, Windowing

FOLDER = Path(__file__).parents[2] / "examples" / "wrist_c"
CHANNELS = 6
needs_make = pytest.mark.skipif(not shutil.which("make"), reason="needs make")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wrist")
    flags = "CFLAGS=-std=c99 -O1 -pedantic -Wall -Wextra -Werror"
    subprocess.run(["make", "-s", f"OUT={out}/", "wrist", flags], cwd=FOLDER, check=True)
    return out / "wrist"


def wear(labelled: int = 300, bare: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Readings of two ways to hold a sensor, said aloud at first and then not."""
    y = np.concatenate([np.repeat([0, 3], labelled), np.repeat([3, 0], bare)])
    x = np.random.default_rng(0).normal(0, 0.3, (len(y), CHANNELS))
    x[:, 0] += 9.8 * (y == 0)
    x[:, 1] += 9.8 * (y == 3)
    said = np.arange(len(y)) < 2 * labelled
    return x.astype(np.float32), np.where(said, y, NO_LABEL)


def run(program: Path, ratio: float, text: str) -> "subprocess.CompletedProcess[str]":
    file = zoo.find("har-conv1d")
    stride = device.load(file).facts["windows"]["stride"]
    argv = [str(program), str(file), str(stride), str(ratio)]
    return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60)


@needs_make
@pytest.mark.parametrize("ratio", [1.0, 2.0])
def test_windows_labels_and_predictions_are_those_of_python(program: Path, ratio: float) -> None:
    x, y = wear(int(300 * ratio), int(500 * ratio))
    lines = [
        ",".join([*(f"{v:.6f}" for v in row), *([str(label)] if label >= 0 else [])])
        for row, label in zip(x, y, strict=True)
    ]
    ran = run(program, ratio, "\n".join(lines) + "\n")
    assert ran.returncode == 0, ran.stderr
    model = device.load(zoo.find("har-conv1d"))
    windowing = Windowing.from_facts(model.facts["windows"])
    names = np.array([*windowing.labels, ""])[y]
    rows = np.array([line.split(",")[:CHANNELS] for line in lines], np.float32)
    cut = windowing.cut(Recording("r", "", windowing.columns, rows, ratio * windowing.rate, names))
    known = cut.y != NO_LABEL
    # a window across the last label has none and comes first: all labelled ones are before it
    model.adapt(cut.x[known], cut.y[known])
    want = model.predict(cut.x[~known])
    got = [line.split() for line in ran.stdout.splitlines()]
    between = int((~known[: int(np.flatnonzero(known)[-1])]).sum())  # of both ways, before the end
    assert f"adapted to {int(known.sum())} windows" in ran.stderr
    assert [int(label) for _, label, _ in got][between:] == want.labels.tolist()[between:]
    sure = [float(p) for *_, p in got][between:]
    np.testing.assert_allclose(sure, want.probabilities.max(1)[between:], atol=2e-3)
    assert {0, 3} <= {int(label) for _, label, _ in got}


@needs_make
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3\n", "line 1: a reading has a number for each channel"),
        ("1,2,3,4,5,6\n1,2,3,4,5,6,9\n", "line 2: no such activity"),
    ],
)
def test_lines_that_are_no_readings(program: Path, text: str, message: str) -> None:
    ran = run(program, 1.0, text)
    assert (ran.returncode, message in ran.stderr) == (2, True)
