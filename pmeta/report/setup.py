"""Runs of one set-up side by side: score against memory, learning, what is stored and computed."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup
from matplotlib.figure import Figure

from pmeta.method.methods import ALL, METHODS
from pmeta.report.figures import (
    Bar,
    MethodPoint,
    computation,
    curve_of,
    learning_curves,
    score_against_memory,
)
from pmeta.report.memory import Walk, dense_walk, memory_along_layers, walk_of
from pmeta.report.picture import COLORS, svg
from pmeta.report.run import PaperScore, RunRecord, paper_score
from pmeta.report.words import SHORT, bytes_text, labels, number, score_name, unit, with_ci95

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
    ours = next((run for run in reversed(runs) if run.score and run.row.sparse_alpha), None)
    if not ours or not ours.score:
        return ""
    memory = ours.score.memory_mb
    said = f"{ALL[ours.method].title} adapts in {bytes_text(memory)}: "
    said += f"{score_name(ours)} {with_ci95(ours.score, unit(ours))} ({ours.score.source})."
    plain = [run for name in ("maml++", "maml") for run in runs if run.method == name and run.score]
    walk = dense_walk(ours)
    if plain and plain[0].score:
        score = plain[0].score
        said += f" {ALL[plain[0].method].title} takes {_compared(score.memory_mb, memory)}: "
        said += f"{with_ci95(score, unit(ours))}."
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


def setup_section(setup: str, runs: Sequence[RunRecord]) -> dict[str, Any]:
    """All pictures of a set-up, and its figures as a table."""
    scored = [run for run in runs if run.score]
    if not scored:
        return {"title": setup, "overview": None}
    left, right = [hero(scored), *learning(scored)], [work(scored)]
    if len(left) == 1:
        left, right = [*left, *right], []
    cards = {"left": left, "right": right, "memory": memory_cards(scored)}
    return {"title": setup, "overview": overview(scored), **cards}


def hero(runs: Sequence[RunRecord]) -> Card:
    """The picture of the whole project."""
    caption = "Filled: ours with CI95. "
    if papers(runs):
        caption += "Hollow: what the paper prints, after its whole training; "
        caption += "dotted lines lead there. "
    what = score_name(runs[0])
    picture = score_against_memory(points(runs), what)
    return card(f"{what.capitalize()} against memory", f"{caption}Up and left is better.", picture)


def points(runs: Sequence[RunRecord]) -> list[MethodPoint]:
    """Ours, and the paper's for the same set-up."""
    found = []
    for run, label in zip(runs, labels(runs), strict=True):
        if s := run.score:
            figures = (s.memory_mb, s.value, s.ci95 or 0.0)
            found.append(MethodPoint(run.method, label, *figures, compared=bool(run.paper)))
    ours = {run.method for run in runs if run.score and run.paper}
    for method, p in papers(runs).items():
        label = "" if method in ours else SHORT[method]
        found.append(MethodPoint(method, label, p.memory_mb, p.value, 0.0, hollow=True))
    return found


def papers(runs: Sequence[RunRecord]) -> dict[str, PaperScore]:
    """What the paper prints for the set-up of these runs, method by method, if it has it."""
    for run in runs:
        found = {method: paper_score(run.config, run.image, method) for method in METHODS}
        if found["maml"]:
            return {method: p for method, p in found.items() if p}
    return {}


def learning(runs: Sequence[RunRecord]) -> list[Card]:
    """How the runs learned, where there is more than one validation."""
    if all(len(run.metrics) < 2 for run in runs):
        return []
    named = zip(runs, labels(runs), strict=True)
    curves = [curve_of(run.method, label, run.metrics) for run, label in named]
    picture = learning_curves(curves, score_name(runs[0]))
    return [card("Learning curves", "Score on unseen validation tasks, with CI95.", picture)]


def work(runs: Sequence[RunRecord]) -> Card:
    """What a step computes."""
    caption = "Light: the forward pass, which inference takes as well. Full: what adapting adds."
    caption += " Dashed line: the paper's." if any(run.paper for run in runs) else ""
    return card("Computation of one step", caption, computation(bars(runs)))


def bars(runs: Sequence[RunRecord]) -> list[Bar]:
    """GMACs of a step of each run."""
    found = []
    for run, label in zip(runs, labels(runs), strict=True):
        if run.score:
            paper = run.paper.gmac if run.paper else 0.0
            found.append(Bar(run.method, label, run.inference_gmac or 0.0, run.score.gmac, paper))
    return found


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
    what, names = score_name(runs[0]), labels(runs)
    heads = [f"{what}{' (%)' if what == 'accuracy' else ''}", "peak memory", "exact", "GMACs"]
    sources = {run.score.source for run in runs if run.score}
    several = len(sources) > 1
    rows = [_row(run, name, several) for run, name in zip(runs, names, strict=True)]
    notes = [DIFFERENT if several else f"Measured on: {sources.pop()}.", EXACT]
    for run, name in zip(runs, names, strict=True):
        if not run.finished:
            notes.append(f"{name} is not finished: {run.done:,} of {run.config.tasks:,} tasks.")
    return {"heads": heads, "rows": rows, "notes": notes}


def _row(run: RunRecord, label: str, with_source: bool) -> dict[str, Any]:
    s, p = run.score, run.paper
    assert s
    exact = "" if s.exact_memory_mb is None else bytes_text(s.exact_memory_mb)
    cells = [
        (with_ci95(s), f"paper {p.value:.1f}" if p else ""),
        (bytes_text(s.memory_mb), f"paper {bytes_text(p.memory_mb)}" if p else ""),
        (exact, ""),
        (number(s.gmac), f"paper {p.gmac:g}" if p else ""),
    ]
    name = label if ":" in label else ALL[run.method].title
    source = s.source if with_source else ""
    return {"color": COLORS[run.method], "name": name, "source": source, "cells": cells}
