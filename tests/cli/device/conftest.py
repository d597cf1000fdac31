"""A small model, pictures of three classes, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pmeta import cli
from pmeta.compiler.export import export
from pmeta.method.methods import METHODS
from pmeta.network.backbones import FourConv, initialise
from pmeta.network.take_in import take_in
from tests.helpers.adapting import NAMES
from tests.helpers.device_models import trained


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = torch.Generator().manual_seed(0)
    net = take_in(initialise(FourConv(3, (3, 16, 16), 8, 2), generator), torch.zeros(1, 3, 16, 16))
    meta = trained(net, METHODS["pmeta"], generator, alpha_0=0.1, live=["conv4", "fc"])
    path = tmp_path_factory.mktemp("model") / "model.pmeta"
    path.write_bytes(export(net, meta, METHODS["pmeta"], (3, 16, 16), input_type="uint8").data)
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Three classes of one colour each."""
    random = np.random.default_rng(0)
    for label, name in enumerate(NAMES):
        for part, n in (("support", 2), ("query", 3)):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(n):
                pixels = random.integers(0, 60, (20, 24, 3), dtype=np.uint8)
                pixels[..., label] += 180
                Image.fromarray(pixels).save(tmp_path / part / name / f"{i}.png")
    return tmp_path


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    def check(message: str, *argv: object) -> None:
        assert cli.main(["adapt", *map(str, argv)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1

    return check
