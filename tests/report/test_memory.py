"""Memory along the layers: the paper's peak, and what is stored where."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from pmeta.cost.memory import peak_words
from pmeta.cost.networks import four_conv
from pmeta.cost.ops import layer_names
from pmeta.report.memory import dense_walk, memory_along_layers, walk_of
from pmeta.report.picture import LIGHT, rendered
from tests.helpers.report_folders import run_of


def bands(picture: Figure) -> list[Any]:
    """What is stored."""
    return [patch for patch in picture.axes[0].patches if patch.get_gid() == "band"]


def inputs(picture: Figure) -> list[Any]:
    """Of them, the inputs of layers."""
    return [patch for patch in bands(picture) if to_hex(patch.get_facecolor()) != LIGHT["bits"]]


def test_the_walk_of_maml_is_the_papers_2_06_mb_and_stores_every_input(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", method="maml")
    walk, dense = walk_of(run), dense_walk(run)
    assert walk == dense
    assert walk
    expected = peak_words(four_conv(), layer_names(four_conv()), samples=5) * 4e-6
    assert walk.peak_mb("paper") == pytest.approx(expected)
    drawn = memory_along_layers(walk, walk.peak_mb("paper"))
    assert len(inputs(drawn)) == len(layer_names(four_conv()))
    picture = rendered(drawn).decode()
    assert ">input of norm1, 0.90 MB</text>" in picture
    assert ">peak 2.06 MB</text>" in picture


def test_what_p_meta_does_not_update_it_does_not_store(tmp_path: Path) -> None:
    walk = walk_of(run_of(tmp_path / "a"))
    assert walk
    conv4, fc = inputs(memory_along_layers(walk, 2.06))
    # conv4: (32, 10, 10), 22 of 32 channels by the bound, and 64 scores; fc: (32, 5, 5)
    assert conv4.get_height() == pytest.approx(4e-6 * (22 * 100 + 64))
    assert fc.get_height() == pytest.approx(4e-6 * 800)


def test_bands_pile_up_to_the_peak(tmp_path: Path) -> None:
    """The highest corner of all that is drawn is the peak, and each band begins at its layer."""
    walk = walk_of(run_of(tmp_path / "a", method="maml"))
    assert walk
    drawn = memory_along_layers(walk, 2.06)
    patches = drawn.axes[0].patches
    tops = [patch.get_y() + patch.get_height() for patch in patches]  # type: ignore[attr-defined]
    assert max(tops) == pytest.approx(walk.peak_mb("paper"))
    assert {patch.get_x() + patch.get_width() for patch in bands(drawn)} == {len(walk.ops)}


def test_a_model_without_a_step_size_above_zero(tmp_path: Path) -> None:
    walk = walk_of(run_of(tmp_path / "a", alpha=[[0.0] * 9] * 5))
    assert walk
    assert bands(memory_along_layers(walk, 2.06)) == []
