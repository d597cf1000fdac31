"""Pictures that compare runs: score against memory, learning curves, computation."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from pmeta.method.methods import METHODS
from pmeta.report.html import Markup, el
from pmeta.report.plot import (
    WIDTH,
    Axes,
    Scale,
    around,
    css,
    line,
    mark,
    nice_ticks,
    number,
    rect,
    spread,
    svg,
    text,
)
from pmeta.report.run import PaperScore, RunRecord, Score, paper_score

LINE = 14
"""From one label to the next."""
LETTER = 6.2
"""Room for one letter of a label."""
DASHES = ("none", "6 3", "2 3", "9 3 2 3", "12 4")
"""Lines of runs of one method, which have one colour."""
SHORT = {name: row.title for name, row in METHODS.items()} | {"pmeta": "p-Meta"}


def labels(runs: Sequence[RunRecord]) -> list[str]:
    """A short name for each run: its method, and what is its own in the folder's name where the method is not enough."""
    found = []
    for run in runs:
        folders = [r.path.resolve().name for r in runs if r.method == run.method]
        own = run.path.resolve().name[_shared(folders) :]
        found.append(SHORT[run.method] if len(folders) == 1 else f"{SHORT[run.method]}: {own}")
    return found


def _shared(names: Sequence[str]) -> int:
    """How many letters all names begin with, up to the end of a word.

    >>> _shared(["4conv-1shot-a", "4conv-1shot-abc"]), _shared(["a", "abc"])
    (12, 0)
    """
    same = next(
        (i for i, letters in enumerate(zip(*names, strict=False)) if len(set(letters)) > 1),
        min(map(len, names)),
    )
    return len(re.sub(r"[^-_. ]*$", "", names[0][:same]))


def shorten(label: str, length: int = 24) -> str:
    """The beginning of a label that is too long for a picture.

    >>> shorten("p-Meta: a-run-with-a-long-name", 12)
    'p-Meta: a-r…'
    """
    return label if len(label) <= length else label[: length - 1] + "…"


def score_name(run: RunRecord) -> str:
    return "return" if run.is_rl else "accuracy"


def with_ci95(score: Score, unit: str = "") -> str:
    """A score as people write it."""
    digits = 1
    ci = "" if score.ci95 is None else f" ± {score.ci95:.{digits}f}"
    return f"{score.value:.{digits}f}{ci}{unit}"


def bytes_text(mb: float) -> str:
    """Memory in the unit that reads best; MB = 10^6 bytes, as in the paper.

    >>> bytes_text(0.0009), bytes_text(0.1017), bytes_text(0.99), bytes_text(54.69)
    ('0.9 kB', '102 kB', '0.99 MB', '54.69 MB')
    """
    return (
        f"{mb:.2f} MB"
        if mb >= 0.5
        else f"{1000 * mb:.0f} kB"
        if mb >= 0.00995
        else f"{1000 * mb:.2g} kB"
    )


class Point(NamedTuple):
    """A method in the picture of score against memory."""

    method: str
    label: str
    """Empty where another point has it."""
    title: str
    memory: float
    value: float
    ci95: float
    hollow: bool
    """The paper's."""
    compared: bool
    """The paper has the same with nothing changed."""


def score_against_memory(runs: Sequence[RunRecord]) -> Markup:
    """Ours with CI95, filled; the paper's hollow. Up and left is better."""
    points = _points(runs)
    largest = max(p.memory for p in points)
    unit, factor = ("MB", 1.0) if largest >= 1 else ("kB", 1000.0)
    low, high = around([v for p in points for v in (p.value - p.ci95, p.value + p.ci95)], 0.1)
    height = 250 + 4 * LINE * (len(points) > 12)
    margin = 24 + LETTER * max(len(shorten(p.label)) for p in points if p.memory > 0.8 * largest)
    x, y = Scale(0, largest * factor * 1.02, 36, WIDTH - margin), Scale(low, high, height - 38, 24)
    what = score_name(runs[0])
    axes = Axes(
        x,
        y,
        f"peak memory of adaptation ({unit})",
        f"{what} on unseen tasks" + (" (%)" if what == "accuracy" else ""),
    )
    places = [(x(p.memory * factor), y(p.value)) for p in points]
    parts = [axes.draw(), *_to_paper(points, places), *_labels(points, places, height)]
    for p, (px, py) in zip(points, places, strict=True):
        if p.ci95:
            parts.append(
                line(px, y(p.value - p.ci95), px, y(p.value + p.ci95), f"ci {css(p.method)}")
            )
        parts.append(mark(p.method, px, py, p.title, p.hollow))
    return svg(parts, height, f"{what} against memory")


