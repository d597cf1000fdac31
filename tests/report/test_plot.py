"""Parts of pictures: numbers on axes, labels that keep their distance, a mark for each method."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmeta.method.methods import METHODS
from pmeta.report.html import Markup, data, el
from pmeta.report.palette import COLORS
from pmeta.report.plot import SHAPES, Scale, css, mark, nice_ticks, number, spread

numbers = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8), st.floats(1, 10))
def test_labels_keep_their_distance_and_order_and_stay_inside(
    places: list[float], gap: float
) -> None:
    found = spread(places, gap, 0, 100)
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = [found[i] for i in order]
    assert all(b - a >= gap - 1e-6 for a, b in itertools.pairwise(moved))
    assert all(-1e-6 <= p <= 100 + 1e-6 for p in moved)


def test_labels_with_room_stay_where_they_are() -> None:
    assert spread([70, 10, 40], 10, 0, 100) == [70, 10, 40]


@given(numbers, st.floats(0.01, 1e6))
def test_ticks_are_few_and_inside(low: float, width: float) -> None:
    ticks = nice_ticks(low, low + width)
    assert 1 <= len(ticks) <= 7
    assert all(low - 1e-6 * width - 1e-9 <= t <= low + width + 1e-6 * width + 1e-9 for t in ticks)


def test_a_scale_maps_its_ends() -> None:
    scale = Scale(10, 20, 300, 100)
    assert (scale(10), scale(15), scale(20)) == (300, 200, 100)


def test_every_method_has_a_colour_a_shape_and_a_class_of_its_own() -> None:
    for found in (COLORS, SHAPES, {name: css(name) for name in METHODS}):
        assert found.keys() == METHODS.keys()
        assert len(set(found.values())) == len(METHODS)


def test_hollow_marks_are_marked_as_such() -> None:
    assert "hollow" in mark("pmeta", 1, 2, "the paper's", hollow=True)
    assert "hollow" not in mark("pmeta", 1, 2, "ours")


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (12345.6, "12,346"), (0.19653, "0.197"), (-0.5, "-0.5")]
)
def test_numbers(value: float, shown: str) -> None:
    assert number(value) == shown


@given(st.text())
def test_no_text_can_become_markup(text: str) -> None:
    found = el("p", text, title=text)
    assert found.count("<") == 2
    assert found.count('"') == 2
    assert data(text).count("<") == 2


def test_markup_is_left_alone() -> None:
    assert el("p", Markup("<b>x</b>"), ["<", None], hidden=None) == "<p><b>x</b>&lt;</p>"
