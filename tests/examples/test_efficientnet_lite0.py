"""examples/efficientnet_lite0.py from pictures to a file, on a small chain of the same stages."""

import importlib.util
from collections import OrderedDict
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from pmeta.data.tasks import normalise
from pmeta.network.efficientnet import SCALE, SHIFT

SCRIPT = Path(__file__).parents[2] / "examples" / "efficientnet_lite0.py"
COLOURS = [(200, 0, 0), (0, 200, 0), (0, 0, 200), (200, 200, 0), (100, 100, 100)]


def chain(classes: int, size: int) -> nn.Sequential:
    """Stages under the names of the large network, with batch norms."""
    torch.manual_seed(0)
    stages = OrderedDict(
        stem=nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU6()),
        head=nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU6()),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
        embedding=nn.LayerNorm(16, elementwise_affine=False),
        fc=nn.Linear(16, classes),
    )
    return nn.Sequential(stages).eval()


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("efficientnet_lite0_example", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "efficientnet_lite0", chain)
    return module


def test_pixels_are_read_as_our_data_have_them(example: ModuleType) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    got = example.make_net(5, (3, 16, 16))(normalise(pixels))
    theirs = torch.from_numpy(pixels.transpose(0, 3, 1, 2)) * SCALE + SHIFT
    torch.testing.assert_close(got, chain(5, 16)(theirs))


def test_from_pictures_to_a_file(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    for name, colour in enumerate(COLOURS):
        (tmp_path / "val" / str(name)).mkdir(parents=True)
        for i in range(10):
            noisy = np.array(colour) + random.integers(0, 40, (16, 16, 3))
            path = tmp_path / "val" / str(name) / f"{i}.png"
            Image.fromarray(noisy.astype(np.uint8)).save(path)
    assert example.main(str(tmp_path), tmp_path / "runs" / "model.pmeta", 16) == 1
    assert capsys.readouterr().out.startswith("100% of 25 pictures right, learned in ")
