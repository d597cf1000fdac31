"""A picture by matplotlib: drawn once, kept as a file or put into the page as SVG."""

import json
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import matplotlib
from markupsafe import Markup
from matplotlib.artist import Artist
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
}
COLORS, MARKERS = ({name: style[i] for name, style in STYLES.items()} for i in (0, 1))
"""Of each method in every picture: a colour of Okabe and Ito's, which colour-blind people tell
apart, and a shape for them and for print."""
CSS = (Path(__file__).parent / "templates" / "report.css").read_text(encoding="utf-8")
LIGHT = dict(re.findall(r"--(\w+): (#\w{6})", CSS.partition("@media")[0]))
"""The page's colours by name. No two are the same: a colour in a picture is found by its value."""
INK, FAINT, RULE, ACCENT = (LIGHT[name] for name in ("ink", "faint", "line", "accent"))
NAMES = {value: f"var(--{name})" for name, value in LIGHT.items()}


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


def note(artist: Artist, tip: str = "", **attributes: str) -> None:
    """What the pointer is told that rests on a part of a picture, and attributes of it in the page.

    They travel as the part's id, which matplotlib writes and `svg` takes away again.
    """
    given = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    artist.set_gid(json.dumps({"tip": _clean(tip), **given}))


def box(
    axes: Axes, place: Sequence[float], color: str, alpha: float, tip: str, **attributes: str
) -> None:
    """A rectangle at x, y, of a width and a height in the units of the axes."""
    x, y, width, height = place
    patch = Rectangle((x, y), max(width, 0), max(height, 0), fc=(color, alpha), ec="none", zorder=1)
    note(axes.add_artist(patch), tip, **attributes)


def label(
    axes: Axes, text: str, point: tuple[float, float], place: tuple[float, float], color: str
) -> None:
    """A name at a place in points, with a line that leads to its point."""
    right = place[0] >= axes.transData.transform(point)[0]
    leader = {"arrowstyle": "-", "color": color, "lw": 0.8, "shrinkA": 2, "shrinkB": 0}
    drawn = axes.annotate(
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
    )
    note(drawn, class_="name")


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


def save(figure: Figure, path: Path) -> None:
    """Write a picture as .png or .svg, whole or not at all."""
    kind, image = path.suffix[1:], BytesIO()
    with _drawing(figure):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(  # tight: a font that is wider than LETTER is not cut off
            image, format=kind, dpi=200, metadata=metadata, bbox_inches="tight", pad_inches=0.08
        )
    write_atomically(path, image.getvalue())


def svg(figure: Figure, title: str) -> Markup:
    """A picture for the page: no ids, no fonts and no colours of its own."""
    image = BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with _drawing(figure):
        figure.savefig(image, format="svg", transparent=True, metadata=nothing)
    root = ElementTree.fromstring(image.getvalue())
    markers = {node.get("id"): node.get("d", "") for node in root.iter() if node.get("d")}
    view = root.get("viewBox", "")
    picture = Element("svg", {"viewBox": view, "role": "img", "aria-label": _clean(title)})
    for child in root:
        _copy(child, picture, markers)
    return Markup(ElementTree.tostring(picture, encoding="unicode"))


def _copy(node: Element, to: Element, markers: dict[str | None, str]) -> None:
    """A part of matplotlib's SVG, without definitions: a marker stands where it is used."""
    tag, style = node.tag.rpartition("}")[2], node.get("style", "")
    given = _attributes(node)
    if tag in ("defs", "metadata") or (tag == "path" and style == "fill: none"):
        return
    if tag == "use":
        marker = markers[node.get("{http://www.w3.org/1999/xlink}href", "")[1:]]
        place = f"translate({_short(node.get('x', ''))} {_short(node.get('y', ''))})"
        SubElement(to, "path", {"d": _short(marker), "transform": place, "style": _style(style)})
        return
    inside = to if tag == "g" and not given else SubElement(to, tag, given)
    inside.text = node.text if tag == "text" else inside.text
    said = _said(node)
    if said.get("tip"):
        SubElement(inside, "title").text = said["tip"]
    for child in node:
        _copy(child, inside, markers)


def _attributes(node: Element) -> dict[str, str]:
    """Those that the page needs."""
    found = {name: value for name, value in _said(node).items() if name != "tip"}
    for name in ("d", "x", "y"):
        if name in node.attrib:
            found[name] = _short(node.attrib[name])
    if "style" in node.attrib:
        found["style"] = _style(node.attrib["style"])
    turned = node.get("transform", "")
    return (
        found if turned.startswith("rotate(-0 ") or not turned else {**found, "transform": turned}
    )


def _said(node: Element) -> dict[str, Any]:
    """What `note` said of a part."""
    own = node.get("id", "")
    return json.loads(own) if own.startswith("{") else {}


def _short(numbers: str) -> str:
    """Numbers with two digits behind the point.

    >>> _short("M 54.545455 31.363636 \\nL 5 6.00001 z")
    'M 54.55 31.36 L 5 6 z'
    """
    return re.sub(
        r"-?\d+\.\d+",
        lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."),
        " ".join(numbers.split()),
    )


def _style(style: str) -> str:
    """With the page's fonts and the page's colours."""
    style = re.sub(r"font-family: [^;]*;? ?", "", style)
    return re.sub(r"#[0-9a-f]{6}", lambda found: NAMES.get(found[0], found[0]), style)
