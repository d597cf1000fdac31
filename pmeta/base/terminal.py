"""Names of files and classes on a terminal: whoever wrote them, they are shown and not obeyed."""

import unicodedata

TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""What turns the direction of the text around it."""


def printable(text: object, lines: bool = False) -> str:
    """The text with control characters as escapes; `lines` leaves the ends of lines.

    >>> printable("cat\\x1b[2J\\n")
    'cat\\\\x1b[2J\\\\n'
    """
    return "".join(c if _is_shown(c) or (lines and c == "\n") else _escaped(c) for c in str(text))


def _is_shown(c: str) -> bool:
    return unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp") and c not in TURNS


def _escaped(c: str) -> str:
    return c.encode("unicode_escape").decode()