def _points(runs: Sequence[RunRecord]) -> list[Point]:
    points = []
    for run, label in zip(runs, labels(runs), strict=True):
        s = run.score
        if s:
            title = f"{label}: {with_ci95(s)} in {bytes_text(s.memory_mb)} ({s.source})"
            points.append(
                Point(
                    run.method,
                    label,
                    title,
                    s.memory_mb,
                    s.value,
                    s.ci95 or 0.0,
                    False,
                    bool(run.paper),
                )
            )
    ours = {run.method for run in runs if run.score and run.paper}
    for method, p in papers(runs).items():
        label = "" if method in ours else SHORT[method]
        title = f"the paper's {METHODS[method].title}: {p.value:g} in {p.memory_mb:g} MB"
        points.append(Point(method, label, title, p.memory_mb, p.value, 0.0, True, True))
    return points


def papers(runs: Sequence[RunRecord]) -> dict[str, PaperScore]:
    """What the paper prints for the set-up of these runs, method by method; nothing where it has no such set-up."""
    for run in runs:
        found = {method: paper_score(run.config, run.image, method) for method in METHODS}
        if found["maml"]:
            return {method: p for method, p in found.items() if p}
    return {}


def _to_paper(points: Sequence[Point], places: Sequence[tuple[float, float]]) -> list[Markup]:
    """Dotted lines from ours to the paper's."""
    hollow = {p.method: place for p, place in zip(points, places, strict=True) if p.hollow}
    ours = [
        (p.method, place)
        for p, place in zip(points, places, strict=True)
        if p.compared and not p.hollow
    ]
    return [line(*place, *hollow[method], f"to-paper {css(method)}") for method, place in ours]


def _labels(
    points: Sequence[Point], places: Sequence[tuple[float, float]], height: float
) -> list[Markup]:
    """Labels beside each group of points that stand close together, on its right unless the next group is in the way."""
    parts = []
    groups = _groups(places)
    for group, following in zip(groups, [*groups[1:], []], strict=True):
        named = [i for i in group if points[i].label]
        ys = spread([places[i][1] for i in named], LINE, 28, height - 46)
        width = LETTER * max((len(shorten(points[i].label)) for i in named), default=0)
        first, last = places[group[0]][0], places[group[-1]][0]
        left = (
            bool(following)
            and last + 20 + width > places[following[0]][0]
            and first - 14 - width > 36
        )
        at = first - 14 if left else last + 14
        for i, label_y in zip(named, ys, strict=True):
            parts.append(
                line(
                    *places[i],
                    at + 2 if left else at - 2,
                    label_y,
                    f"leader {css(points[i].method)}",
                )
            )
            parts.append(
                text(at, label_y + 4, shorten(points[i].label), "end" if left else "start", "name")
            )
    return parts


