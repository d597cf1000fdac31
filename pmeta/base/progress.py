"""How far a long command is: a bar on a terminal, else a line on stderr now and then."""

import math
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
            left, percent = (now - start) / done * (len(items) - done), 100 * done // len(items)
            so_far = f"{what}: {done:,} of {len(items):,} ({percent} %)"
            print(f"{so_far}, about {in_words(left)} left", file=sys.stderr, flush=True)
            told = now
        yield item


def in_words(seconds: float) -> str:
    """A duration for people.

    >>> in_words(3), in_words(42), in_words(600), in_words(9000), in_words(4e5)
    ('10 s', '50 s', '10 min', '2 h 30 min', '4.6 days')
    """
    if seconds < 50:
        return f"{math.ceil(max(seconds, 1) / 10)}0 s"
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes / 1440:.1f} days"
