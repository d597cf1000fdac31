"""Pictures show what they were given, in the page and in files."""

import re
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
from PIL import Image

from pmeta.method.methods import METHODS
from pmeta.report import figures
from pmeta.report.figures import Bar, Curve, MethodPoint, computation, learning_curves
from pmeta.report.picture import COLORS, rendered
from tests.helpers.report_folders import WALK, run_of, write_run


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


def parts(picture: matplotlib.figure.Figure, kind: str) -> list[Any]:
    """The lines of a kind."""
    return [line for line in picture.axes[0].lines if line.get_gid() == kind]


def named(picture: matplotlib.figure.Figure) -> list[str]:
    return [text.get_text() for text in picture.axes[0].texts]


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
    marks = [mark.get_xydata()[0].tolist() for mark in parts(drawn[0], "mark")]
    assert marks == [pytest.approx([100.0 * (i + 1), 50.0 + i]) for i in range(6)]
    bars = [bar.get_xydata().tolist() for bar in parts(drawn[0], "ci")]
    assert bars[0] == [pytest.approx([200.0, 49.0]), pytest.approx([200.0, 53.0])]
    assert len(bars) == 5  # one task has no CI95
    assert sorted(named(drawn[0])) == sorted(
        ["MAML", "ANIL", "BOIL", "MAML++", "p-Meta (LR)", "p-Meta"]
    )


def test_the_place_of_a_mark_is_its_figures() -> None:
    """Twice the memory is twice as far from zero; more accuracy is higher up."""
    points = [
        MethodPoint("pmeta", "a", 1.0, 30.0, 1.0),
        MethodPoint("pmeta", "b", 2.0, 40.0, 1.0),
    ]
    picture = figures.score_against_memory(points, "accuracy")
    axes = picture.axes[0]
    (zero, _), (xa, ya), (xb, yb) = axes.transData.transform([(0, 30), (1, 30), (2, 40)])
    assert xb - zero == pytest.approx(2 * (xa - zero))
    assert yb > ya
    for mark, (x, y) in zip(parts(picture, "mark"), ((xa, ya), (xb, yb)), strict=True):
        assert axes.transData.transform(mark.get_xydata())[0].tolist() == pytest.approx([x, y])


def test_learning_curves(tmp_path: Path, drawn: list[matplotlib.figure.Figure]) -> None:
    figures.run_pictures(write_run(tmp_path / "run", validations=3))
    assert is_picture(tmp_path / "run" / "curve.png")
    assert is_picture(tmp_path / "run" / "step_sizes.png")
    (line,) = [line for line in drawn[0].axes[0].lines if line.get_label() == "p-Meta"]
    assert np.asarray(line.get_xydata()).tolist() == [[400, 30], [800, 31], [1200, 32]]
    assert line.get_color() == COLORS["pmeta"]
    assert ".150" in named(drawn[1])  # the last step size of fc


def test_a_run_before_its_layers_are_chosen_has_only_a_curve(tmp_path: Path) -> None:
    figures.run_pictures(write_run(tmp_path / "run", validations=1, best=False))
    assert (tmp_path / "run" / "curve.png").exists()
    assert not (tmp_path / "run" / "step_sizes.png").exists()


def test_a_curve_has_a_dot_for_every_validation(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", val_ci95=None)  # of one task
    curves = [figures.curve_of(run, "p-Meta"), Curve("maml", "MAML", [])]
    picture = learning_curves(curves, *figures.axes_of(run))
    (dots,) = parts(picture, "dots")
    assert dots.get_xydata().tolist() == [[400, 30], [800, 31]]
    assert named(picture) == ["p-Meta"]
    assert b"accuracy on validation tasks (%)" in rendered(picture)
    assert b"tasks trained on" in rendered(picture)


def test_runs_of_one_method_have_lines_of_their_own() -> None:
    curves = [Curve("pmeta", name, [(1, 2.0, 0.0), (2, 3.0, 0.0)]) for name in "abc"]
    shown = rendered(learning_curves(curves, "x", "y")).decode()
    assert len(set(re.findall("stroke-dasharray: [^;]*", shown))) == 2  # and one is whole


def test_policies_have_returns(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", WALK)
    assert figures.curve_of(run, "x").validations == [(400, -40.0, 1.5), (800, -39.0, 1.5)]
    figures.run_pictures(run.path)
    assert is_picture(run.path / "curve.png")
    assert figures.axes_of(run)[1] == "return after adaptation on validation tasks"


def test_computation_splits_a_step_in_forward_and_the_rest() -> None:
    picture = computation([Bar("maml", "MAML", 0.144, 0.387, 0.39), Bar("pmeta", "x", 0.1, 0.2, 0)])
    (paper,) = parts(picture, "paper-line")
    assert paper.get_xdata() == pytest.approx([390, 390])
    assert picture.axes[0].get_xlabel() == "MMACs of one step over the support set"
    widths = [patch.get_width() for patch in picture.axes[0].patches]  # type: ignore[attr-defined]
    assert widths == pytest.approx([144, 243, 100, 100])
    assert named(picture) == ["MAML", "387", "x", "200"]


@pytest.mark.parametrize("size", [0.0, -3.0, 1e-12, 1e17])
def test_odd_figures_are_drawn_all_the_same(size: float) -> None:
    picture = figures.score_against_memory([MethodPoint("pmeta", "a", size, size, abs(size))], "x")
    assert rendered(picture)
    assert rendered(computation([Bar("pmeta", "a", size, size, size)]))
    assert rendered(learning_curves([Curve("pmeta", "a", [(0, size, 0.0)])], "x", "y"))
