"""Runs of one set-up side by side: score against memory, learning, what is stored and computed."""

from collections.abc import Sequence

from pmeta.method.methods import METHODS
from pmeta.report.comparison import (
    bytes_text,
    computation,
    labels,
    learning_curves,
    papers,
    score_against_memory,
    score_name,
    with_ci95,
)
from pmeta.report.html import Child, Markup, el
from pmeta.report.memory import Walk, dense_walk, memory_along_layers, walk_of
from pmeta.report.plot import css, number
from pmeta.report.run import RunRecord

KINDS = {
    "conv": "inputs of convs",
    "norm": "inputs of group norms",
    "fc": "inputs of fc layers",
    "bits": "bits of ReLU and max-pool",
    "sum": "gradients summed up",
    "work": "buffer to work in",
}


def card(title: str, caption: Child, content: Child) -> Markup:
    """A figure that says what it shows."""
    return el("figure", el("figcaption", el("b", title), caption), content, class_="card")


def grid(cards: Sequence[Markup]) -> Markup:
    """Cards of one size beside each other, as many as fit."""
    return el("div", cards, class_="grid" if len(cards) not in (1, 2, 4) else "grid pair")


def unit(run: RunRecord) -> str:
    return "" if run.is_rl else " %"


def finding(runs: Sequence[RunRecord]) -> Markup | None:
    """What these runs show, in a sentence or two of figures."""
    ours = next((run for run in reversed(runs) if run.score and run.row.sparse_alpha), None)
    if not ours or not ours.score:
        return None
    said = f"{METHODS[ours.method].title} adapts in {bytes_text(ours.score.memory_mb)}: "
    said += f"{score_name(ours)} {with_ci95(ours.score, unit(ours))} ({ours.score.source})."
    dense = next(
        (run for name in ("maml++", "maml") for run in runs if run.method == name and run.score),
        None,
    )
    walk = dense_walk(ours)
    if dense and dense.score:
        times = dense.score.memory_mb / ours.score.memory_mb
        said += f" {METHODS[dense.method].title} takes {bytes_text(dense.score.memory_mb)}, {times:.1f} times as much: "
        said += f"{with_ci95(dense.score, unit(dense))}."
    elif walk:
        memory = walk.peak_mb("paper")
        times = memory / ours.score.memory_mb
        said += f" Updating every layer, as MAML does, takes {bytes_text(memory)}, {times:.1f} times as much."
    return el("span", el("b", f"{ours.setup}. "), said)


def setup_section(setup: str, runs: Sequence[RunRecord]) -> Markup:
    """All pictures of a set-up, and its figures as a table."""
    scored = [run for run in runs if run.score]
    if not scored:
        waiting = "No run of this set-up has been validated yet."
        return el("section", el("h2", setup), el("p", waiting))
    left, right = [hero(scored), *learning(scored)], [overview(scored)]
    (right if len(left) > 1 else left).append(work(scored))
    columns = [el("div", column, class_="column") for column in (left, right)]
    parts = [el("h2", setup), el("div", columns, class_="hero")]
    memory = memory_cards(scored)
    if memory:
        parts += [
            el("h3", "Memory along the layers"),
            el("p", MEMORY, class_="note"),
            key(),
            grid(memory),
        ]
    return el("section", parts)


def hero(runs: Sequence[RunRecord]) -> Markup:
    """The picture of the whole project."""
    caption = "Filled: ours with CI95. "
    if papers(runs):
        caption += (
            "Hollow: what the paper prints, after its whole training; dotted lines lead there. "
        )
    return card(
        f"{score_name(runs[0]).capitalize()} against memory",
        f"{caption}Up and left is better.",
        score_against_memory(runs),
    )


def learning(runs: Sequence[RunRecord]) -> list[Markup]:
    """How the runs learned, where there is more than one validation."""
    if all(len(run.metrics) < 2 for run in runs):
        return []
    return [
        card(
            "Learning curves", "Score on unseen validation tasks, with CI95.", learning_curves(runs)
        )
    ]


def work(runs: Sequence[RunRecord]) -> Markup:
    """What a step computes."""
    caption = "Light: the forward pass, which inference takes as well. Full: what adapting adds."
    caption += " Dashed line: the paper's." if any(run.paper for run in runs) else ""
    return card("Computation of one step", caption, computation(runs))


