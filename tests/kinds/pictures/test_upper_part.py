"""The part above kept features learns what the whole network would, and its run is whole."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from pmeta import cli, device
from pmeta.data.tasks import ImageSet, sample_task
from pmeta.kinds.pictures.best import load, restore
from pmeta.kinds.pictures.features import cache_features
from pmeta.kinds.pictures.upper_part import cut_at_stage, stage_number
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta, init_meta
from pmeta.method.meta_gradient import task_gradient
from pmeta.method.methods import METHODS
from pmeta.network.take_in import take_in
from pmeta.training.run_folder import Run

CODE = """
from collections import OrderedDict
from torch import nn

def make_net(classes, image):
    return nn.Sequential(OrderedDict(
        stem=nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU()),
        body=nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU()),
        flat=nn.Flatten(),
        fc=nn.Linear(54, classes),
    ))

def branched(classes, image):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(432, classes)
        def forward(self, x):
            return self.fc(x.flatten(1))
    return Net()
"""


def made() -> nn.Sequential:
    torch.manual_seed(0)
    space: dict[str, Any] = {}
    exec(CODE, space)
    model = space["make_net"](3, (3, 12, 12))
    assert isinstance(model, nn.Sequential)
    return model


def images() -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 12, 12, 3), np.uint8)
    starts, counts = np.array([0, 10, 20]), np.array([10, 10, 10])
    return ImageSet(pixels, ["a", "b", "c"], starts, counts, "test", [])


@pytest.mark.parametrize("name", ["pmeta-lr", "pmeta"])
def test_its_gradients_are_those_of_the_whole_network(name: str, tmp_path: Path) -> None:
    net, method = take_in(made(), torch.zeros(1, 3, 12, 12)), METHODS[name]
    meta = init_meta(net, method, 2, 0.1, torch.Generator().manual_seed(0), "prototype")
    part = cut_at_stage(net, meta, stage_number(net.model, "body"))
    upper = part.narrowed(meta)
    assert upper.alpha.shape == (2, 2)
    whole = part.widened(upper)
    assert whole.alpha.tolist() == pytest.approx(np.array([[0, 0.1, 0.1]] * 2))
    assert whole.w.keys() == meta.w.keys()
    assert whole.attention.keys() == meta.attention.keys()
    features = cache_features(part.lower, images(), tmp_path, progress=False)
    sizes = (0, 4, 3, 2, 3)
    expected = task_gradient(InnerLoop(net, method), whole, sample_task(images(), *sizes))
    found = task_gradient(InnerLoop(part.net, method), upper, sample_task(features, *sizes))
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    assert {"alpha", "w/body.0.weight", "head/log_scale"} <= found.gradients.keys()
    for key, g in found.gradients.items():
        wanted = expected.gradients[key]
        torch.testing.assert_close(g, wanted[:, 1:] if key == "alpha" else wanted)


def test_a_choice_counts_the_whole_network() -> None:
    net, method = take_in(made(), torch.zeros(1, 3, 12, 12)), METHODS["pmeta-lr"]
    meta = init_meta(net, method, 1, 0.1, torch.Generator().manual_seed(0), "prototype")
    part = cut_at_stage(net, meta, 1)
    seen: list[Any] = []

    def choose(whole: Meta) -> Meta:
        seen.append(whole.mask.tolist())
        return dataclasses.replace(whole, mask=torch.tensor([[False, False, True]]))

    assert part.choice(choose)(part.narrowed(meta)).mask.tolist() == [[False, True]]
    assert seen == [[[False, True, True]]]


def test_a_stage_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"one of the stages stem, body, flat, fc, got 'neck'\.$"):
        stage_number(made(), "neck")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pictures and a network, and a cache of one's own."""
    monkeypatch.setenv("PMETA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text(CODE)
    random = np.random.default_rng(0)
    for split in ("train", "val"):
        for c in range(4):
            (tmp_path / "data" / split / f"c{c}").mkdir(parents=True)
            for i in range(6):
                pixels = random.integers(0, 80, (12, 12, 3)) + 50 * c * (np.arange(3) == c % 3)
                picture = Image.fromarray(pixels.astype(np.uint8))
                picture.save(tmp_path / "data" / split / f"c{c}" / f"{i}.png")
    return tmp_path


def train(folder: Path, out: str, *more: str) -> int:
    options = (
        "--image-size 12 --n-way 3 --n-query 2 --head prototype --method pmeta-lr --inner-steps 1 "
        "--tasks 8 --meta-batch 2 --epoch-tasks 4 --val-tasks 2 --freeze-at 0.5 --workers 1 "
        "--memory-budget 20kB --lam 0"
    )
    model, data = f"{folder}/mine.py:make_net", str(folder / "data")
    where = ["--data", data, "--out", str(folder / out)]
    return cli.main(["train", model, *where, *options.split(), *more])


def test_a_run_of_the_upper_part_is_a_run_of_the_whole(folder: Path) -> None:
    kept = ("--cache-features", "--cut-at", "body", "--first-order", "--most-images", "5")
    assert train(folder, "run", *kept) == 0
    files = list((folder / "cache").glob("features-*.npy"))
    assert sorted(len(np.load(file)) for file in files) == [20, 20]
    best = Run(folder / "run").load("best")
    assert best is not None
    assert best.info["input"] == [3, 12, 12]
    assert best.tensors["alpha"].shape == (1, 3)
    assert best.tensors["alpha"][0, 0] == 0
    assert (best.tensors["alpha"][0, 1:] > 0).any()
    made_by = ["--model", f"{folder}/mine.py:make_net"]
    run, out = str(folder / "run"), str(folder / "mine.pmeta")
    assert cli.main(["evaluate", run, *made_by, "--split", "val", "--tasks", "2"]) == 0
    assert cli.main(["export", run, *made_by, "-o", out, "--quiet"]) == 0
    assert device.load(out).arena_bytes <= 20_000


def test_weights_below_a_stage_stay_as_they_came(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ("--cut-at", "stem", "--cache-features", "--lr", "0.01", "--train-from")
    assert train(folder, "run", *kept, "body") == 0
    best = Run(folder / "run").load("best")
    assert best is not None
    came = made().state_dict()
    assert torch.equal(best.tensors["w/stem.0.weight"], came["stem.0.weight"])
    assert torch.equal(best.tensors["w/stem.0.bias"], came["stem.0.bias"])
    assert not torch.equal(best.tensors["w/body.0.weight"], came["body.0.weight"])
    assert not torch.equal(best.tensors["w/body.0.bias"], came["body.0.bias"])
    config, _ = load(str(folder / "run"), model=f"{folder}/mine.py:make_net")
    without = {name: t for name, t in best.tensors.items() if not name.startswith("w/stem")}
    _, meta = restore(config, without, (3, 12, 12), torch.device("cpu"))
    assert torch.equal(meta.w["stem.0.weight"], came["stem.0.weight"])
    del without["w/body.0.bias"]
    with pytest.raises(ValueError, match=r"w/body\.0\.bias"):
        restore(config, without, (3, 12, 12), torch.device("cpu"))
    assert train(folder, "other", *kept, "neck") == 2
    assert "--train-from is one of the stages stem, body, flat, fc" in capsys.readouterr().err


def test_a_stopped_run_goes_on_from_the_weights_of_init(folder: Path) -> None:
    """The lower part is that of --init, also when the run goes on."""
    kept = ("--cache-features", "--cut-at", "body", "--init", str(folder / "first"))
    assert train(folder, "first", "--lr", "0.01") == 0
    assert train(folder, "once", *kept) == 0
    assert train(folder, "twice", *kept) == 0
    last = folder / "twice" / "last.safetensors"
    (folder / "twice" / "previous.safetensors").replace(last)
    assert train(folder, "twice", *kept) == 0
    first, once, twice = (Run(folder / name).load("best") for name in ("first", "once", "twice"))
    assert first is not None
    assert once is not None
    assert twice is not None
    below = "w/stem.0.weight"
    assert torch.equal(first.tensors[below], once.tensors[below])
    assert not torch.equal(made().get_parameter("stem.0.weight"), once.tensors[below])
    assert all(torch.equal(t, twice.tensors[name]) for name, t in once.tensors.items())


def test_without_a_stage_the_budget_says_where(folder: Path) -> None:
    assert train(folder, "run", "--cache-features") == 0
    shapes = {np.load(f).shape[1:] for f in (folder / "cache").glob("features-*.npy")}
    assert shapes == {(3, 12, 12)}, "20 kB reach down to the stem"


def test_what_cannot_be_cut_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = f"{folder}/mine.py:branched"
    argv = ["train", model, "--data", str(folder / "data"), "--out", str(folder / "run")]
    options = "--image-size 12 --n-way 3 --n-query 2 --workers 1 --cache-features --cut-at fc"
    assert cli.main([*argv, *options.split()]) == 2
    assert "a chain of stages, an nn.Sequential, got Net" in capsys.readouterr().err
