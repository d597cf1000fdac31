"""The models that ship: made from runs, listed, adapted without torch, and true to their cards."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from pmeta import cli, device, zoo
from pmeta.cli import zoo as zoo_command
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.pictures.train import build
from pmeta.training.run_folder import Run
from pmeta.zoo.card_text import text
from tests.helpers.adapting import ABSENT
from zoo import add

ROOT = Path(__file__).parents[2]
NAME = "miniimagenet-4conv-5way-1shot"


def draw(folder: Path, classes: int, images: int) -> Path:
    """Pictures of many sizes, each class of its own grey."""
    random = np.random.default_rng(0)
    for c in range(classes):
        (folder / f"c{c:02}").mkdir(parents=True)
        for i in range(images):
            pixels = random.integers(0, 50, (20 + 3 * i, 24, 3), np.uint8) + np.uint8(
                200 * c / classes
            )
            Image.fromarray(pixels).save(folder / f"c{c:02}" / f"{i}.png")
    return folder


class Made:
    """A zoo of one small model, and what it was made from."""

    def __init__(self, root: Path):
        self.data, self.run, self.folder, self.cards = (
            root / name for name in ("data", "run", "zoo", "cards")
        )
        for split in ("train", "val"):
            draw(self.data / split, 6, 3)
        config = ImageConfig(
            data=str(self.data),
            out=str(self.run),
            image_size=16,
            channels=8,
            groups=4,
            n_query=2,
            inner_steps=2,
            tasks=8,
            head="prototype",
        )
        _, meta = build(config, (3, 16, 16), torch.device("cpu"))
        with Run(self.run) as run:
            run.start(config)
            run.save(
                "best", {**meta.parameters(), "mask": meta.mask}, {"input": [3, 16, 16], "tasks": 4}
            )
            run.save("last", {}, {"tasks": 6})
        argv = (
            self.run,
            "--n-query",
            2,
            "--tasks",
            4,
            "--folder",
            self.folder,
            "--cards",
            self.cards,
        )
        add.main([str(a) for a in argv])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


@pytest.fixture
def small(made: Made, monkeypatch: pytest.MonkeyPatch) -> Made:
    """The small model is all that ships."""
    monkeypatch.setattr(zoo, "FOLDER", made.folder)
    return made


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*argv: object) -> str:
        assert cli.main([str(a) for a in argv]) == 0
        return capsys.readouterr().out

    return run


def test_a_card_says_what_was_done(small: Made) -> None:
    card = zoo.card(NAME)
    assert card["schedule"] == {
        **{
            "planned": 8,
            "trained": 6,
            "chosen_at": 4,
            "meta_batch": 4,
            "n_query": 2,
            "memory_budget": "",
            "seed": 0,
        }
    }
    assert (card["method"], card["task"], card["backbone"]) == (
        "p-Meta (LR+attention)",
        "5-way 1-shot",
        "4conv",
    )
    assert card["data"] == {
        "name": "MiniImageNet",
        "classes": {"train": 6, "val": 6},
        "image": [3, 16, 16],
    }
    assert [f["outputs"] for f in card["files"]] == [5, 20]
    assert card["files"][0]["arena_bytes"] < card["files"][1]["arena_bytes"]
    assert card["memory"].keys() == {"paper_mb", "exact_mb", "gmac"}
    assert str(small.data.parent) not in json.dumps(card)  # nobody's folders
    for file in card["files"]:
        assert (small.folder / file["file"]).stat().st_size == file["bytes"]
        assert device.load(small.folder / file["file"]).prototypes


def test_a_card_for_people(small: Made) -> None:
    written = (small.cards / f"{NAME}.md").read_text()
    assert written == text(zoo.card(NAME))
    assert (
        "**Not finished: 6 of 8 planned tasks were trained when this model was taken.**" in written
    )
    command = (
        f"pmeta train {NAME} --data DIR --method pmeta --channels 8 --groups 4 --image-size 16 "
        "--n-query 2"
    )
    assert written.split("```\n")[3].startswith("pmeta train")
    assert set(command.split()) < set(written.split("```\n")[3].split())
    assert "ImageNet's own terms" in written
    finished = {**zoo.card(NAME), "schedule": {**zoo.card(NAME)["schedule"], "trained": 8}}
    assert "Not finished" not in text(finished)
    assert "\n4conv for pictures of 16x16 pixels" in text(finished)
    wide = {**finished, "config": {**finished["config"], "channels": 64}}
    assert "\n4conv with 64 channels for pictures of 16x16 pixels" in text(wide)


def test_a_card_shows_what_was_measured_in_the_engine(small: Made) -> None:
    card = zoo.card(NAME)
    assert "In the C engine" not in text(card)
    cell = {"n_way": 5, "n_shot": 2, "tasks": 1500, "steps": [45.47, 0.88], "none": [45.0, 0.9]}
    arenas = {"steps": 123456, "none": 7890}
    measured = {"arena_bytes": arenas, "outputs": 20, "seed": 1, "cells": [cell]}
    written = text({**card, "engine": measured})
    assert "| 5 | 2 | 1,500 | 45.5 ± 0.9 % | 45.0 ± 0.9 % |" in written
    assert "for 20 classes, in bytes: all steps 123,456, no step" in written


def test_the_list(small: Made, said: Callable[..., str]) -> None:
    out = said("zoo")
    e = zoo.card(NAME)["evaluation"]
    assert f"{NAME} │ {e['accuracy']:.1f} ± {e['ci95']:.1f} %" in out
    assert "6 of 8 planned 5-way 1-shot tasks of MiniImageNet (training not finished)" in out
    assert "up to 20" in out
    assert json.loads(said("zoo", "--json")) == [zoo.card(NAME)]
    assert said("zoo", NAME) == text(zoo.card(NAME))
    assert json.loads(said("zoo", NAME, "--json")) == zoo.card(NAME)


def test_a_card_of_none(small: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["zoo", "nobody"]) == 2
    assert f"the models are {NAME}, got 'nobody'." in capsys.readouterr().err


@pytest.mark.parametrize("command", ["zoo", "page", "export", "evaluate", "adapt"])
def test_a_model_that_ships_no_more_says_what_to_use(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"adapt": ["--support", "x"], "page": ["-o", "x"], "export": ["-o", "x"]}
    assert cli.main([command, "efficientnet-lite0", *more.get(command, [])]) == 2
    assert "efficientnet-lite0 does not ship: take miniimagenet-4conv64" in capsys.readouterr().err


def test_names_are_whole_in_a_narrow_terminal(
    small: Made, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoo_command, "Console", partial(Console, width=80))
    monkeypatch.setattr(zoo_command.sys.stdout, "isatty", lambda: True)
    assert f"│ {NAME} │" in said("zoo")


def test_an_empty_zoo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[..., str]
) -> None:
    monkeypatch.setattr(zoo, "FOLDER", tmp_path)
    assert said("zoo").startswith("no models come with this copy of the package")
    assert said("zoo", "--json") == "[]\n"


@pytest.mark.parametrize(("classes", "file"), [(2, 0), (5, 0), (6, 1), (20, 1)])
def test_any_number_of_classes(
    small: Made, tmp_path: Path, said: Callable[..., str], classes: int, file: int
) -> None:
    support, saved = draw(tmp_path / "support", classes, 1), tmp_path / "mine.pmeta"
    found = json.loads(
        said("adapt", NAME, "--support", support, "--query", support, "--save", saved, "--json")
    )
    assert len(found["classes"]) == classes
    assert found["arena_bytes"] == zoo.card(NAME)["files"][file]["arena_bytes"]
    assert device.load(saved).n_classes == classes


def test_more_classes_than_any_file_has(
    small: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    support, wider = draw(tmp_path / "support", 21, 1), tmp_path / "wider.pmeta"
    assert cli.main(["adapt", NAME, "--support", str(support)]) == 2
    error = capsys.readouterr().err
    assert error.endswith(f"prototypes for more with pmeta export {NAME} --classes 21.\n")
    assert cli.main(["export", NAME, "--classes", "21", "-o", str(wider)]) == 0
    assert cli.main(["adapt", str(wider), "--support", str(support)]) == 0


def test_a_name_that_is_none(
    small: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["adapt", "miniimagenet", "--support", str(tmp_path)]) == 2
    error = (
        "a model is a file that pmeta export or pmeta adapt --save wrote, or one of "
        "miniimagenet-4conv-5way-1shot.\n"
    )
    assert capsys.readouterr().err.endswith(error)


def test_the_figures_of_a_card_come_again(
    small: Made, said: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    e = zoo.card(NAME)["evaluation"]
    command = (
        "evaluate",
        NAME,
        "--data",
        small.data,
        "--split",
        "val",
        "--n-query",
        2,
        "--workers",
        1,
        "--json",
    )
    assert json.loads(said(*command, "--tasks", 4))["accuracy"] == pytest.approx(e["accuracy"])
    many = ("--tasks", 2, "--n-way", e["many"]["classes"])
    assert json.loads(said(*command, *many))["accuracy"] == pytest.approx(e["many"]["accuracy"])
    assert cli.main(["evaluate", NAME, "--workers", "1"]) == 2
    assert (
        f"{NAME} comes without the pictures that it was trained on: give --data."
        in capsys.readouterr().err
    )


def test_one_name_for_many_runs() -> None:
    with pytest.raises(
        ValueError, match="--name is that of one model, got 2 runs: add them one by one"
    ):
        add.AddConfig(("a", "b"), name="c")


def without_torch(folder: Path, *argv: object) -> Any:
    """What a command prints as JSON in a process that can import nothing of the training."""
    code = (
        f"{ABSENT}\nfrom pathlib import Path\nimport pmeta.zoo\npmeta.zoo.FOLDER = "
        f"Path({str(folder)!r})\n"
    )
    code += "from pmeta.cli import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *map(str, argv), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_device_has_no_torch(made: Made, tmp_path: Path) -> None:
    assert [card["name"] for card in without_torch(made.folder, "zoo")] == [NAME]
    support = draw(tmp_path / "support", 3, 2)
    found = without_torch(made.folder, "adapt", NAME, "--support", support, "--query", support)
    assert {p["class"] for p in found["predictions"].values()} <= {"c00", "c01", "c02"}


SHIPPED = zoo.names()


@pytest.mark.parametrize(
    ("name", "classes"),
    [(n, c) for n in SHIPPED for c in (3, 7) if c <= zoo.card(n)["files"][-1]["outputs"]],
)
def test_shipped_models_adapt_without_torch(name: str, classes: int, tmp_path: Path) -> None:
    support = draw(tmp_path / "support", classes, 2)
    found = without_torch(zoo.FOLDER, "adapt", name, "--support", support, "--query", support)
    assert found["high_water_bytes"] <= found["arena_bytes"]
    assert len(found["predictions"]) == 2 * classes
    assert found["losses"][-1] < found["losses"][0]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_are_those_of_their_cards(name: str, tmp_path: Path) -> None:
    card = zoo.card(name)
    assert (ROOT / "docs" / "zoo" / f"{name}.md").read_text() == text(card)
    for file in card["files"]:
        model = device.load(zoo.FOLDER / file["file"])
        assert (model.outputs, model.arena_bytes, model.repeated) == (
            file["outputs"],
            file["arena_bytes"],
            model.prototypes,
        )
        assert (zoo.FOLDER / file["file"]).stat().st_size == file["bytes"]
    assert card["name"] == name
    assert cli.main(["export", name, "-o", str(tmp_path / "m.pmeta")]) == 0
    again, shipped = (
        device.load(path).weights() for path in (tmp_path / "m.pmeta", zoo.find(name))
    )
    assert all(np.array_equal(w, again[key]) for key, w in shipped.items())


def test_a_learned_head_names_one_that_takes_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["adapt", NAME, "--support", str(draw(tmp_path / "support", 6, 1))]) == 2
    assert capsys.readouterr().err.endswith("pmeta export miniimagenet-4conv --classes 6.\n")


def test_every_file_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = [*settings["package-data"]["pmeta.zoo"], "*.py"]
    root = ROOT / "pmeta" / "zoo"
    for path in root.rglob("*.*"):
        name = path.relative_to(root).as_posix()
        assert "__pycache__" in name or any(fnmatch(name, pattern) for pattern in patterns), path
