"""The summary of the runs at the paper's own length says what their measurements say."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from pmeta.paper import ADAPTATION, TABLE2, TABLE3
from pmeta.training.results import ci95

FOLDER = Path(__file__).parents[2] / "docs" / "results"
SECTION = (FOLDER / "README.md").read_text().split("### Which of the paper's claims hold", 1)[1]
ROWS = {
    name: cells.split(" | ") for name, cells in re.findall(r"^\| (.+?) \| (.+) \|$", SECTION, re.M)
}
METHODS = ("maml++", "pmeta")


def known(file: str, names: list[str]) -> list[dict[str, Any]]:
    """The measurements of these runs, all of them trained to their end."""
    all_runs = json.loads((FOLDER / f"{file}.json").read_text())
    runs = [all_runs[name] for name in names]
    assert all(run["trained"] == run["planned"] for run in runs)
    return runs


def difference(base: torch.Tensor, ours: torch.Tensor) -> tuple[float, float]:
    """The mean over the tasks, and its CI95."""
    apart = ours.double() - base.double()
    return float(apart.mean()), ci95(apart)


@pytest.mark.parametrize(("shots", "row"), [(1, "1 shot, 100,000"), (5, "5 shots, 30,000")])
def test_pictures(shots, row):
    (cells,) = [cells for name, cells in ROWS.items() if name.startswith(row)]
    runs = known("paper", [f"paper-{shots}shot-{method}" for method in METHODS])
    mean, spread = difference(*(torch.tensor(run["hits"]) / 0.75 for run in runs))  # of 75 queries
    paper = [TABLE2["4conv", shots][method][0] for method in METHODS]
    theirs = [ADAPTATION["4conv", shots][method][1] for method in METHODS]
    assert cells == [
        *(f"{run['accuracy']:.2f} %" for run in runs),
        f"{mean:+.2f} ± {spread:.2f}",
        *(f"{accuracy:.1f} %" for accuracy in paper),
        f"{paper[1] - paper[0]:+.1f}",
        f"{memory([run['memory_mb'] for run in runs])}, {memory(theirs)}",
        memory([run["arena_mb"] for run in runs]),
    ]


@pytest.mark.parametrize(
    ("task", "seeds", "row", "in_paper"),
    [
        ("cheetah", 1, "Half-Cheetah, 500 epochs", "cheetah-velocity"),
        ("navigation", 4, "2D navigation, 500 epochs", "navigation"),
    ],
)
def test_policies(task, seeds, row, in_paper):
    (cells,) = [cells for name, cells in ROWS.items() if name.startswith(row)]
    suffixes = ["" if seed == 0 else f"-seed{seed}" for seed in range(seeds)]
    runs = [known(task, [f"paper-{task}-{method}{s}" for s in suffixes]) for method in METHODS]
    returns = [torch.tensor([run["returns"] for run in of])[..., 1].mean(0) for of in runs]
    mean, spread = difference(*returns)
    paper = [TABLE3[in_paper][method] for method in METHODS]
    theirs = [ADAPTATION[f"mlp-{task}", 20][method][1] for method in METHODS]
    assert cells == [
        *(f"{of.mean():.1f}" for of in returns),
        f"{mean:+.1f} ± {spread:.1f}",
        *(f"{value:.1f}" for value in paper),
        f"{paper[1] - paper[0]:+.1f}",
        f"{memory([of[0]['memory_mb'] for of in runs])}, {memory(theirs)}",
        memory([of[0]["arena_mb"] for of in runs]),
    ]


def memory(megabytes) -> str:
    return f"{megabytes[0]:.2f} -> {megabytes[1]:.2f} MB"
