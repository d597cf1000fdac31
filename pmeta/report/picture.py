"""A picture by matplotlib: drawn once, kept as a file or put into the page as SVG."""

import re
import warnings
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pmeta.base.files import write_atomically
from pmeta.report.words import number, shorten

WIDTH = 400
"""Of a picture, in points: near a phone's width, so that text stays readable there."""
LINE, LETTER = 14, 6.8
"""From one label to the next, and room for one letter of a label, in points."""
STYLES = {
    "protonet": ("#0072b1", "P"),
    "maml": ("#777777", "o"),
    "anil": ("#009e73", "s"),
    "boil": ("#cc79a7", "^"),
    "maml++": ("#56b4e9", "D"),
    "pmeta-lr": ("#e69f00", "v"),
    "pmeta": ("#d55e00", "*"),
    "": ("#5c5c5c", "X"),
}
COLORS, MARKERS = ({name: style[i] for name, style in STYLES.items()} for i in (0, 1))
"""Of each method in every picture: a colour of Okabe and Ito's, which colour-blind people tell
apart, and a shape for them and for print; "" stands for all that is none of ours."""
CSS = (Path(__file__).parent / "templates" / "report.css").read_text(encoding="utf-8")
LIGHT = dict(re.findall(r"--(\w+): (#\w{6})", CSS.partition("@media")[0]))
"""The page's colours by name."""
INK, FAINT, RULE, ACCENT = (LIGHT[name] for name in ("ink", "faint", "line", "accent"))


def canvas(
    height: float, left: float = 36, right: float = 8, top: float = 24, bottom: float = 38
) -> tuple[Figure, Axes]:
    """A picture and its one plot, with margins in points and grid lines from left to right."""
    figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)  # a pixel is a point
    width, inner = (WIDTH - left - right) / WIDTH, (height - top - bottom) / height
    axes = figure.add_axes((left / WIDTH, bottom / height, width, inner))
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=FAINT, labelsize=11.5, length=0)
    axes.tick_params(axis="x", length=4)
    axes.grid(axis="y", color=RULE, linewidth=1)
    axes.set_axisbelow(True)
    return figure, axes


def rows_axes(axes: Axes, rows: int, low: float, high: float, what: str) -> None:
    """Make a plot of `rows` rows, counted downwards, over numbers from low to high."""
    axes.set_xlim(low, high)
    axes.set_ylim(rows, 0)
    axes.set_yticks([])
    axes.grid(axis="x", color=RULE, linewidth=1)
    axes.tick_params(axis="x", length=0)
    axes.spines["bottom"].set_visible(False)
    round_numbers(axes.xaxis)
    name_axes(axes, what)


def round_numbers(*axes: Axis) -> None:
    """About five ticks at round numbers."""
    for axis in axes:
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def name_axes(axes: Axes, x: str, y: str = "") -> None:
    """What the axes are: x below, y above them at the left."""
    axes.set_xlabel(x, color=FAINT, fontsize=12)
    axes.figure.text(0.005, 0.995, y, va="top", color=FAINT, fontsize=12)


def around(values: Sequence[float], share: float = 0.08) -> tuple[float, float]:
    """The range of the values with some room on both sides.

    >>> around([1.0, 2.0], 0.5), around([3.0])
    ((0.5, 2.5), (2.0, 4.0))
    """
    low, high = min(values), max(values)
    room = (high - low) * share or max(1.0, abs(low) / 8)
    return low - room, high + room


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places moved as little as keeps `gap` between neighbours, from low to high, in order.

    >>> spread([10, 11, 50], 10, 0, 100), spread([98, 99], 10, 0, 100)
    ([5.5, 15.5, 50], [90, 100])
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    groups: list[tuple[list[int], float]] = []  # members in order, place of the first
    for i in order:
        members, first = [i], places[i]
        while groups and groups[-1][1] + gap * len(groups[-1][0]) > first:
            members = groups.pop()[0] + members
            middle = sum(places[m] for m in members) / len(members)
            first = min(
                max(middle - gap * (len(members) - 1) / 2, low), high - gap * (len(members) - 1)
            )
        groups.append((members, first))
    found = {m: first + gap * j for members, first in groups for j, m in enumerate(members)}
    return [found[i] for i in range(len(places))]


def box(
    axes: Axes, place: Sequence[float], color: str, alpha: float, kind: str = "", ec: str = "none"
) -> None:
    """A rectangle at x, y, of a width and a height in the units of the axes."""
    x, y, width, height = place
    size = max(width, 0), max(height, 0)
    axes.add_artist(Rectangle((x, y), *size, fc=(color, alpha), ec=ec, lw=0.5, zorder=1, gid=kind))


def label(
    axes: Axes, text: str, point: tuple[float, float], place: tuple[float, float], color: str
) -> None:
    """A name at a place in points, with a line that leads to its point."""
    right = place[0] >= axes.transData.transform(point)[0]
    leader = {"arrowstyle": "-", "color": color, "lw": 0.8, "shrinkA": 2, "shrinkB": 0}
    axes.annotate(
        shorten(text),
        point,
        place,
        textcoords="figure points",
        ha="left" if right else "right",
        va="center",
        fontsize=12,
        color=INK,
        annotation_clip=False,
        arrowprops={**leader, "relpos": (0 if right else 1, 0.5)},
        gid="name",
    )


def beside(
    axes: Axes, text: str, point: tuple[float, float], offset: tuple[float, float], **style: Any
) -> Annotation:
    """A text at an offset in points from a point."""
    style = {"color": INK, "fontsize": 12, **style}
    return axes.annotate(
        text, point, offset, textcoords="offset points", annotation_clip=False, **style
    )


def row_label(axes: Axes, y: float, text: str, size: float = 11.5) -> None:
    """What a row of a picture is, at its left."""
    at, x = axes.get_yaxis_transform(), -6 / axes.bbox.width
    axes.text(x, y, text, transform=at, ha="right", va="center", color=FAINT, fontsize=size)


@contextmanager
def _drawing(figure: Figure) -> Iterator[None]:
    """Text is text, whatever stands in it, and the same picture is the same file."""
    inside = [text for axes in figure.axes for text in (*axes.texts, axes.xaxis.label)]
    for text in (*figure.texts, *inside):
        text.set_parse_math(False)
        text.set_text(_clean(text.get_text()))
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "pmeta",
        "text.parse_math": False,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser has other fonts
        yield


def _clean(text: str) -> str:
    """Without what XML cannot hold.

    >>> _clean("a\\x00b")
    'a�b'
    """
    return re.sub(
        "[^\\t\\n\\x20-\\x7e\\x85-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]", "\ufffd", text
    )


def rendered(figure: Figure, kind: str = "svg") -> bytes:
    """A picture as svg or png."""
    image = BytesIO()
    with _drawing(figure):
        figure.savefig(  # tight: a font that is wider than LETTER is not cut off
            image,
            format=kind,
            dpi=200,
            metadata={"Date": None} if kind == "svg" else None,
            bbox_inches="tight",
            pad_inches=0.08,
        )
    return image.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write a picture as .png or .svg, whole or not at all."""
    write_atomically(path, rendered(figure, path.suffix[1:]))


def svg(figure: Figure, title: str) -> Markup:
    """A picture for the page; as an image it can do nothing but be seen."""
    source = f"data:image/svg+xml;base64,{b64encode(rendered(figure)).decode()}"
    return Markup('<img class="picture" src="{}" alt="{}">').format(source, _clean(title))
