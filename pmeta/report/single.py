"""One run by itself: how its step sizes evolved, which shares of the weights it updates, its evaluations and settings."""

import dataclasses
from typing import Any

from pmeta.report.comparison import bytes_text, with_ci95
from pmeta.report.html import Markup, el
from pmeta.report.plot import number
from pmeta.report.run import RunRecord, score_of
from pmeta.report.setup import card, grid, unit
from pmeta.report.steps import heat_map, stages, step_sizes, update_ratios


def run_section(run: RunRecord, label: str, opened: bool) -> Markup:
    """What is known of a run, behind a line that says what it is."""
    state = "finished" if run.finished else f"{run.done:,} of {run.config.tasks:,} tasks"
    score = (
        f", {with_ci95(run.score, unit(run))} in {bytes_text(run.score.memory_mb)}"
        if run.score
        else ""
    )
    line = el("summary", label, el("span", f" {run.setup}: {state}{score}"))
    parts = [
        line,
        el("p", el("code", str(run.path)), f": {run.title}.", class_="note"),
        *_failed(run),
    ]
    if run.chosen:
        parts += [grid(_cards(run))]
    else:
        parts += [el("p", "Not validated yet: there is nothing to draw.")]
    parts += _evaluations(run)
    parts += [
        el("h3", "Settings"),
        el("p", "Bold where they differ from the defaults.", class_="note"),
        settings(run),
    ]
    return el("details", parts, open="" if opened else None)


def _failed(run: RunRecord) -> list[Markup]:
    return [el("p", el("b", "This run ended with an error: "), run.failed)] if run.failed else []


def _cards(run: RunRecord) -> list[Markup]:
    chosen = run.chosen
    assert chosen
    which = "best model" if run.best else "last validation; the layers are not chosen yet"
    shares, measured = update_ratios(run)
    how = "Mean over evaluated tasks." if any("update_ratios" in e for e in run.evaluations) else ""
    how = how or (
        "Whole layers: there are no scores."
        if measured
        else "The most that the clipped scores can leave."
    )
    cards = [
        card(
            f"Step sizes α after {chosen['tasks']:,} tasks",
            f"Of each layer and step, {which}. A point stands for 0: not updated, nothing stored.",
            step_sizes(run, chosen),
        ),
        card(
            "Share of the weights that each step updates",
            how,
            heat_map(shares, run.layers, 1.0, _share, "updated share"),
        ),
    ]
    if len(run.metrics) > 1:
        words = "From the first to the last validation, after so many tasks; rows are layers, columns are steps, as above."
        cards.insert(1, card("How the step sizes evolved", words, stages(run)))
    return cards


def _share(value: float) -> str:
    return "·" if value <= 0 else "1" if value >= 0.995 else f"{value:.2f}".lstrip("0")


def _evaluations(run: RunRecord) -> list[Markup]:
    """All evaluations that are kept with the run."""
    if not run.evaluations:
        return []
    head = el(
        "tr",
        [
            el("th", h)
            for h in (
                "data",
                "split",
                "samples at a time",
                "tasks",
                "score",
                "peak memory",
                "GMACs",
            )
        ],
    )
    rows = []
    for e in run.evaluations:
        s = score_of(e, "")
        names = (
            e.get("data") or "the run's own",
            e.get("split", "unseen tasks"),
            e.get("batch", 1) or "all",
            f"{e['tasks']:,}",
        )
        cells = [*map(str, names), with_ci95(s, unit(run)), bytes_text(s.memory_mb), number(s.gmac)]
        rows.append(el("tr", [el("td", cell) for cell in cells]))
    return [el("h3", "Evaluations"), el("div", el("table", head, rows), class_="scroll")]


def settings(run: RunRecord) -> Markup:
    """Every setting of config.json, those that differ from the defaults in bold."""
    usual = {f.name: f.default for f in dataclasses.fields(run.config)}
    flat: dict[str, Any] = {k: v for k, v in run.settings.items() if k != "versions"}
    items = [
        el(
            "div",
            f"{name}: ",
            el("b" if value != usual.get(name) else "span", _plain(value)),
            class_=_kind(name, value, usual),
        )
        for name, value in flat.items()
    ]
    versions = ", ".join(f"{name} {v}" for name, v in run.settings["versions"].items())
    return el(
        "div",
        el("div", items, class_="settings"),
        el("p", f"Started with {versions}.", class_="note"),
    )


def _kind(name: str, value: Any, usual: dict[str, Any]) -> str | None:
    return "usual" if value == usual.get(name) else None


def _plain(value: Any) -> str:
    return "–" if value == "" else str(value)
