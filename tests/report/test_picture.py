"""A picture in the page: text is text, colours are the page's, nothing is named twice."""

import itertools
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup
from PIL import Image

from pmeta.method.methods import ALL
from pmeta.report.picture import (
    COLORS,
    INK,
    LIGHT,
    MARKERS,
    box,
    canvas,
    label,
    name_axes,
    round_numbers,
    row_label,
    save,
    spread,
    svg,
)
from tests.helpers.report_folders import inside

NASTY = "<script>alert(1)</script> $\\frac{1}$ & \"'"


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


@pytest.mark.parametrize("low", [-1e6, -3.3, 0.0, 0.07, 42.0, 1e6])
@pytest.mark.parametrize("width", [0.01, 1.0, 37.0, 1e6])
def test_ticks_are_few_and_inside(low: float, width: float) -> None:
    _, axes = canvas(200)
    axes.set_xlim(low, low + width)
    round_numbers(axes.xaxis)
    ticks = [t for t in axes.get_xticks() if low <= t <= low + width]
    assert 1 <= len(ticks) <= 7


def test_every_method_has_a_colour_and_a_shape_of_its_own() -> None:
    for found in (COLORS, MARKERS):
        assert found.keys() == {*ALL, ""}  # and for all that is none of ours
        assert len(set(found.values())) == len(found)


def test_the_page_has_the_colours_that_pictures_use() -> None:
    assert {"ink", "faint", "line", "page", "card", "accent"} < LIGHT.keys()


def drawn(text: str) -> Markup:
    """A picture with a text in every place that takes one."""
    figure, axes = canvas(100)
    name_axes(axes, text, text)
    row_label(axes, 0.5, text)
    label(axes, text, (0.5, 0.5), (200, 50), INK)
    axes.plot([0.5], [0.5], "*", color=COLORS["pmeta"])
    box(axes, (0, 0, 0.5, 0.5), LIGHT["conv"], 0.5)
    return svg(figure, text)


def test_a_picture_is_an_image_with_a_name_in_the_page() -> None:
    assert drawn("a").startswith('<img class="picture" src="data:image/svg+xml;base64,')
    assert drawn('a" onload="x').endswith('" alt="a&#34; onload=&#34;x">')
    assert "<image" not in inside(drawn("a"))


def test_the_same_picture_is_the_same_text() -> None:
    assert drawn("a") == drawn("a")


def texts(picture: Markup) -> list[str | None]:
    root = ElementTree.fromstring(inside(picture))
    assert "script" not in {node.tag.rpartition("}")[2] for node in root.iter()}
    return [node.text for node in root.iter() if node.tag.endswith("}text")]


def test_text_stays_text_whatever_stands_in_it() -> None:
    shown = texts(drawn(NASTY))
    assert shown.count(NASTY) == 3
    assert NASTY[:23] + "…" in shown  # a label is shortened


@settings(max_examples=15)
@given(st.text(st.characters(exclude_categories=[]), max_size=20))
def test_no_text_can_break_a_picture(text: str) -> None:
    assert texts(drawn(text))


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_picture_is_kept_as_a_file_and_the_same_each_time(tmp_path: Path, kind: str) -> None:
    for name in ("a", "b"):
        figure, axes = canvas(100)
        axes.plot([0, 1], [0, 1], color=INK)
        save(figure, tmp_path / f"{name}.{kind}")
    content = (tmp_path / f"a.{kind}").read_bytes()
    assert content == (tmp_path / f"b.{kind}").read_bytes()
    if kind == "png":
        with Image.open(tmp_path / "a.png") as image:
            assert image.width > 1000
            assert image.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
