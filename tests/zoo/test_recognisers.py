"""The recognisers that ship: their card, their promises, and that they adapt to a recording."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pmeta import cli, device, zoo
from pmeta.cli.export import export_run
from pmeta.data.recordings.files import read_recordings
from pmeta.device.model_file import completed, facts, temperatures, with_facts
from pmeta.kinds.recordings.best import load
from pmeta.method.inner import InnerLoop

NAMES = zoo.recognisers()


def written(path: Path, windows: dict[str, object], seed: int) -> Path:
    """A made-up recording with every activity."""
    columns, labels = windows["columns"], windows["labels"]
    assert isinstance(columns, list)
    assert isinstance(labels, list)
    rng, rows = np.random.default_rng(seed), [",".join([*columns, "time", "label"])]
    for i, label in enumerate(labels):
        for t in range(200):
            values = rng.normal(0, 0.3, len(columns)) + 9.8 * (np.arange(len(columns)) == i)
            moment = (200 * i + t) / 100
            rows.append(",".join(f"{v:.4f}" for v in values) + f",{moment:.2f},{label}")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_one_ships() -> None:
    assert "har-conv1d" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_keeps_to_what_its_card_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = zoo.find(name)
    model = device.load(file)
    assert cli.main(["zoo", name]) == 0
    card = capsys.readouterr().out
    assert f"{file.stat().st_size:,} bytes" in card
    assert f"{model.arena_bytes:,} bytes" in card
    assert "CC BY 4.0" in card
    assert file.stat().st_size <= 64_000
    assert model.arena_bytes <= 48_000


@pytest.mark.parametrize("name", NAMES)
def test_it_adapts_to_a_recording(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    windows = device.load(zoo.find(name)).facts["windows"]
    few, more = (written(tmp_path / f"{i}.csv", windows, i) for i in range(2))
    argv = ["adapt", name, "--support", str(few), "--query", str(more), "--json"]
    assert cli.main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy"] > 0.8  # five ways to hold it, chance is 0.2
    assert found["high_water_bytes"] <= found["arena_bytes"]
    assert found["losses"][-1] < found["losses"][0]
    assert cli.main([*argv, "--mirror"]) == 2
    error = capsys.readouterr().err
    assert "pictures (channels, height, width) are mirrored" in error
    assert error.endswith("leave mirror out.\n")


RUN = Path(__file__).parents[2] / "zoo" / "runs" / "har"


def test_what_ships_is_the_run_that_is_kept_and_adapts_as_pytorch_does(tmp_path: Path) -> None:
    shipped = zoo.find("har-conv1d").read_bytes()
    told = completed(facts(shipped), "float32", 1)  # what an export of today says besides
    assert export_run(str(RUN)).data == with_facts(shipped, told, temperatures(shipped))
    assert len(temperatures(shipped)) == 10
    trained, model = load(str(RUN)), device.DeviceModel(shipped)
    path = written(tmp_path / "few.csv", trained.windowing.as_facts(), seed=3)
    cut = trained.windowing.cut(read_recordings(path, tmp_path)[0])
    x, y = cut.x[cut.y >= 0], cut.y[cut.y >= 0]
    loop = InnerLoop(trained.net, trained.config.method_row(), batch=1)
    w = loop.adapt(trained.meta, (torch.from_numpy(x), torch.from_numpy(y))).w
    model.adapt(x, y)
    for name, got in model.weights().items():
        distance = np.linalg.norm(got - w[name].numpy()) / np.linalg.norm(w[name].numpy())
        assert distance < 1e-4, name