MEMORY = (
    "One sample on its way through the network, in the step that takes the most memory and in the paper's accounting. A band "
    "begins where a layer stores its input for the backward pass and stays to the end; all on one scale."
)


DIFFERENT = "Below each method: what it was measured on. A best validation is chosen for being the best, so it flatters."
EXACT = (
    "Peak memory of adapting one sample at a time, the mean over tasks in the paper's accounting; exact: with what that "
    "leaves out. MB = 10⁶ bytes. GMACs of one step over the support set."
)


def key() -> Markup:
    """What the colours of the bands mean."""
    return el(
        "p",
        [el("span", el("i", style=f"--c: var(--{kind})"), words) for kind, words in KINDS.items()],
        class_="key",
    )


def memory_cards(runs: Sequence[RunRecord]) -> list[Markup]:
    """MAML beside the others, those that store the same in one picture."""
    shown: dict[str, tuple[Walk, list[str]]] = {}
    for run, label in zip(runs, labels(runs), strict=True):
        dense, walk = dense_walk(run), walk_of(run)
        if dense and walk:
            shown.setdefault(
                _what(dense), (dense, [] if any(r.method == "maml" for r in runs) else ["MAML"])
            )
            shown.setdefault(_what(walk), (walk, []))[1].append(label)
    top = max((walk.peak_mb("paper") for walk, _ in shown.values()), default=0.0)
    return [
        card(_names(names), what, memory_along_layers(walk, top))
        for what, (walk, names) in shown.items()
    ]


def _what(walk: Walk) -> str:
    """What a step stores, in words."""
    stored, peak, exact = (
        bytes_text(mb) for mb in (walk.stored_mb, walk.peak_mb("paper"), walk.peak_mb("exact"))
    )
    return f"Updates {_listed(walk)} and stores {stored} for that. Peak {peak}, {exact} in the exact accounting."


def _names(names: Sequence[str]) -> str:
    return (
        ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
    )


def _listed(walk: Walk) -> str:
    every = [op.name for op in walk.ops if op.name]
    if len(walk.update) == len(every):
        return "every layer"
    return (
        ", ".join(walk.update)
        if len(walk.update) <= 6
        else f"{len(walk.update)} of {len(every)} layers"
    )


def overview(runs: Sequence[RunRecord]) -> Markup:
    """The figures of every run, the paper's below them."""
    what = score_name(runs[0])
    heads = [f"{what}{' (%)' if what == 'accuracy' else ''}", "peak memory", "exact", "GMACs"]
    head = el("tr", el("th", "method"), [el("th", h, class_="n") for h in heads])
    sources = {s.source for s in (run.score for run in runs) if s}
    rows = [
        _row(run, label, len(sources) > 1) for run, label in zip(runs, labels(runs), strict=True)
    ]
    notes = [f"Measured on: {sources.pop()}." if len(sources) == 1 else DIFFERENT, EXACT]
    for run, label in zip(runs, labels(runs), strict=True):
        if not run.finished:
            notes.append(f"{label} is not finished: {run.done:,} of {run.config.tasks:,} tasks.")
    table = el("div", el("table", el("thead", head), el("tbody", rows)), class_="scroll")
    return el("div", table, [el("p", note, class_="note") for note in notes])


def _row(run: RunRecord, label: str, with_source: bool) -> Markup:
    s, p = run.score, run.paper
    assert s
    name = label if ":" in label else METHODS[run.method].title
    exact = "" if s.exact_memory_mb is None else bytes_text(s.exact_memory_mb)
    cells = [
        (with_ci95(s), p and f"paper {p.value:.1f}"),
        (bytes_text(s.memory_mb), p and f"paper {bytes_text(p.memory_mb)}"),
        (exact, None),
        (number(s.gmac), p and f"paper {p.gmac:g}"),
    ]
    figures = [
        el("td", el("b", ours), el("br"), el("small", paper or ""), class_="n")
        for ours, paper in cells
    ]
    source = [el("br"), el("small", s.source)] if with_source else None
    dot = el("i", class_=f"swatch {css(run.method)}")
    return el("tr", el("th", dot, name, source), figures)
