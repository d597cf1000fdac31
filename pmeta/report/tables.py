"""Tables of `pmeta reproduce` for the page: ours with CI95 beside the paper's, cell by cell, and as a picture."""

from typing import Any, NamedTuple

from pmeta.report.html import Markup, el
from pmeta.report.plot import WIDTH, Scale, around, line, nice_ticks, number, svg, text

Table = dict[str, Any]
Cell = dict[str, Any]
SCORES = ("%", "return", "")
"""Units of cells that say how well a method does, not what it costs."""


def table(given: Table) -> Markup:
    """The table, what stands behind it, and why cells are missing."""
    cells = {(c["row"], c["column"]): c for c in given["cells"]}
    head = el("tr", el("th", ""), [el("th", column, class_="n") for column in given["columns"]])
    body = [
        el("tr", el("th", row), [_cell(cells.get((row, column))) for column in given["columns"]])
        for row in given["rows"]
    ]
    return el("div", el("table", el("thead", head), el("tbody", body)), class_="scroll")


def _cell(cell: Cell | None) -> Markup:
    if cell is None:
        return el("td", "", class_="n")
    paper = "" if cell["paper"] is None else f"paper {digits(cell['paper'], cell['unit'])}"
    if cell["ours"] is None:
        return el(
            "td",
            "–",
            el("br"),
            el("small", paper),
            class_="n",
            title=cell["missing"] or "not there yet",
        )
    ci95 = "" if cell["ci95"] is None else f" ± {cell['ci95']:.1f}"
    most = "≤ " if cell.get("at_most") else ""
    ours = el("b", f"{most}{digits(cell['ours'], cell['unit'])}{ci95}")
    return el("td", ours, el("br"), el("small", paper), class_="n", title=behind(cell))


def digits(value: float, unit: str) -> str:
    """A figure with as many digits as the paper gives it.

    >>> digits(36.4211, "%"), digits(2.0644, "MB"), digits(185.421, "GMAC"), digits(0.0161, "MB")
    ('36.4', '2.06', '185.42', '0.016')
    """
    return f"{value:.1f}" if unit in SCORES else f"{value:.2f}" if value >= 0.05 else f"{value:.2g}"


def behind(cell: Cell) -> str:
    """What a figure of ours comes from, in words.

    >>> behind({"tasks": 2000, "seeds": [0], "eval_tasks": 1000, "split": "val"})
    'trained on 2,000 tasks, seed 0, evaluated on 1,000 tasks (val)'
    """
    if cell.get("tasks") is None:
        return str(cell.get("note") or "from the cost model")
    split = f" ({cell['split']})" if cell.get("split") else ""
    seeds = ", ".join(map(str, cell["seeds"]))
    return f"trained on {cell['tasks']:,} tasks, seed {seeds}, evaluated on {cell['eval_tasks'] or 0:,} tasks{split}"


def notes(given: Table) -> list[str]:
    """What must be known to read the table: where it comes from, notes on cells, and what is missing for which reason."""
    data = ", ".join(given["data"]) or "no data set"
    found = [
        f"Schedule: {given.get('scale')}. Data: {data}. Evaluated on: {given.get('split') or 'nothing yet'}."
    ]
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


def differences(given: Table) -> list[Cell]:
    """Cells that were compared with another row on the same tasks."""
    return [c for c in given["cells"] if c.get("difference") is not None]


def difference_picture(cells: list[Cell]) -> Markup:
    """How much better than the reference, paired over the same tasks, with CI95; the paper's hollow."""
    rows = [
        Row(
            f"{c['row']}, {c['column']}",
            c["difference"],
            c["difference_ci95"],
            c["difference_paper"],
        )
        for c in cells
    ]
    return _dots(rows, f"points more than {cells[0]['versus']} on the same tasks", zero=True)


def score_picture(given: Table, column: str) -> Markup | None:
    """One column of scores: ours with CI95 filled, the paper's hollow, a line for each row. None where ours is missing."""
    cells = [c for c in given["cells"] if c["column"] == column and c["unit"] in SCORES]
    if not any(c["ours"] is not None for c in cells):
        return None
    rows = [Row(c["row"], c["ours"], c["ci95"] or 0.0, c["paper"]) for c in cells]
    return _dots(rows, f"{column} ({cells[0]['unit'] or 'return'})")


class Row(NamedTuple):
    """A line of a picture."""

    label: str
    ours: float | None
    ci95: float
    paper: float | None


def _dots(rows: list[Row], label: str, zero: bool = False) -> Markup:
    """Ours filled with CI95 and the paper's hollow, a line for each row."""
    ours = [v for r in rows if r.ours is not None for v in (r.ours - r.ci95, r.ours + r.ci95)]
    low, high = around(
        [*ours, *(r.paper for r in rows if r.paper is not None), *([0.0] if zero else [])], 0.06
    )
    left = min(14 + 6.2 * max(len(r.label) for r in rows), 165)
    height, x = 22 * len(rows) + 44, Scale(low, high, left, WIDTH - 10)
    parts = [
        line(x(v), 4, x(v), height - 36, "axis" if zero and v == 0 else "rule")
        for v in nice_ticks(low, high)
    ]
    parts += [text(x(v), height - 21, number(v), "middle", "tick") for v in nice_ticks(low, high)]
    parts.append(text((x.start + x.end) / 2, height - 5, label, "middle", "label"))
    for i, row in enumerate(rows):
        parts += _dot_line(row, 22 * i + 14, x)
    return svg(parts, height, label)


def _dot_line(row: Row, y: float, x: Scale) -> list[Markup]:
    label = row.label if len(row.label) <= 25 else row.label[:24] + "…"
    parts = [text(x.start - 8, y + 4, label, "end", "tick")]
    if row.ours is not None:
        parts.append(line(x(row.ours - row.ci95), y, x(row.ours + row.ci95), y, "ci accent"))
    for value, kind, whose in (
        (row.paper, "mark hollow accent", "paper"),
        (row.ours, "mark accent", "ours"),
    ):
        if value is not None:
            tip = f"{row.label}, {whose}: {value:.2f}" + (
                f" ± {row.ci95:.2f}" if whose == "ours" else ""
            )
            parts.append(
                el("circle", el("title", tip), cx=x(value), cy=float(y), r=4.5, class_=kind)
            )
    return parts
