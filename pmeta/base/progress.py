"""How far a long command is: a bar on a terminal, else a line on stderr now and then."""

import sys
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TypeVar

from rich.progress import track

from pmeta.base.console import Console

EVERY = 10.0
"""Seconds from one line to the next."""
Item = TypeVar("Item")


def progress(items: Sequence[Item], what: str, shown: bool = True) -> Iterator[Item]:
    """The items, one after the other."""
    if not shown:
        yield from items
    elif sys.stderr.isatty():
        yield from track(items, what, console=Console(stderr=True), transient=True)
    else:
        yield from _in_lines(items, what)


def _in_lines(items: Sequence[Item], what: str) -> Iterator[Item]:
    start = told = monotonic()
    for done, item in enumerate(items):
        now = monotonic()
        if done and now - told >= EVERY:
            left = (now - start) / done * (len(items) - done)
            print(
                f"{what}: {done:,} of {len(items):,} ({100 * done // len(items)} %), about "
                f"{_words(left)} left",
                file=sys.stderr,
                flush=True,
            )
            told = now
        yield item


def _words(seconds: float) -> str:
    """
    >>> _words(42.3), _words(200), _words(8000)
    ('42 s', '3 min', '2 h 13 min')
    """
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
