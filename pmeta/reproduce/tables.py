"""Tables as Markdown, CSV and JSON, each file put in place whole."""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pmeta.base.files import cannot_write, lock, make_folder, write_atomically
from pmeta.training.run_folder import plain

FIELDS = (
    *("row", "column", "unit", "ours", "ci95", "paper"),
    *("tasks", "seeds", "eval_tasks", "split", "run", "missing", "note"),
)


@contextmanager
def only_one_writes(out: Path) -> Iterator[None]:
    """Two queues may share a folder: their tables are written one after the other."""
    make_folder(out)
    place = out / ".lock"
    try:
        held = lock(place, wait=True)
    except OSError as error:
        raise cannot_write(place, error) from None
    try:
        yield
    finally:
        if held:
            held.release()


def write(table: dict[str, Any], out: Path) -> None:
    """OUT/tableN.json, .csv and .md, those that are new."""
    if table["scale"] == "smoke":
        table = without_paper(table)
    texts = {
        "json": json.dumps(plain(table), indent=2) + "\n",
        "csv": as_csv(table),
        "md": as_markdown(table),
    }
    for kind, text in texts.items():
        path = out / f"{table['name']}.{kind}"
        if not path.exists() or path.read_text() != text:
            write_atomically(path, text.encode())


def without_paper(table: dict[str, Any]) -> dict[str, Any]:
    """The same with nothing of the paper's: a check of the plumbing is not to be compared."""
    gone = ("paper", "difference_paper")
    cells = [{k: v for k, v in cell.items() if k not in gone} for cell in table["cells"]]
    return {**table, "cells": [{**cell, "paper": None} for cell in cells]}


def as_csv(table: dict[str, Any]) -> str:
    """A line for each cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    fields = [name for name in FIELDS if name != "paper" or table["scale"] != "smoke"]
    writer.writerow(fields)
    for cell in table["cells"]:
        seeds = " ".join(map(str, cell["seeds"]))
        writer.writerow([seeds if name == "seeds" else cell.get(name) for name in fields])
    return text.getvalue()


def as_markdown(table: dict[str, Any]) -> str:
    """Ours with CI95, and the paper's in brackets; then what stands behind each run, and what is
    missing and why."""
    cells = {(cell["row"], cell["column"]): cell for cell in table["cells"]}
    units = {cell["column"]: cell["unit"] for cell in table["cells"]}
    columns = table["columns"]
    heads = [f"{c} ({units[c]})" if units[c] and units[c] not in c else c for c in columns]
    body = [[row, *(_shown(cells.get((row, c))) for c in columns)] for row in table["rows"]]
    title = f"# Table {table['name'][-1]}: {table['title']}"
    parts = [title, _about(table), _grid(["", *heads], body)]
    parts += [*_differences(table), *_runs(table), *_notes(table)]
    return "\n\n".join(parts) + "\n"


def _about(table: dict[str, Any]) -> str:
    data = f" Data: {', '.join(table['data'])}." if table["data"] else ""
    split = f" Classes evaluated on: {table['split']}." if table["split"] else ""
    if table["scale"] == "smoke":
        return f"**Plumbing check, not results.** Scale: smoke.{data}{split}"
    return (
        "Ours ± CI95, the paper's in brackets; – is missing, see below. Scale: "
        f"{table['scale']}.{data}{split}"
    )


def _digits(cell: dict[str, Any]) -> int:
    """As many as the paper prints."""
    if cell["unit"] in ("%", ""):
        return 1
    if cell["paper"] is None:
        return 3
    return 2 if round(cell["paper"], 2) == cell["paper"] else 3


def _shown(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return ""
    digits = _digits(cell)
    paper = "" if cell["paper"] is None else f" ({cell['paper']:.{digits}f})"
    if cell["ours"] is None:
        return f"–{paper}"
    ci95 = "" if cell["ci95"] is None else f" ± {cell['ci95']:.{digits}f}"
    return f"{'≤ ' if cell.get('at_most') else ''}{cell['ours']:.{digits}f}{ci95}{paper}"


def _grid(heads: list[str], body: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _differences(table: dict[str, Any]) -> list[str]:
    """The table again as differences to one row on the same tasks, of the columns that have
    some."""
    cells = {(cell["row"], cell["column"]): cell for cell in table["cells"] if "difference" in cell}
    columns = [c for c in table["columns"] if any(column == c for _, column in cells)]
    rows = [row for row in table["rows"] if any(name == row for name, _ in cells)]
    if not cells:
        return []

    def shown(row: str, column: str) -> str:
        cell = cells.get((row, column))
        if not cell:
            return ""
        paper = f" ({cell['difference_paper']:+.1f})" if "difference_paper" in cell else ""
        return f"{cell['difference']:+.1f} ± {cell['difference_ci95']:.1f}{paper}"

    versus = next(iter(cells.values()))["versus"]
    body = [[row, *(shown(row, column) for column in columns)] for row in rows]
    return [
        f"Difference to {versus} on the same tasks, in points, ± CI95 over tasks:",
        _grid(["", *columns], body),
    ]


def _runs(table: dict[str, Any]) -> list[str]:
    """Tasks trained on, seeds and evaluation tasks of every run."""
    runs: dict[str, list[str]] = {}
    for cell in table["cells"]:
        if cell["run"] and cell["ours"] is not None:
            seeds = ", ".join(map(str, cell["seeds"]))
            runs.setdefault(
                cell["run"],
                [cell["row"], f"{cell['tasks']}", seeds, f"{cell['eval_tasks']}", cell["run"]],
            )
    heads = ["row", "tasks trained on", "seeds", "tasks evaluated on", "run"]
    return [_grid(heads, list(runs.values()))] if runs else []


def _notes(table: dict[str, Any]) -> list[str]:
    """What is missing and why, and what to know about a figure, each reason once."""
    reasons: dict[str, list[dict[str, Any]]] = {}
    for cell in table["cells"]:
        for text in (
            f"Missing ({cell['missing']})" if cell["missing"] else "",
            cell.get("note", "").rstrip("."),
        ):
            if text:
                reasons.setdefault(text, []).append(cell)
    lines = [
        f"- {text}: {', '.join(_places(cells, table['cells']))}." for text, cells in reasons.items()
    ]
    return ["\n".join(lines)] if lines else []


def _places(some: list[dict[str, Any]], cells: list[dict[str, Any]]) -> list[str]:
    """Names for some cells of a table: whole columns, else whole columns of a row, else one by one.

    >>> grid = [{"row": r, "column": c} for r in "ab" for c in "xy"]
    >>> _places([grid[1], grid[2], grid[3]], grid), _places(grid, grid)
    (['column y', 'b x'], ['everything'])
    """
    if len(some) == len(cells):
        return ["everything"]
    columns = list(dict.fromkeys(cell["column"] for cell in some))
    whole = [c for c in columns if all(x in some for x in cells if x["column"] == c)]
    rest = [x for x in some if x["column"] not in whole]
    return [f"column {c}" for c in whole] + [f"{x['row']} {x['column']}" for x in rest]
