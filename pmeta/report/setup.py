"""Runs of one set-up side by side: score against memory, learning, what is stored and computed."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup
from matplotlib.figure import Figure

from pmeta.method.methods import METHODS
from pmeta.report.figures import (
    Bar,
    MethodPoint,
    axes_of,
    computation,
    curve_of,
    learning_curves,
    score_against_memory,
)
from pmeta.report.memory import Walk, dense_walk, memory_along_layers, walk_of
from pmeta.report.picture import COLORS, svg
from pmeta.report.run import Costs, RunRecord, Score
from pmeta.report.shapes import PaperScore
from pmeta.report.words import SHORT, bytes_text, labels, number, with_ci95, with_unit

KINDS = {
    "conv": "inputs of convs",
    "norm": "inputs of group norms",
    "fc": "inputs of fc layers",
    "bits": "bits of ReLU and max-pool",
    "sum": "gradients summed up",
    "work": "buffer to work in",
}
DIFFERENT = (
    "Below each method: what it was measured on. "
    "A best validation is chosen for being the best, so it flatters."
)
EXACT = (
    "Peak memory of adapting one sample at a time, the mean over tasks in the paper's accounting; "
    "exact: with what that leaves out. MB = 10⁶ bytes. GMACs of one step over the support set."
)


class Card(NamedTuple):
    """A picture that says what it shows."""

    title: str
    caption: str
    picture: Markup


def card(title: str, caption: str, picture: Figure) -> Card:
    """A card of a drawing."""
    return Card(title, caption, svg(picture, title))


def finding(runs: Sequence[RunRecord]) -> str:
    """What these runs show, in a sentence or two of figures; empty where p-Meta is not there."""
    found = scored(runs)
    ours = next((r for r in reversed(found) if r.run.row and r.run.row.sparse_alpha), None)
    if not ours:
        return ""
    memory, what = ours.costs.memory_mb, ours.run.measure
    said = f"{ours.run.figures.title} adapts in {bytes_text(memory)}: "
    said += f"{what.words} {with_ci95(ours.score, what.unit)} ({ours.score.source})."
    plain = [r for name in ("maml++", "maml") for r in found if r.run.method == name]
    walk = dense_walk(ours.run)
    if plain:
        takes = _compared(plain[0].costs.memory_mb, memory)
        score = with_ci95(plain[0].score, what.unit)
        said += f" {plain[0].run.figures.title} takes {takes}: {score}."
    elif walk:
        takes = _compared(walk.peak_mb("paper"), memory)
        said += f" Updating every layer, as MAML does, takes {takes}."
    return said


def _compared(mb: float, ours: float) -> str:
    """
    >>> _compared(2.06, 0.99)
    '2.06 MB, 2.1 times as much'
    """
    return bytes_text(mb) + (f", {mb / ours:.1f} times as much" if ours > 0 else "")


class Scored(NamedTuple):
    """A run that was measured, costs and all."""

    run: RunRecord
    label: str
    score: Score
    costs: Costs


def scored(runs: Sequence[RunRecord]) -> list[Scored]:
    """Those of the runs whose score and costs are known."""
    return [
        Scored(run, label, run.score, run.score.costs)
        for run, label in zip(runs, labels(runs), strict=True)
        if run.score and run.score.costs
    ]


def setup_section(setup: str, runs: Sequence[RunRecord]) -> dict[str, Any]:
    """All pictures of a set-up, and its figures as a table."""
    runs = [run for run in runs if run.score]
    if not runs:
        return {"title": setup, "overview": None}
    left = [*hero(runs), *learning(runs)]
    right = work(runs)
    if len(left) == 1:
        left, right = [*left, *right], []
    cards = {"left": left, "right": right, "memory": memory_cards(runs)}
    return {"title": setup, "overview": overview(runs), **cards}


def hero(runs: Sequence[RunRecord]) -> list[Card]:
    """The picture of the whole project, where there is something to adapt."""
    if not scored(runs):
        return []
    caption = "Filled: ours with CI95. "
    if papers(runs):
        caption += "Hollow: what the paper prints, after its whole training; "
        caption += "dotted lines lead there. "
    what = runs[0].measure
    caption += f"{'Down' if what.better == 'lower' else 'Up'} and left is better."
    label = with_unit(f"{what.words} on unseen tasks", what.unit)
    picture = score_against_memory(points(runs), label)
    return [card(f"{_capital(what.words)} against memory", caption, picture)]


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def points(runs: Sequence[RunRecord]) -> list[MethodPoint]:
    """Ours, and the paper's for the same set-up."""
    found = [
        MethodPoint(
            r.run.method,
            r.label,
            r.costs.memory_mb,
            r.score.value,
            r.score.ci95 or 0.0,
            compared=bool(r.run.paper),
        )
        for r in scored(runs)
    ]
    ours = {run.method for run in runs if run.score and run.paper}
    for method, p in papers(runs).items():
        label = "" if method in ours else SHORT[method]
        found.append(MethodPoint(method, label, p.memory_mb, p.score, 0.0, hollow=True))
    return found


