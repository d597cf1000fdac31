"""Every kind of run, and pre-training, with every command: it works, or ends in one true sentence.

A fifth kind (sinusoids.py) is named in the line that adds it here, and nowhere else."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from pmeta import kinds
from pmeta.cli import main
from pmeta.data.tasks import open_split, sample_task
from pmeta.device import DeviceModel
from pmeta.learner import Learner
from pmeta.training import trainer
from pmeta.training.run_folder import Run
from tests.helpers.recordings import write_people

TINY = "--channels 8 --groups 2 --tasks 24 --epoch-tasks 8 --freeze-at 0.3 --val-tasks 4"
TRAIN = {
    "pictures": f"glyphs-4conv-5way-1shot {TINY}",
    "recordings": "har-conv1d --length 32 --channels 8 --tasks 12 --epoch-tasks 4 "
    "--pooled-epochs 1 --val-draws 1 --val-people p3 --test-people p4",
    "policies": "navigation-paper --method pmeta-lr --epochs 6 --meta-batch 2 --episodes 2 "
    "--horizon 10 --val-every 2 --val-tasks 2 --freeze-at 0.3",
    "own": "",
    "pre-training": "miniimagenet-4conv-pretrain --channels 8 --image-size 24 --crop-size 16 "
    "--epochs 3 --batch 8 --val-tasks 20",
    "sinusoids": "sinusoids",
}
"""How each is trained."""
IN_PYTHON, BEFORE = "lives in Python", "is a pre-training, which cannot be adapted yet: pmeta train"
SENTENCES = {
    ("own", "evaluate"): IN_PYTHON,
    ("own", "calibrate"): IN_PYTHON,
    ("policies", "calibrate"): "certainty is of a classifier, and",
    ("sinusoids", "calibrate"): "certainty is of a classifier, and",
    ("pre-training", "evaluate"): BEFORE,
    ("pre-training", "calibrate"): BEFORE,
    ("pre-training", "export"): BEFORE,
}
"""What a command says that has no meaning for a kind."""


class Stopped(BaseException):
    """As a kill would be."""


def fit(out: str) -> None:
    """A run of `Learner.fit`."""
    torch.manual_seed(0)
    block = (nn.Conv2d(1, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten())
    net = nn.Sequential(*block, nn.Linear(4 * 13 * 13, 3))
    learner = Learner(net, torch.zeros(1, 1, 28, 28), inner_steps=2, alpha_0=0.1)
    glyphs = open_split("glyphs", "train")
    tasks = [sample_task(glyphs, seed=0, i=i, n_way=3, n_shot=2, n_query=2) for i in range(8)]
    learner.fit(tasks, tasks[:2], out, n_tasks=12, meta_batch=2, epoch_tasks=4, freeze_at=0.3)


def train(kind: str, root: Path, out: Path) -> int:
    if kind == "own":
        fit(str(out))
        return 0
    data = {"pictures": ["--data", "glyphs"], "recordings": ["--data", str(root / "people")]}
    data["pre-training"] = ["--data", str(root / "colours")]
    return main(
        ["train", *TRAIN[kind].split(), *data.get(kind, []), "--workers", "1", "--out", str(out)]
    )


@pytest.fixture(scope="module", autouse=True)
def fifth() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(kinds.KINDS, "sinusoids", "tests.kinds.sinusoids")
        yield


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings, pictures, and a place for runs."""
    root, rng = tmp_path_factory.mktemp("kinds"), np.random.default_rng(0)
    write_people(root / "people", devices=("phone",))
    for split, classes in (("train", 3), ("val", 5)):
        for c in range(classes):
            (root / "colours" / split / f"class{c}").mkdir(parents=True)
            colour = rng.integers(40, 215, 3)
            for i in range(20):
                pixels = (colour + rng.normal(0, 25, (24, 24, 3))).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(root / f"colours/{split}/class{c}/{i}.png")
    return root


@pytest.fixture(scope="module")
def runs(root: Path) -> dict[str, Path]:
    """A tiny run of each."""
    for kind in TRAIN:
        assert train(kind, root, root / kind) == 0
    return {kind: root / kind for kind in TRAIN}


