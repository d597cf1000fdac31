"""Tables of `pmeta reproduce`: ours with CI95 beside the paper's, in words and as pictures."""

from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmeta.report.picture import (
    ACCENT,
    FAINT,
    LETTER,
    LIGHT,
    around,
    canvas,
    row_label,
    rows_axes,
)
from pmeta.report.words import shorten

Table = dict[str, Any]
CellFacts = dict[str, Any]
SCORES = ("%", "return", "")
"""Units of cells that say how well a method does, not what it costs."""


class Entry(NamedTuple):
    """A cell in words."""

    ours: str = ""
    """Empty where it is missing."""
    paper: str = ""
    tip: str = ""


def entries(given: Table) -> list[tuple[str, list[Entry | None]]]:
    """The rows of the table with their cells; None where the table has none."""
    cells = {(c["row"], c["column"]): c for c in given["cells"]}
    places = [
        (row, [cells.get((row, column)) for column in given["columns"]]) for row in given["rows"]
    ]
    return [(row, [cell and _entry(cell) for cell in found]) for row, found in places]


def _entry(cell: CellFacts) -> Entry:
    paper = "" if cell["paper"] is None else f"paper {digits(cell['paper'], cell['unit'])}"
    if cell["ours"] is None:
        return Entry("", paper, cell["missing"] or "not there yet")
    ci95 = "" if cell["ci95"] is None else f" ± {cell['ci95']:.1f}"
    most = "≤ " if cell.get("at_most") else ""
    return Entry(f"{most}{digits(cell['ours'], cell['unit'])}{ci95}", paper, behind(cell))


def digits(value: float, unit: str) -> str:
    """A figure with as many digits as the paper gives it.

    >>> digits(36.4211, "%"), digits(2.0644, "MB"), digits(185.421, "GMAC"), digits(0.0161, "MB")
    ('36.4', '2.06', '185.42', '0.016')
    """
    return f"{value:.1f}" if unit in SCORES else f"{value:.2f}" if value >= 0.05 else f"{value:.2g}"


def behind(cell: CellFacts) -> str:
    """What a figure of ours comes from, in words.

    >>> behind({"tasks": 2000, "seeds": [0], "eval_tasks": 1000, "split": "val"})
    'trained on 2,000 tasks, seed 0, evaluated on 1,000 tasks (val)'
    """
    if cell.get("tasks") is None:
        return str(cell.get("note") or "from the cost model")
    split = f" ({cell['split']})" if cell.get("split") else ""
    seeds = ", ".join(map(str, cell["seeds"]))
    evaluated = f"evaluated on {cell['eval_tasks'] or 0:,} tasks{split}"
    return f"trained on {cell['tasks']:,} tasks, seed {seeds}, {evaluated}"


def notes(given: Table) -> list[str]:
    """What must be known to read the table: where it comes from, and what is missing why."""
    data = ", ".join(given["data"]) or "no data set"
    split = given.get("split") or "nothing yet"
    found = [f"Schedule: {given.get('scale')}. Data: {data}. Evaluated on: {split}."]
    trained = sorted(
        {behind(c) for c in given["cells"] if c["ours"] is not None and c["tasks"] is not None}
    )
    found += [f"Ours: {'; '.join(trained)}."] if trained else []
    found += sorted({c["note"] for c in given["cells"] if c.get("note") and c["ours"] is not None})
    reasons: dict[str, int] = {}
    for cell in given["cells"]:
        if cell["ours"] is None:
            reason = cell["missing"] or "not there yet"
            reasons[reason] = reasons.get(reason, 0) + 1
    return found + [
        f"{n} cell{'s are' if n > 1 else ' is'} missing: {reason}." for reason, n in reasons.items()
    ]


def differences(given: Table) -> list[CellFacts]:
    """Cells that were compared with another row on the same tasks."""
    return [c for c in given["cells"] if c.get("difference") is not None]


class Row(NamedTuple):
    """A line of a picture."""

    label: str
    ours: float | None
    ci95: float
    paper: float | None


def difference_picture(cells: list[CellFacts]) -> Figure:
    """How much better than the reference on the same tasks, with CI95; the paper's hollow."""
    keys = ("difference", "difference_ci95", "difference_paper")
    rows = [Row(f"{c['row']}, {c['column']}", *(c[key] for key in keys)) for c in cells]
    return _dots(rows, f"points more than {cells[0]['versus']} on the same tasks", zero=True)


def score_picture(given: Table, column: str) -> Figure | None:
    """One column of scores, ours filled, the paper's hollow; None where ours is missing."""
    cells = [c for c in given["cells"] if c["column"] == column and c["unit"] in SCORES]
    if not any(c["ours"] is not None for c in cells):
        return None
    rows = [Row(c["row"], c["ours"], c["ci95"] or 0.0, c["paper"]) for c in cells]
    return _dots(rows, f"{column} ({cells[0]['unit'] or 'return'})")


def _dots(rows: list[Row], label: str, zero: bool = False) -> Figure:
    """Ours filled with CI95 and the paper's hollow, a line for each row."""
    ours = [v for r in rows if r.ours is not None for v in (r.ours - r.ci95, r.ours + r.ci95)]
    papers = [r.paper for r in rows if r.paper is not None]
    left = min(14 + LETTER * max(len(r.label) for r in rows), 165)
    figure, axes = canvas(22 * len(rows) + 44, left, 10, 4, 36)
    low, high = around([*ours, *papers, *([0.0] if zero else [])], 0.06)
    rows_axes(axes, len(rows), low, high, label)
    if zero:
        axes.axvline(0, color=FAINT, lw=1)
    for i, row in enumerate(rows):
        row_label(axes, i + 0.5, shorten(row.label, 25))
        _dot_line(axes, row, i + 0.5)
    return figure


def _dot_line(axes: Axes, row: Row, y: float) -> None:
    if row.ours is not None:
        ends = [row.ours - row.ci95, row.ours + row.ci95]
        axes.plot(ends, [y, y], color=ACCENT, lw=2, alpha=0.55, gid="ci")
    for value, face, kind in ((row.paper, LIGHT["card"], "hollow"), (row.ours, ACCENT, "mark")):
        if value is not None:
            axes.plot([value], [y], "o", color=ACCENT, mfc=face, mew=1.6, ms=8, gid=kind)