def _groups(places: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Points that stand close together, from left to right."""
    groups: list[list[int]] = []
    for i in sorted(range(len(places)), key=lambda i: places[i][0]):
        near = groups and places[i][0] - places[groups[-1][-1]][0] < 46
        groups[-1].append(i) if near else groups.append([i])
    return groups


def learning_curves(runs: Sequence[RunRecord]) -> Markup:
    """The score on validation tasks, with CI95, over the tasks trained on; each curve ends in its name."""
    shown = [(run, label) for run, label in zip(runs, labels(runs), strict=True) if run.metrics]
    what = score_name(runs[0])
    key = "val_after" if runs[0].is_rl else "val_accuracy"
    curves = [[(m["tasks"], m[key], m["val_ci95"] or 0.0) for m in run.metrics] for run, _ in shown]
    height = max(230, 70 + LINE * len(shown))
    margin = 20 + LETTER * max(len(shorten(label)) for _, label in shown)
    low, high = around([v for curve in curves for _, a, c in curve for v in (a - c, a + c)], 0.03)
    x = Scale(0, max(curve[-1][0] for curve in curves), 36, WIDTH - margin)
    y = Scale(low, high, height - 38, 24)
    parts = [
        Axes(
            x,
            y,
            "tasks trained on",
            f"{what} on validation tasks" + (" (%)" if what == "accuracy" else ""),
        ).draw()
    ]
    ends = spread([y(curve[-1][1]) for curve in curves], LINE, 28, height - 46)
    seen: list[str] = []
    for (run, label), curve, end in zip(shown, curves, ends, strict=True):
        dashes = DASHES[seen.count(run.method) % len(DASHES)]
        seen.append(run.method)
        parts.append(_curve(run.method, label, curve, x, y, dashes, with_band=len(shown) <= 6))
        parts.append(
            line(x(curve[-1][0]), y(curve[-1][1]), x.end + 10, end, f"leader {css(run.method)}")
        )
        parts.append(text(x.end + 12, end + 3.5, shorten(label), class_="name"))
    return svg(parts, height, f"{what} over training")


def _curve(
    method: str,
    label: str,
    curve: Sequence[tuple[float, float, float]],
    x: Scale,
    y: Scale,
    dashes: str,
    with_band: bool,
) -> Markup:
    top = [f"{x(t):.1f},{y(a + c):.1f}" for t, a, c in curve]
    bottom = [f"{x(t):.1f},{y(a - c):.1f}" for t, a, c in reversed(curve)]
    path = " ".join(f"{x(t):.1f},{y(a):.1f}" for t, a, _ in curve)
    dots = [
        el(
            "circle",
            el("title", f"{label}, {t:,} tasks: {a:.1f} ± {c:.1f}"),
            cx=x(t),
            cy=y(a),
            r=2.4,
            class_="dot",
        )
        for t, a, c in curve
    ]
    band = el("polygon", points=" ".join([*top, *bottom]), class_="band")
    drawn = el("polyline", points=path, class_="curve", stroke_dasharray=dashes)
    return el("g", band if with_band else None, drawn, dots, class_=css(method))


def computation(runs: Sequence[RunRecord]) -> Markup:
    """MACs of one adaptation step as bars: what inference takes as well, what adapting adds; a line where the paper has it."""
    shown = [
        (run, label, run.score) for run, label in zip(runs, labels(runs), strict=True) if run.score
    ]
    most = max([s.gmac for _, _, s in shown] + [run.paper.gmac for run in runs if run.paper])
    unit, factor = ("G", 1.0) if most >= 1 else ("M", 1000.0)
    height, x = 34 * len(shown) + 40, Scale(0, most * factor * 1.02, 4, WIDTH - 62)
    parts = [line(x(v), 6, x(v), height - 34, "rule") for v in nice_ticks(0, x.high)]
    parts += [text(x(v), height - 20, number(v), "middle", "tick") for v in nice_ticks(0, x.high)]
    parts.append(
        text(
            (x.start + x.end) / 2,
            height - 5,
            f"{unit}MACs of one step over the support set",
            "middle",
            "label",
        )
    )
    for i, (run, label, score) in enumerate(shown):
        top = 34 * i + 19
        parts.append(text(4, top - 4, shorten(label, 48), class_="name"))
        parts += _bar(run, label, score.gmac * factor, top, x, unit, factor)
    return svg(parts, height, "computation of one adaptation step")


def _bar(
    run: RunRecord, label: str, whole: float, top: float, x: Scale, unit: str, factor: float
) -> list[Markup]:
    """Forward and the rest, where the paper's would end, and the figure behind both."""
    parts = []
    forward = min((run.inference_gmac or 0.0) * factor, whole)
    for start, end, kind in ((0.0, forward, "forward"), (forward, whole, "backward")):
        title = f"{label}, {kind}: {number(end - start)} {unit}MACs"
        parts.append(
            rect(x(start), top, x(end) - x(start), 12, title, class_=f"{kind} {css(run.method)}")
        )
    paper = run.paper.gmac * factor if run.paper else 0.0
    if paper:
        parts.append(line(x(paper), top - 3, x(paper), top + 15, "paper-line"))
    parts.append(text(x(max(whole, paper)) + 5, top + 10, number(whole), class_="name"))
    return parts