def tensors(run: Path) -> dict[str, torch.Tensor]:
    found = [Run(run).load(name) for name in ("last", "best")]
    pairs = [(i, one.tensors) for i, one in enumerate(found) if one]
    return {f"{i}/{name}": t for i, own in pairs for name, t in own.items()}


@pytest.mark.parametrize("kind", TRAIN)
def test_a_run_says_what_it_is(kind: str, runs: dict[str, Path]) -> None:
    assert Run(runs[kind]).config()["kind"] == kind
    figures = json.loads((runs[kind] / "figures.json").read_text())
    network = json.loads((runs[kind] / "network.json").read_text())
    assert figures["score"] in Run(runs[kind]).metrics()[0]
    assert network["layers"]


@pytest.mark.parametrize("kind", TRAIN)
def test_killed_behind_its_first_checkpoint_it_ends_with_the_same_bits(
    kind: str, runs: dict[str, Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = trainer.save

    def once(*args: Any) -> None:
        save(*args)
        raise Stopped

    parts = root / f"{kind}-parts"
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "save", once)
        with pytest.raises(Stopped):
            train(kind, root, parts)
    train(kind, root, parts)
    whole, again = tensors(runs[kind]), tensors(parts)
    assert whole.keys() == again.keys()
    assert all(torch.equal(t, again[name]) for name, t in whole.items())


COMMANDS = {
    "evaluate": ["--tasks", "2", "--workers", "1"],
    "calibrate": ["--tasks", "2", "--workers", "1"],
    "export": ["--quiet", "-o", "OUT"],
    "report": ["-o", "OUT"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", TRAIN)
def test_a_command_works_or_says_why_not(
    kind: str,
    command: str,
    runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / ("page.html" if command == "report" else "model.pmeta")
    options = [str(out) if word == "OUT" else word for word in COMMANDS[command]]
    code = main([command, str(runs[kind]), *options])
    error = capsys.readouterr().err
    if (kind, command) in SENTENCES:
        assert code == 2
        assert SENTENCES[kind, command] in error
        assert error.count("\n") == 1
        return
    assert code == 0, error
    if "OUT" in COMMANDS[command]:
        assert out.stat().st_size > 1000


@pytest.mark.parametrize("kind", ["pictures", "recordings", "sinusoids"])
def test_what_is_exported_adapts(
    kind: str, runs: dict[str, Path], root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.pmeta"
    assert main(["export", str(runs[kind]), "--quiet", "-o", str(out)]) == 0
    if kind == "sinusoids":
        model = DeviceModel(out.read_bytes())
        before = {name: w.copy() for name, w in model.weights().items()}
        x = np.linspace(-5, 5, 6, dtype=np.float32)[:, None]
        model.adapt_values(x, np.sin(x))
        assert any((w != before[name]).any() for name, w in model.weights().items())
        return
    support = root / "people/p4/phone/0.csv"
    if kind == "pictures":
        glyphs = sample_task(open_split("glyphs", "test"), 0, 0, 5, 2, 1)
        pixels = (glyphs.support_x.numpy() * 63.75 + 127.5).round().astype(np.uint8)
        support = tmp_path / "support.npz"
        np.savez(support, x=pixels, y=glyphs.support_y.numpy())
    assert main(["adapt", str(out), "--support", str(support)]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "command", "option"),
    [
        ("policies", "evaluate", ["--split", "train"]),
        ("policies", "evaluate", ["--n-shot", "7"]),
        ("recordings", "evaluate", ["--n-way", "3"]),
        ("recordings", "calibrate", ["--n-query", "3"]),
        ("pictures", "evaluate", ["--render", "x.png"]),
        ("policies", "export", ["--classes", "3"]),
        ("sinusoids", "export", ["--float32"]),
    ],
)
def test_an_option_without_a_meaning_is_refused_by_its_name(
    kind: str,
    command: str,
    option: list[str],
    runs: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([command, str(runs[kind]), *option]) == 2
    of = f"a run on {kind}, which {runs[kind]} is"
    expected = f"{option[0]} has no meaning for {of}: leave it out."
    assert capsys.readouterr().err == f"pmeta: error: {expected}\n"
