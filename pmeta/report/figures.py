"""Score against memory, learning curves, computation; and the pictures that commands leave."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmeta.report.picture import (
    COLORS,
    INK,
    LETTER,
    LIGHT,
    LINE,
    MARKERS,
    WIDTH,
    around,
    beside,
    box,
    canvas,
    label,
    name_axes,
    round_numbers,
    rows_axes,
    save,
    spread,
)
from pmeta.report.read import read_run
from pmeta.report.run import RunRecord
from pmeta.report.steps import step_sizes
from pmeta.report.words import SHORT, number, short, shorten, with_unit

DASHES = ("-", (0, (3, 1.5)), (0, (1, 1.5)), (0, (4.5, 1.5, 1, 1.5)), (0, (6, 2)))
"""Lines of runs of one method, which have one colour."""
SIZES = {"*": 11.0, "o": 7.5, "s": 7.0, "D": 7.0}
"""Of markers that would look larger or smaller than the others."""


def run_pictures(path: Path) -> None:
    """The learning curve, and the step sizes of the best model, as pictures in the run folder."""
    run = read_run(path, [])
    save(learning_curves([curve_of(run, short(run))], *axes_of(run)), path / "curve.png")
    if run.best is not None and run.alpha:
        save(step_sizes(run.alpha, run.layers), path / "step_sizes.png")


def accuracy_against_memory(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """One point with its CI95 for each method that was evaluated, as a picture."""
    points = [
        MethodPoint(
            r["method"], SHORT[r["method"]], r["memory_mb"], r["accuracy"], r["ci95"] or 0.0
        )
        for r in results
    ]
    save(score_against_memory(points, "accuracy on unseen tasks (%)"), path)


class MethodPoint(NamedTuple):
    """A method in the picture of score against memory."""

    method: str
    label: str
    """Empty where another point has it."""
    memory_mb: float
    value: float
    ci95: float
    hollow: bool = False
    """The paper's."""
    compared: bool = False
    """The paper has the same with nothing changed."""


def score_against_memory(points: Sequence[MethodPoint], what: str) -> Figure:
    """Ours with CI95, filled; the paper's hollow. `what` names the score."""
    largest = max(p.memory_mb for p in points)
    unit, factor = ("MB", 1.0) if largest >= 1 else ("kB", 1000.0)
    height = 250 + 4 * LINE * (len(points) > 12)
    at_right = [len(shorten(p.label)) for p in points if p.memory_mb >= 0.8 * largest]
    figure, axes = canvas(height, right=24 + LETTER * max(at_right, default=0))
    axes.set_xlim(0, largest * factor * 1.02 if largest > 0 else 1)
    axes.set_ylim(around([v for p in points for v in (p.value - p.ci95, p.value + p.ci95)], 0.1))
    round_numbers(axes.xaxis, axes.yaxis)
    name_axes(axes, f"peak memory of adaptation ({unit})", what)
    places = [(p.memory_mb * factor, p.value) for p in points]
    _lead_to_paper(axes, points, places)
    _name(axes, points, places, height)
    for p, (x, y) in zip(points, places, strict=True):
        _mark(axes, p, x, y)
    return figure


def _mark(axes: Axes, p: MethodPoint, x: float, y: float) -> None:
    color, shape = COLORS[p.method], MARKERS[p.method]
    if p.ci95:
        axes.plot([x, x], [y - p.ci95, y + p.ci95], color=color, lw=2, alpha=0.55, gid="ci")
    face = LIGHT["card"] if p.hollow else color
    (mark,) = axes.plot(
        [x], [y], shape, color=color, mfc=face, mew=1.6, ms=SIZES.get(shape, 9.0), zorder=4
    )
    mark.set_gid("hollow" if p.hollow else "mark")


def _lead_to_paper(
    axes: Axes, points: Sequence[MethodPoint], places: Sequence[tuple[float, float]]
) -> None:
    """Dotted lines from ours to the paper's."""
    hollow = {p.method: place for p, place in zip(points, places, strict=True) if p.hollow}
    for p, (x, y) in zip(points, places, strict=True):
        if p.compared and not p.hollow:
            xs, ys = (x, hollow[p.method][0]), (y, hollow[p.method][1])
            axes.plot(xs, ys, color=COLORS[p.method], lw=1, ls=(0, (1.5, 3)), gid="to-paper")


def _name(
    axes: Axes, points: Sequence[MethodPoint], places: Sequence[tuple[float, float]], height: float
) -> None:
    """Names beside each group of close points, on its right unless the next group is in the way."""
    at = [tuple(place) for place in axes.transData.transform(places)]
    groups = _groups([x for x, _ in at])
    for group, following in zip(groups, [*groups[1:], []], strict=True):
        named = [i for i in group if points[i].label]
        ys = spread([at[i][1] for i in named], LINE, 46, height - 28)
        width = LETTER * max((len(shorten(points[i].label)) for i in named), default=0)
        first, last = at[group[0]][0], at[group[-1]][0]
        crowded = bool(following) and last + 20 + width > at[following[0]][0]
        x = first - 14 if crowded and first - 14 - width > 36 else last + 14
        for i, y in zip(named, ys, strict=True):
            label(axes, points[i].label, places[i], (x, y), COLORS[points[i].method])


