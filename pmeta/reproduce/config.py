"""What `pmeta reproduce` is asked for: its options, and the cells that they leave. No torch."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from pmeta.reproduce.cells import FIGURE5, NAMES, TABLES, Cell
from pmeta.training.settings import check_counts


@dataclass(frozen=True)
class ReproduceConfig:
    """The options of `pmeta reproduce`."""

    what: Annotated[
        Literal[
            "table1", "table2", "table3", "table4", "table5", "table6", "table7", "figure5", "all"
        ],
        tyro.conf.Positional,
    ]
    """Which table or figure."""
    data: tuple[str, ...] = ()
    """mini=DIR, tiered=DIR, cub=DIR, or folders whose names say which; smoke takes glyphs unless
    told otherwise."""
    scale: Literal["smoke", "short", "paper"] = "short"
    """smoke checks the plumbing in two minutes, short is one night on a laptop, paper is the
    paper's own schedule."""
    only: tuple[str, ...] = ()
    """Cells to run, by row, column, both, or run folder; * and ? are wildcards: 'x/x', '1-shot*',
    '0/0 1-shot Mini'."""
    out: str = ""
    """Where the runs are kept and the tables written."""
    tasks: int | None = None
    """Tasks to train each network on, instead of the schedule's (images)."""
    eval_tasks: int | None = None
    """Tasks to evaluate each network on, instead of the schedule's (images)."""
    set: tuple[str, ...] = ()
    """Other settings of pmeta train, as in n_query=5 or rl.epochs=100."""
    seeds: tuple[int, ...] = (0,)
    """Each cell is the mean over these."""
    workers: int = 0
    """Processes of a run; 0: one for each core (smoke: one)."""
    plan: bool = False
    """Say what would be done, write the tables as they are now, and stop."""

    def __post_init__(self) -> None:
        if not self.out:
            raise ValueError(
                "--out names the folder for runs and tables, got none: say where, as in --out "
                "results."
            )
        given = (name for name in ("tasks", "eval_tasks") if getattr(self, name) is not None)
        check_counts(self, *given)
        if self.workers < 0 or not self.seeds or min(self.seeds) < 0:
            raise ValueError(
                f"--workers and --seeds must not be negative, got {self.workers} and {self.seeds}."
            )


def matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether any of the names matches any of the patterns; without patterns everything does."""
    pairs = [(name.lower(), pattern.lower()) for name in names for pattern in patterns]
    return not patterns or any(fnmatch.fnmatchcase(*pair) for pair in pairs)


def names_of(cell: Cell) -> list[str]:
    """What --only may call a cell."""
    own = [cell.training] if cell.training else []
    return [cell.row, cell.column, f"{cell.row} {cell.column}", *own]


def choose(what: str, patterns: Sequence[str]) -> tuple[list[str], list[Cell], list[str]]:
    """The tables and figures asked for, their cells, and the trainings for figure 5, of those that
    --only leaves."""
    asked = list(NAMES) if what == "all" else [what]
    everything = [cell for name in asked if name in TABLES for cell in TABLES[name]]
    cells = [cell for cell in everything if matches(names_of(cell), patterns)]
    figure = [
        name for name in FIGURE5 if "figure5" in asked and matches([name, "figure5"], patterns)
    ]
    if not cells and not figure:
        rows = ", ".join(dict.fromkeys(cell.row for cell in everything)) or ", ".join(FIGURE5)
        raise ValueError(
            f"--only picks rows, columns or runs of {what}, got {' '.join(patterns)}; its rows are "
            f"{rows}."
        )
    return asked, cells, figure
