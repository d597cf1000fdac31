"""Figures as people write them, and short names of runs."""

import math
import re
from collections.abc import Sequence

from pmeta.method.methods import ALL
from pmeta.report.run import RunRecord, Score

SHORT = {name: row.title for name, row in ALL.items()} | {"pmeta": "p-Meta"}


def number(value: float) -> str:
    """A tick or a value in as few digits as it needs.

    >>> number(2000.0), number(0.25), number(-30.0), number(1.0)
    ('2,000', '0.25', '-30', '1')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:.3g}"


def bytes_text(mb: float) -> str:
    """Memory in the unit that reads best; MB = 10^6 bytes, as in the paper.

    >>> bytes_text(0.0009), bytes_text(0.1017), bytes_text(0.99), bytes_text(54.69)
    ('0.9 kB', '102 kB', '0.99 MB', '54.69 MB')
    """
    if mb >= 0.5:
        return f"{mb:.2f} MB"
    return f"{1000 * mb:.0f} kB" if mb >= 0.00995 else f"{1000 * mb:.2g} kB"


def with_ci95(score: Score, unit: str = "") -> str:
    """A score as people write it."""
    digits = decimals(score.value)
    ci95 = "" if score.ci95 is None else f" ± {score.ci95:.{digits}f}"
    return f"{score.value:.{digits}f}{ci95}" + (f" {unit}" if unit else "")


def decimals(value: float) -> int:
    """Digits behind the point: one of a percentage, or so many that two say something.

    >>> decimals(36.41), decimals(-3.92), decimals(0.01234)
    (1, 1, 3)
    """
    return min(max(1 - math.floor(math.log10(abs(value))), 1), 6) if value else 1


def step_size_text(a: float) -> str:
    """Three digits behind the point, and none of the zeros that say nothing.

    >>> step_size_text(0.0252), step_size_text(0.0), step_size_text(1.5), step_size_text(0.0001)
    ('.025', '·', '1.5', '<.001')
    """
    if a <= 0:
        return "·"
    if a >= 1:
        return f"{a:.3g}"
    return "<.001" if a < 0.0005 else f"{a:.3f}".lstrip("0")


def share_text(share: float) -> str:
    """Two digits behind the point.

    >>> share_text(0.0), share_text(0.6875), share_text(0.999)
    ('·', '.69', '1')
    """
    return "·" if share <= 0 else "1" if share >= 0.995 else f"{share:.2f}".lstrip("0")


def counted(n: int, name: str) -> str:
    """
    >>> counted(1, "run"), counted(3, "table")
    ('1 run', '3 tables')
    """
    return f"{n} {name}{'' if n == 1 else 's'}"


def shorten(label: str, length: int = 24) -> str:
    """The beginning of a label that is too long for a picture.

    >>> shorten("p-Meta: a-run-with-a-long-name", 12)
    'p-Meta: a-r…'
    """
    return label if len(label) <= length else label[: length - 1] + "…"


def labels(runs: Sequence[RunRecord]) -> list[str]:
    """A short name for each run: its method, and its own part of the folder's name if need be."""
    found, names = [], [short(run) for run in runs]
    for run, name in zip(runs, names, strict=True):
        folders = [r.path.resolve().name for r, n in zip(runs, names, strict=True) if n == name]
        own = run.path.resolve().name[_shared(folders) :]
        found.append(name if len(folders) == 1 else f"{name}: {own}")
    return found


def short(run: RunRecord) -> str:
    """Its method in as few letters as possible."""
    return SHORT.get(run.method, run.figures.title)


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


def with_unit(words: str, unit: str) -> str:
    """What an axis or a column shows.

    >>> with_unit("accuracy", "%"), with_unit("return", "")
    ('accuracy (%)', 'return')
    """
    return f"{words} ({unit})" if unit else words
