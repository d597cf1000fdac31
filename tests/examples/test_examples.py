"""Every example runs: shortened, but whole, from a model to what the device says."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from pmeta import Learner, device
from pmeta.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pictures(root: Path) -> Path:
    """Folders of classes: five to train on, two to validate on, which are fewer than --n-way."""
    rng = np.random.default_rng(0)
    for split, classes in (("train", 5), ("val", 2)):
        for c in range(classes):
            folder = root / split / f"class{c}"
            folder.mkdir(parents=True)
            for i in range(4):
                pixels = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return root


def test_own_model_on_own_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a file of Python and a folder of pictures to a file of at most half of MAML's bytes."""
    data, model = pictures(tmp_path / "data"), f"{EXAMPLES}/own_pictures/my_model.py:make_net"
    small = "--image-size 16 --n-way 3 --n-query 2 --inner-steps 2 --tasks 4 --epoch-tasks 2"
    more = f"--val-tasks 2 --meta-batch 2 --freeze-at 0.5 --workers 1 --data {data}"
    for name, options in (("maml", "--method maml"), ("pmeta", "--memory-budget 50%")):
        words = f"{small} {more} {options} --out {tmp_path / name}".split()
        assert main(["train", model, *words]) == 0
        assert f"next: pmeta evaluate {tmp_path / name} --model {model}" in capsys.readouterr().out
        assert json.loads((tmp_path / name / "calibration.json").read_text())["temperatures"]
        file = str(tmp_path / f"{name}.pmeta")
        words = [str(tmp_path / name), "--model", model, "-o", file, "--quiet"]
        assert main(["export", *words]) == 0
    found, maml = (device.load(tmp_path / f"{name}.pmeta") for name in ("pmeta", "maml"))
    assert found.arena_bytes <= maml.arena_bytes / 2
    words = f"{tmp_path / 'pmeta'} --model {model} --split val --tasks 2 --workers 1".split()
    assert main(["evaluate", *words]) == 0
    words = f"{tmp_path / 'pmeta'} --model {model} --tasks 2 --workers 1".split()
    assert main(["calibrate", *words]) == 0
    for words in (["evaluate", "--split", "val"], ["calibrate"]):
        assert main([*words, str(tmp_path / "pmeta"), "--workers", "1"]) == 2
        told = capsys.readouterr().err
        assert f"code that runs only where you name it: give --model {model}." in told
    assert main(["report", str(tmp_path / "pmeta"), "--out", str(tmp_path / "report.html")]) == 0
    assert "my_model.py:make_net" in (tmp_path / "report.html").read_text()


def test_sinusoid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = example("sinusoid").main(tmp_path, tasks=80)
    assert after < before
    assert "of MAML's" in capsys.readouterr().out


def test_accelerometer(tmp_path: Path) -> None:
    """The device does on the same gestures what the validation promised."""
    reached = example("accelerometer").main(tmp_path, tasks=20)
    best = json.loads((tmp_path / "run/best.json").read_text())
    assert reached == pytest.approx(best["val_accuracy"] / 100, abs=0.03)


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_plain_c(tmp_path: Path) -> None:
    """The same classes as the engine gives behind Python."""
    torch.manual_seed(0)
    body = (nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))
    learner = Learner(nn.Sequential(*body), torch.zeros(1, 2, 8), inner_steps=3, alpha_0=0.3)
    learner.export(tmp_path / "model.pmeta")
    y = np.arange(3, dtype=np.uint32).repeat(4)
    x = np.random.default_rng(0).normal(y[:, None, None], 0.3, (12, 2, 8)).astype(np.float32)
    samples = [label.tobytes() + sample.tobytes() for label, sample in zip(y, x, strict=True)]
    (tmp_path / "support.bin").write_bytes(b"".join(samples))
    (tmp_path / "query.bin").write_bytes(x[::-1].tobytes())
    make = ["make", "-s", f"OUT={tmp_path}/", "adapt", "CFLAGS=-std=c99 -O1 -Wall -Werror"]
    subprocess.run(make, cwd=EXAMPLES / "plain_c", check=True)
    files = [str(tmp_path / name) for name in ("model.pmeta", "support.bin", "query.bin")]
    ran = subprocess.run([str(tmp_path / "adapt"), *files], capture_output=True, check=True)
    engine = device.load(tmp_path / "model.pmeta")
    engine.adapt(x, y.astype(np.int64))
    assert [int(line) for line in ran.stdout.split()] == engine.predict(x[::-1]).labels.tolist()
    broken = subprocess.run([str(tmp_path / "adapt"), *files[1:], files[0]], capture_output=True)
    assert broken.returncode == 1
    assert broken.stderr
