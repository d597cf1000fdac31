"""What the README says works: its Python lines, its commands, its figures, its links."""

import re
from pathlib import Path

import pytest
import tyro

from pmeta import zoo
from pmeta.cli import main
from pmeta.cli.reproduce import ReproduceConfig, choose
from pmeta.cli.train import parse

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line for block in re.findall(r"```\n(.*?)```", README, re.S) for line in block.splitlines()
]


def test_python_example_runs_and_prints_accuracy_and_memory(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert re.search(r"^\d+% with at most 0\.\d+ MB$", capsys.readouterr().out, re.M)


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
    assert set(named) <= set(zoo.names()), "make them with python -m pmeta.cli.zoo_add"


def test_links_lead_to_files():
    links = re.findall(r"\]\(((?!https)[^)]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_first_python_block_is_short():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    after_model = code.split(")\nlearner", 1)[1]
    assert len([line for line in after_model.splitlines() if line.strip()]) <= 10
