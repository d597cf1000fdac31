"""The page: what was given, in sections from the whole to the single run."""

from base64 import b64encode
from pathlib import Path
from typing import Any

from pmeta.method.methods import METHODS
from pmeta.report.comparison import labels
from pmeta.report.html import Markup, el
from pmeta.report.read import Given
from pmeta.report.run import RunRecord
from pmeta.report.setup import card, finding, grid, setup_section
from pmeta.report.single import run_section
from pmeta.report.style import script, style
from pmeta.report.tables import difference_picture, differences, notes, score_picture, table

OPEN = 3
"""So many runs are shown in full; of more, each opens when asked."""


def page(given: Given, title: str) -> str:
    """One HTML page that needs nothing else."""
    groups = by_setup(given.runs)
    body = [el("h1", title), el("p", _counts(given), class_="note")]
    body += [el("p", finding(runs), class_="lead") for runs in groups.values()]
    body += [setup_section(setup, runs) for setup, runs in groups.items()]
    body += [table_section(t) for t in given.tables]
    body += [picture(*figure) for figure in given.figures]
    if given.runs:
        body.append(el("h2", "Each run"))
    for runs in groups.values():
        names = labels(runs)
        body += [
            run_section(run, name, len(given.runs) <= OPEN)
            for run, name in zip(runs, names, strict=True)
        ]
    head = [
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", title),
        el("style", Markup(style())),
    ]
    whole = el(
        "html", el("head", head), el("body", body, el("script", Markup(script()))), lang="en"
    )
    return f"<!doctype html>\n{whole}\n"


def by_setup(runs: list[RunRecord]) -> dict[str, list[RunRecord]]:
    """Runs that can be compared with each other, in the order of the methods."""
    groups: dict[str, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: (list(METHODS).index(run.method), str(run.path))):
        groups.setdefault(run.setup, []).append(run)
    return groups


def _counts(given: Given) -> str:
    parts = [(len(given.runs), "run"), (len(given.tables), "table"), (len(given.figures), "figure")]
    return (
        ", ".join(f"{n} {name}{'s' if n > 1 else ''}" for n, name in parts if n)
        + ". Made by pmeta report."
    )


def table_section(given: dict[str, Any]) -> Markup:
    """A table of the paper with ours, as numbers and as pictures."""
    name = str(given.get("name", "")).replace("table", "Table ")
    pictures = []
    for column in given["columns"]:
        shown = score_picture(given, column)
        if shown:
            pictures.append(
                card(f"{name}: {column}", "Filled: ours with CI95. Hollow: the paper's.", shown)
            )
    compared = differences(given)
    if compared:
        words = "Paired over the same tasks, with CI95: where the bar crosses 0, the two cannot be told apart. Hollow: the paper's."
        pictures.append(
            card(
                f"{name}: what each row gains over {compared[0]['versus']}",
                words,
                difference_picture(compared),
            )
        )
    text = [el("p", note, class_="note") for note in notes(given)]
    heading = f"{name}. {given.get('title', '')}"
    return el(
        "section", el("h2", heading), table(given), text, grid(pictures) if pictures else None
    )


def picture(title: str, path: Path) -> Markup:
    """A figure of `pmeta reproduce`, inside the page."""
    source = f"data:image/svg+xml;base64,{b64encode(path.read_bytes()).decode()}"
    return el("section", el("h2", title), el("img", src=source, alt=title, class_="picture"))
