"""Tables of `pmeta reproduce`: ours beside the paper's, what is missing, and as pictures."""

import numpy as np
import pytest

from pmeta.report.tables import (
    Entry,
    difference_picture,
    differences,
    entries,
    notes,
    score_picture,
)
from tests.helpers.report_folders import table


def test_a_table_has_ours_beside_the_papers_and_says_what_is_missing() -> None:
    rows = dict(entries(table()))
    behind = "trained on 2,000 tasks, seed 0, evaluated on 1,000 tasks (val)"
    assert rows["x/x"] == [
        Entry("36.4 ± 0.5", "paper 47.1", behind),
        Entry("", "paper 47.1", "no CUB: --data cub=DIR"),
        Entry("≤ 0.99", "paper 1.00", "from the cost model"),
    ]
    assert rows["0/0"][1:] == [None, None]
    told = notes(table())
    assert "Schedule: short. Data: MiniImageNet. Evaluated on: val." in told
    assert f"Ours: {behind}." in told
    assert "1 cell is missing: no CUB: --data cub=DIR." in told


def test_pictures_of_a_table() -> None:
    shown = score_picture(table(), "1-shot Mini")
    assert shown
    lines = shown.axes[0].lines
    assert [line.get_gid() for line in lines] == 2 * ["ci", "hollow", "mark"]
    bar, paper, ours = (np.asarray(line.get_xdata()).tolist() for line in lines[3:])
    assert (bar, paper, ours) == (pytest.approx([36.3, 37.3]), [49.0], [36.8])
    assert score_picture(table(), "1-shot CUB") is None  # nothing of ours
    assert score_picture(table(), "memory") is None  # a cost, not a score


def test_differences_stand_beside_zero() -> None:
    picture = difference_picture(differences(table()))
    assert picture.axes[0].texts[0].get_text() == "0/0, 1-shot Mini"
    zero, bar, paper, ours = (np.asarray(line.get_xdata()) for line in picture.axes[0].lines)
    assert zero.tolist() == [0, 0]
    assert bar.tolist() == pytest.approx([-0.2, 1.0])
    assert (paper.tolist(), ours.tolist()) == ([1.9], [0.4])
