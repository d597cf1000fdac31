"""A model of which only what was learned ships: built by its user, then like the others."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from pmeta import cli, device, zoo
from pmeta.zoo.card_text import text
from tests.helpers.adapting import ABSENT
from tests.zoo.test_zoo import ROOT, draw
from zoo import add

BUILT = zoo.built()
CODE = """
from collections import OrderedDict
import torch
from torch import nn

def make_net(classes, image):
    torch.manual_seed(1)
    return nn.Sequential(OrderedDict(
        stem=nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU()),
        body=nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()),
        pool=nn.AdaptiveAvgPool2d(1),
        scale=nn.Conv2d(8, 8, 1, groups=8),
        flat=nn.Flatten(),
        fc=nn.Linear(8, classes),
    ))
"""
OPTIONS = (
    "--image-size 16 --n-query 1 --head prototype --method pmeta-lr --inner-steps 1 --tasks 4 "
    "--meta-batch 2 --epoch-tasks 4 --val-tasks 2 --freeze-at 0.5 --workers 1 --lr 0.1 "
    "--memory-budget 60kB --cache-features --cut-at body --train-from scale"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a zoo of one such model."""
    root = tmp_path_factory.mktemp("built")
    model = root / "small.py"
    model.write_text(CODE)
    for split in ("train", "val"):
        draw(root / "data" / split, 6, 3)
    made_by = f"{model}:make_net"
    where = ["--data", str(root / "data"), "--out", str(root / "run")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PMETA_CACHE", str(root / "cache"))
        assert cli.main(["train", made_by, *where, *OPTIONS.split()]) == 0
        given = ["--model", made_by, "--name", "small", "--made-from", "a package"]
        sizes = ["--n-query", "1", "--tasks", "4"]
        places = ["--folder", str(root / "zoo"), "--cards", str(root / "cards")]
        add.main([str(root / "run"), *given, *sizes, *places])
    return root


@pytest.fixture
def built(made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The small model is all that ships, and nothing is built yet."""
    monkeypatch.setattr(zoo, "FOLDER", made / "zoo")
    monkeypatch.setenv("PMETA_CACHE", str(tmp_path / "cache"))
    return made


def test_only_what_was_learned_ships(built: Path) -> None:
    assert sorted(path.name for path in zoo.FOLDER.iterdir()) == ["small.json", "small.safetensors"]
    learned = {"alpha", "mask", "head/log_scale", "w/scale.weight", "w/scale.bias"}
    assert load_file(zoo.FOLDER / "small.safetensors").keys() == learned
    assert zoo.built() == ["small"]
    card = zoo.card("small")
    assert card["command"].startswith(f"pmeta train {card['config']['model']} --data DIR")
    assert "--cache-features" in card["command"]
    assert "`pmeta zoo build small` puts both together on your machine." in text(card)


def test_it_is_to_be_built_first(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    support = draw(tmp_path / "support", 3, 2)
    assert cli.main(["adapt", "small", "--support", str(support)]) == 2
    assert "pmeta: error: small is made on your machine, once" in capsys.readouterr().err
    assert cli.main(["zoo", "build", "nobody"]) == 2
    assert "the models that are built are small, got 'nobody'" in capsys.readouterr().err


@pytest.mark.parametrize(("classes", "file"), [(3, 0), (7, 1)])
def test_then_it_adapts_like_the_others(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], classes: int, file: int
) -> None:
    assert cli.main(["zoo", "build", "small"]) == 0
    assert "next: pmeta adapt small --support FOLDER" in capsys.readouterr().out
    support = str(draw(tmp_path / "support", classes, 2))
    assert cli.main(["adapt", "small", "--support", support, "--query", support, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["classes"]) == classes
    assert found["arena_bytes"] == zoo.card("small")["files"][file]["arena_bytes"]


def test_what_is_built_is_what_was_trained(built: Path, tmp_path: Path) -> None:
    assert cli.main(["zoo", "build", "small", "--quiet"]) == 0
    out, model = tmp_path / "m.pmeta", f"{built}/small.py:make_net"
    argv = ["export", str(built / "run"), "--model", model, "-o", str(out), "--quiet"]
    assert cli.main(argv) == 0
    again, own = (device.load(path).weights() for path in (out, zoo.find("small")))
    assert all(np.array_equal(w, again[key]) for key, w in own.items())


def test_the_list_says_how(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["zoo"]) == 0
    said = capsys.readouterr().out
    assert "small: its weights come from a package; once: pmeta zoo build small" in said


def test_another_release_has_another_folder(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = zoo.home("small")
    read: Callable[[Path], bytes] = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"other")
    assert zoo.home("small") != before


@pytest.mark.parametrize("name", BUILT)
def test_what_ships_of_a_built_model(name: str) -> None:
    assert (ROOT / "docs" / "zoo" / f"{name}.md").read_text() == text(zoo.card(name))
    learned = load_file(zoo.FOLDER / f"{name}.safetensors")
    weights = {key for key in learned if key.startswith("w/")}
    assert weights == {"w/scale.weight", "w/scale.bias"}
    assert (learned["alpha"] > 0).any()


def test_building_a_model_without_torch_says_what_to_install() -> None:
    code = f"{ABSENT}\nfrom pmeta.cli import main; sys.exit(main(sys.argv[1:]))"

    def build(name: str) -> str:
        command = [sys.executable, "-c", code, "zoo", "build", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        return done.stderr

    error = build("efficientnet-lite0")
    assert "pmeta zoo build needs torch" in error
    assert "'.[imagenet]'" in error
    assert "the models that are built are efficientnet-lite0, got 'x'" in build("x")
