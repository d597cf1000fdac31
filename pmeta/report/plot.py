"""Parts of a picture: scales, axes, marks and labels, as SVG that takes its colours from the page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pmeta.report.html import Child, Markup, el

WIDTH = 400
"""Of every picture, in its own units: near a phone's width, so that text stays readable there."""
SHAPES = {
    "maml": "circle",
    "anil": "square",
    "boil": "up",
    "maml++": "diamond",
    "pmeta-lr": "down",
    "pmeta": "star",
}
"""A shape for each method beside its colour, for print and for the colour-blind."""


def nice_ticks(low: float, high: float, n: int = 5) -> list[float]:
    """About n round numbers from low to high.

    >>> nice_ticks(0, 2.06), nice_ticks(27.1, 36.9, 4)
    ([0.0, 0.5, 1.0, 1.5, 2.0], [27.5, 30.0, 32.5, 35.0])
    """
    rough = (high - low) / n or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * f for f in (1, 2, 2.5, 5, 10) if power * f >= rough * 0.99)
    return [
        round(i * step, 10)
        for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


@dataclass(frozen=True)
class Scale:
    """From values between low and high to places between start and end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def around(values: Sequence[float], share: float = 0.08) -> tuple[float, float]:
    """The range of the values with some room on both sides.

    >>> around([1.0, 2.0], 0.5), around([3.0])
    ((0.5, 2.5), (2.0, 4.0))
    """
    low, high = min(values), max(values)
    room = (high - low) * share or 1.0
    return low - room, high + room


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The same places moved as little as it takes to keep `gap` between neighbours, from low to high, in the same order.

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


def number(value: float) -> str:
    """A tick or a value in as few digits as it needs.

    >>> number(2000.0), number(0.25), number(-30.0), number(1.0)
    ('2,000', '0.25', '-30', '1')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:.3g}"


def text(
    x: float, y: float, content: Child, anchor: str = "start", class_: str | None = None
) -> Markup:
    """A line of text."""
    return el("text", content, x=x, y=y, text_anchor=anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return el("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def rect(
    x: float, y: float, width: float, height: float, title: str = "", **attributes: object
) -> Markup:
    """A rectangle, with what a pointer that rests on it is told."""
    place = {
        "x": float(x),
        "y": float(y),
        "width": float(max(width, 0)),
        "height": float(max(height, 0)),
    }
    return el("rect", el("title", title) if title else None, **place, **attributes)


def mark(method: str, x: float, y: float, title: str, hollow: bool = False) -> Markup:
    """The mark of a method: filled for ours, hollow for the paper's."""
    r = {"star": 7.0, "circle": 4.6, "square": 4.6}.get(SHAPES[method], 5.6)
    sides = {
        "square": (4, 45),
        "up": (3, -90),
        "diamond": (4, 0),
        "down": (3, 90),
        "circle": (24, 0),
        "star": (10, -90),
    }
    n, turn = sides[SHAPES[method]]
    points = []
    for i in range(n):
        radius = r * (0.45 if SHAPES[method] == "star" and i % 2 else 1.2 if n in (3, 4) else 1.0)
        angle = math.radians(turn + 360 * i / n)
        points.append(f"{x + radius * math.cos(angle):.1f},{y + radius * math.sin(angle):.1f}")
    kind = f"mark {css(method)}" + (" hollow" if hollow else "")
    return el("polygon", el("title", title), points=" ".join(points), class_=kind)


def css(method: str) -> str:
    """The class that has the colour of a method.

    >>> css("maml++")
    'c-mamlpp'
    """
    return "c-" + method.replace("+", "p")


@dataclass(frozen=True)
class Axes:
    """The frame of a picture."""

    x: Scale
    y: Scale
    x_label: str
    y_label: str

    def draw(self) -> Markup:
        """Grid lines with their numbers, and what the two axes are."""
        x, y, parts = self.x, self.y, []
        for value in nice_ticks(y.low, y.high):
            parts += [line(x.start, y(value), x.end, y(value), "rule")]
            parts += [text(x.start - 5, y(value) + 3.5, number(value), "end", "tick")]
        for value in nice_ticks(x.low, x.high):
            parts += [line(x(value), y.start, x(value), y.start + 4, "axis")]
            parts += [text(x(value), y.start + 15, number(value), "middle", "tick")]
        parts.append(line(x.start, y.start, x.end, y.start, "axis"))
        parts.append(text((x.start + x.end) / 2, y.start + 32, self.x_label, "middle", "label"))
        parts.append(text(2, 11, self.y_label, "start", "label"))
        return el("g", parts)


def svg(parts: Child, height: float, title: str, width: float = WIDTH) -> Markup:
    """A whole picture."""
    return el("svg", parts, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=title)
