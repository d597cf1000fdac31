"""examples/efficientnet_lite0.py from pictures to a file, on a small chain of the same stages."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from pmeta.device.binding import DeviceModel

SCRIPT = Path(__file__).parents[2] / "examples" / "efficientnet_lite0.py"


CODE = """
from collections import OrderedDict
import torch
from torch import nn
import pmeta

def make_net(classes, image):
    chain = nn.Sequential(OrderedDict(
        stem=nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU6()),
        block14=nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU6()),
        pool=nn.AdaptiveAvgPool2d(1),
        scale=nn.Conv2d(8, 8, 1, groups=8),
        flat=nn.Flatten(),
        embedding=nn.LayerNorm(8, elementwise_affine=False),
        fc=nn.Linear(8, classes),
    ))
    nn.init.ones_(chain.scale.weight)
    nn.init.zeros_(chain.scale.bias)
    return pmeta.prepare(chain.eval(), torch.zeros(1, *image))
"""
"""Stages under the names of the large network, with batch norms."""


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("efficientnet_lite0_example", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def pictures(root: Path) -> Path:
    random = np.random.default_rng(0)
    colours = {"a": (200, 0, 0), "b": (0, 200, 0), "c": (0, 0, 200), "d": (200, 200, 0)}
    for split in ("train", "val"):
        for name, colour in {**colours, "e": (100, 100, 100)}.items():
            (root / split / name).mkdir(parents=True)
            for i in range(10):
                noisy = np.array(colour) + random.integers(0, 40, (16, 16, 3))
                Image.fromarray(noisy.astype(np.uint8)).save(root / split / name / f"{i}.png")
    return root


def test_from_pictures_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example, out = script(), tmp_path / "run"
    (tmp_path / "small.py").write_text(CODE)
    monkeypatch.setenv("PMETA_CACHE", str(tmp_path / "cache"))
    given = ["--data", str(pictures(tmp_path / "data")), "--budget", "100kB", "--out", str(out)]
    sizes = [
        "--image-size",
        "16",
        "--tasks",
        "8",
        "--model",
        f"{tmp_path}/small.py:make_net",
    ]
    monkeypatch.setattr(sys, "argv", ["efficientnet_lite0.py", *given, *sizes])
    example.main()
    assert "of 25 pictures right, learned in" in capsys.readouterr().out
    assert len(list((tmp_path / "cache").glob("features-*.npy"))) == 2
    model = DeviceModel(out.with_suffix(".pmeta").read_bytes())
    assert model.arena_bytes <= 100_000
    x = np.stack(
        [
            np.asarray(Image.open(path)).transpose(2, 0, 1)
            for path in sorted((tmp_path / "data" / "val").glob("*/0.png"))
        ]
    )
    model.adapt(x, np.arange(5))
    assert model.predict(x).labels.tolist() == [0, 1, 2, 3, 4]