def papers(runs: Sequence[RunRecord]) -> dict[str, PaperScore]:
    """What the paper prints for the set-up of these runs, method by method, if it has it."""
    every = next((run.figures.paper for run in runs if run.figures.paper), {})
    return {method: every[method] for method in METHODS if method in every}


def learning(runs: Sequence[RunRecord]) -> list[Card]:
    """How the runs learned, where there is more than one validation."""
    if all(len(run.metrics) < 2 for run in runs):
        return []
    picture = learning_curves(
        [curve_of(run, label) for run, label in zip(runs, labels(runs), strict=True)],
        *axes_of(runs[0]),
    )
    return [card("Learning curves", "Score on unseen validation tasks, with CI95.", picture)]


def work(runs: Sequence[RunRecord]) -> list[Card]:
    """What a step computes, where there is one."""
    if not scored(runs):
        return []
    caption = "Light: the forward pass, which inference takes as well. Full: what adapting adds."
    caption += " Dashed line: the paper's." if any(run.paper for run in runs) else ""
    return [card("Computation of one step", caption, computation(bars(runs)))]


def bars(runs: Sequence[RunRecord]) -> list[Bar]:
    """GMACs of a step of each run."""
    return [
        Bar(
            r.run.method,
            r.label,
            r.run.inference_gmac,
            r.costs.gmac,
            r.run.paper.gmac if r.run.paper else 0.0,
        )
        for r in scored(runs)
    ]


def memory_cards(runs: Sequence[RunRecord]) -> list[Card]:
    """MAML beside the others, those that store the same in one picture."""
    shown: dict[str, tuple[Walk, list[str]]] = {}
    for run, label in zip(runs, labels(runs), strict=True):
        dense, walk = dense_walk(run), walk_of(run)
        if dense and walk:
            names = [] if any(r.method == "maml" for r in runs) else ["MAML"]
            shown.setdefault(_what(dense), (dense, names))
            shown.setdefault(_what(walk), (walk, []))[1].append(label)
    top = max((walk.peak_mb("paper") for walk, _ in shown.values()), default=0.0)
    return [
        card(_names(names), what, memory_along_layers(walk, top))
        for what, (walk, names) in shown.items()
    ]


def _what(walk: Walk) -> str:
    """What a step stores, in words."""
    sizes = (walk.stored_mb, walk.peak_mb("paper"), walk.peak_mb("exact"))
    stored, peak, exact = (bytes_text(mb) for mb in sizes)
    said = f"Updates {_listed(walk)} and stores {stored} for that."
    return f"{said} Peak {peak}, {exact} in the exact accounting."


def _names(names: Sequence[str]) -> str:
    """
    >>> _names(["MAML", "MAML++"]), _names(["a", "b", "c", "d"])
    ('MAML, MAML++', 'a, b and 2 more')
    """
    few = len(names) <= 3
    return ", ".join(names) if few else f"{', '.join(names[:2])} and {len(names) - 2} more"


def _listed(walk: Walk) -> str:
    every = [op.name for op in walk.ops if op.name]
    if len(walk.update) == len(every):
        return "every layer"
    few = len(walk.update) <= 6
    return ", ".join(walk.update) if few else f"{len(walk.update)} of {len(every)} layers"


def overview(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """The figures of every run, the paper's below them."""
    what, adapted = runs[0].measure, scored(runs)
    heads = [with_unit(what.words, what.unit)]
    heads += ["peak memory", "exact", "GMACs"] if adapted else []
    sources = {run.score.source for run in runs if run.score}
    several, names = len(sources) > 1, labels(runs)
    rows = [_row(run, name, several) for run, name in zip(runs, names, strict=True)]
    notes = [DIFFERENT if several else f"Measured on: {sources.pop()}."]
    notes += [EXACT] if adapted else []
    for run, name in zip(runs, names, strict=True):
        if not run.finished:
            of = run.so_far(run.figures.total)
            notes.append(f"{name} is not finished: {run.done:,} of {of}.")
    return {"heads": heads, "rows": rows, "notes": notes}


def _row(run: RunRecord, label: str, with_source: bool) -> dict[str, Any]:
    s, p = run.score, run.paper
    assert s
    cells = [(with_ci95(s), f"paper {p.score:.1f}" if p else "")]
    if s.costs:
        exact = "" if s.costs.exact_memory_mb is None else bytes_text(s.costs.exact_memory_mb)
        cells += [
            (bytes_text(s.costs.memory_mb), f"paper {bytes_text(p.memory_mb)}" if p else ""),
            (exact, ""),
            (number(s.costs.gmac), f"paper {p.gmac:g}" if p else ""),
        ]
    name = label if ":" in label else run.figures.title
    source = s.source if with_source else ""
    return {"color": COLORS[run.method], "name": name, "source": source, "cells": cells}
