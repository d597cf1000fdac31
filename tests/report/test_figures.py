"""Pictures: they are there, and they show what they were given."""

from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
from PIL import Image

from pmeta.method.methods import METHODS
from pmeta.report import figures
from pmeta.report.palette import COLORS


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[matplotlib.figure.Figure]:
    """The figures that are saved."""
    saved: list[matplotlib.figure.Figure] = []
    real = matplotlib.figure.Figure.savefig

    def savefig(self: matplotlib.figure.Figure, *args: object, **kwargs: object) -> None:
        saved.append(self)
        real(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", savefig)
    return saved


def is_picture(path: Path) -> bool:
    with Image.open(path) as image:
        return min(image.size) > 100 and len(image.convert("RGB").getcolors(10**6) or []) > 3


def test_accuracy_against_memory(tmp_path: Path, drawn: list[matplotlib.figure.Figure]) -> None:
    results = [
        {
            "method": name,
            "memory_mb": 0.1 * (i + 1),
            "accuracy": 50.0 + i,
            "ci95": None if i == 0 else 2.0,
        }
        for i, name in enumerate(METHODS)
    ]
    figures.accuracy_against_memory(results, tmp_path / "x.png")
    assert is_picture(tmp_path / "x.png")
    axes: Any = drawn[0].axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        m.title for m in METHODS.values()
    ]
    points = [
        np.asarray(container.lines[0].get_xydata())[0].tolist() for container in axes.containers
    ]
    assert points == [pytest.approx([100.0 * (i + 1), 50.0 + i]) for i in range(6)]
    assert COLORS.keys() == METHODS.keys()


def test_learning_curves(tmp_path: Path, drawn: list[matplotlib.figure.Figure]) -> None:
    metrics: list[dict[str, Any]] = [
        {
            "tasks": 10,
            "val_accuracy": 20.0,
            "val_ci95": None,
        },  # a validation of one task has no CI95
        {"tasks": 20, "val_accuracy": 30.0, "val_ci95": 2.0},
    ]
    figures.learning_curves([("mine", metrics), ("MAML", [])], tmp_path / "x.png")
    assert is_picture(tmp_path / "x.png")
    mine, maml = drawn[0].axes[0].lines
    assert np.asarray(mine.get_xydata()).tolist() == [[10.0, 20.0], [20.0, 30.0]]
    assert mine.get_label() == "mine"
    assert maml.get_color() == COLORS["maml"]


def test_step_sizes(tmp_path: Path, drawn: list[matplotlib.figure.Figure]) -> None:
    figures.step_sizes(
        [[0.0, 0.25, 1.5], [0.1, 0.0, 0.0]], ["conv1", "norm1", "fc"], tmp_path / "x.png"
    )
    assert is_picture(tmp_path / "x.png")
    axes = drawn[0].axes[0]
    assert [text.get_text() for text in axes.texts] == ["0", ".250", "1.500", ".100", "0", "0"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["conv1", "norm1", "fc"]


def test_no_layer_lives(tmp_path: Path) -> None:
    figures.step_sizes([[0.0, 0.0]], ["conv1", "fc"], tmp_path / "x.png")
    assert is_picture(tmp_path / "x.png")
