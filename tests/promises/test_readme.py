"""What the README says works: its Python lines, its commands, its figures."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tyro

from pmeta import Learner, device, zoo
from pmeta.cli import main
from pmeta.cli.train import parse
from pmeta.reproduce.config import ReproduceConfig, choose

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)
COMMANDS = [line for kind, block in BLOCKS if not kind for line in block.splitlines()]


def test_python_example_learns_and_saves_two_thirds_of_the_bytes_of_maml(capsys, tmp_path):
    (code,) = [block for kind, block in BLOCKS if kind == "python"]
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), names)
    printed = re.search(
        r"^(\d+)% in ([\d,]+) bytes, MAML: ([\d,]+)$", capsys.readouterr().out, re.M
    )
    assert printed
    accuracy, ours, maml = (int(number.replace(",", "")) for number in printed.groups())
    assert accuracy >= 50  # of five classes
    assert ours <= maml / 3
    learner = names["learner"]
    learner.export(tmp_path / "mine.pmeta", pixels=True)
    assert device.load(tmp_path / "mine.pmeta").arena_bytes == ours <= 80_000
    other = Learner(names["net"], names["example"], "maml", inner_steps=3)
    other.export(tmp_path / "maml.pmeta", pixels=True)
    assert device.load(tmp_path / "maml.pmeta").arena_bytes == maml


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("pmeta cost")])
def test_cost_commands_run(line, capsys):
    assert main(line.split()[1:]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("pmeta train")])
def test_train_commands_parse(line):
    assert parse(line.split()[2:]).out


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("pmeta reproduce")])
def test_reproduce_commands_parse(line):
    config = tyro.cli(ReproduceConfig, args=line.split()[2:])
    assert choose(config.what, config.only)[1]


def test_models_that_are_named_ship():
    named = re.findall(r"pmeta adapt (miniimagenet\S+)", "\n".join(COMMANDS))
    assert named
    assert set(named) <= set(zoo.names()), "make them with python zoo/add.py"


def test_figures_are_those_of_the_papers_length():
    models = json.loads((ROOT / "docs/results/paper.json").read_text())
    picture = (ROOT / "docs/overview.svg").read_text()
    rows = {
        name: cells for name, *cells in re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", README, re.M)
    }
    methods = ("maml++", "pmeta")
    one, five = ([models[f"paper-{shots}shot-{method}"] for method in methods] for shots in (1, 5))
    for name, of in (("accuracy, 1 photo", one), ("accuracy, 5 photos", five)):
        shown = [f"{m['accuracy']:.1f} ± {m['ci95']:.1f} %" for m in of]
        assert rows[f"{name} of each class"] == shown
    assert rows["memory to adapt in our engine"] == [f"{m['arena_mb']:.2f} MB" for m in one]
    for model in one:
        assert f"{model['accuracy']:.1f} %" in picture
        assert f"{model['arena_mb']:.2f} MB" in picture


def test_figures_of_the_model_that_is_recommended():
    card = zoo.card("miniimagenet-4conv")
    (five,) = [c for c in card["engine"]["cells"] if (c["n_way"], c["n_shot"]) == (5, 5)]
    one, memory = card["evaluation"]["accuracy"], card["files"][0]["arena_bytes"] / 1e6
    said = f"{one:.0f} % right from 1 photo of each and {five['steps'][0]:.0f} % from 5"
    assert f"{said}, in {memory:.2f} MB" in README
    wide = zoo.card("miniimagenet-4conv64")
    cells = {(c["n_way"], c["n_shot"]): c["steps"][0] for c in wide["engine"]["cells"]}
    said = f"`{wide['name']}` gets {cells[5, 1]:.0f} and {cells[5, 5]:.0f} %, in"
    assert f"{said} {wide['files'][0]['arena_bytes'] / 1e6:.2f} MB" in README
    picture = (ROOT / "docs/overview.svg").read_text()
    assert f"{memory:.2f} MB, the model that ships" in picture
    assert f"one file, {card['files'][0]['bytes'] / 1e6:.2f} MB" in picture


def test_it_is_short_and_shows_the_commands_that_are_tested_here():
    used = {line.split()[1] for line in COMMANDS if line.startswith("pmeta ")}
    assert used >= {"adapt", "cost", "evaluate", "export", "report", "reproduce", "train"}
    assert len(README.splitlines()) <= 120


def test_first_python_block_is_short():
    (code,) = [block for kind, block in BLOCKS if kind == "python"]
    after_model = code.split(")\nlearner", 1)[1]
    assert len([line for line in after_model.splitlines() if line.strip()]) <= 10