def _groups(xs: Sequence[float]) -> list[list[int]]:
    """Points that stand close together, from left to right.

    >>> _groups([100, 300, 130])
    [[0, 2], [1]]
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(xs)), key=lambda i: xs[i]):
        near = groups and xs[i] - xs[groups[-1][-1]] < 46
        groups[-1].append(i) if near else groups.append([i])
    return groups


class Curve(NamedTuple):
    """How a run learned."""

    method: str
    label: str
    validations: list[tuple[int, float, float]]
    """How far the training was, score, CI95."""


def curve_of(run: RunRecord, label: str) -> Curve:
    """From the lines of metrics.jsonl; a validation of one task has no CI95."""
    score, ci95 = run.figures.score, run.figures.ci95
    validations = [(run.at(m), m[score], m.get(ci95) or 0.0) for m in run.metrics]
    return Curve(run.method, label, validations)


def axes_of(run: RunRecord) -> tuple[str, str]:
    """What the axes of its learning curve show."""
    what = with_unit(f"{run.measure.words} on validation tasks", run.measure.unit)
    return run.figures.counted.words, what


def learning_curves(curves: Sequence[Curve], count: str, what: str) -> Figure:
    """The score over how far the training was, with CI95; each curve ends in its name."""
    curves = [curve for curve in curves if curve.validations]
    height = max(230, 70 + LINE * len(curves))
    right = 20 + LETTER * max(len(shorten(curve.label)) for curve in curves)
    figure, axes = canvas(height, right=right)
    every = [validation for curve in curves for validation in curve.validations]
    axes.set_xlim(0, max(tasks for tasks, _, _ in every) or 1)
    axes.set_ylim(around([v for _, a, c in every for v in (a - c, a + c)], 0.03))
    round_numbers(axes.xaxis, axes.yaxis)
    name_axes(axes, count, what)
    last = [curve.validations[-1][:2] for curve in curves]
    ends = spread([y for _, y in axes.transData.transform(last)], LINE, 46, height - 28)
    for i, (curve, end) in enumerate(zip(curves, ends, strict=True)):
        before = [c.method for c in curves[:i]].count(curve.method)
        _draw_curve(axes, curve, DASHES[before % len(DASHES)], with_band=len(curves) <= 6)
        place = (WIDTH - right + 12, end)
        label(axes, curve.label, curve.validations[-1][:2], place, COLORS[curve.method])
    return figure


def _draw_curve(axes: Axes, curve: Curve, dashes: Any, with_band: bool) -> None:
    color = COLORS[curve.method]
    tasks, scores, ci95 = zip(*curve.validations, strict=True)
    if with_band:
        low, high = ([a + s * c for a, c in zip(scores, ci95, strict=True)] for s in (-1, 1))
        axes.fill_between(tasks, low, high, color=color, alpha=0.13, lw=0)
    axes.plot(tasks, scores, color=color, lw=2, ls=dashes, label=curve.label)
    axes.plot(tasks, scores, "o", color=color, ms=4.8, mew=0, gid="dots")


class Bar(NamedTuple):
    """What one adaptation step of a method computes, in GMACs."""

    method: str
    label: str
    forward: float
    """What inference takes as well."""
    whole: float
    paper: float
    """0 where it has none."""


def computation(bars: Sequence[Bar]) -> Figure:
    """MACs of one step: what inference takes as well, what adapting adds; a line at the paper's."""
    most = max(v for bar in bars for v in (bar.whole, bar.paper))
    unit, factor = ("G", 1.0) if most >= 1 else ("M", 1000.0)
    figure, axes = canvas(34 * len(bars) + 40, left=4, right=62, top=6, bottom=34)
    end = most * factor * 1.02 if most > 0 else 1
    rows_axes(axes, len(bars), 0, end, f"{unit}MACs of one step over the support set")
    for i, bar in enumerate(bars):
        axes.text(0, i + 0.4, shorten(bar.label, 48), color=INK, fontsize=12, gid="name")
        _draw_bar(axes, bar, i, factor)
    return figure


def _draw_bar(axes: Axes, bar: Bar, row: int, factor: float) -> None:
    """Forward and the rest, where the paper's would end, and the figure behind both."""
    whole, paper = bar.whole * factor, bar.paper * factor
    forward = min(bar.forward * factor, whole)
    for start, end, alpha in ((0.0, forward, 0.35), (forward, whole, 1.0)):
        box(axes, (start, row + 0.5, end - start, 0.36), COLORS[bar.method], alpha)
    if paper:
        x, y = [paper, paper], [row + 0.42, row + 0.94]
        axes.plot(x, y, color=INK, lw=1.6, ls=(0, (1.6, 1.2)), gid="paper-line")
    at = (max(whole, paper), row + 0.68)
    beside(axes, number(whole), at, (5, 0), va="center", gid="name")
