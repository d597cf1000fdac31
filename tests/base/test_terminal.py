"""Control characters are shown as escapes, by print and by rich."""

import io
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

import pmeta
from pmeta.base.console import Console
from pmeta.base.terminal import printable


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("cat", "cat"),
        ("Größe 9\u202f41 猫 🐈", "Größe 9\u202f41 猫 🐈"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("a\r\nb\tc\x7f", r"a\r\nb\tc\x7f"),
        ("gpj.\u202ecat", r"gpj.\u202ecat"),
        ("a\u2028b\udcff", r"a\u2028b\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(name: str, shown: str) -> None:
    assert printable(name) == shown


def test_lines_may_stay() -> None:
    assert printable("a\nb\x1b", lines=True) == "a\nb\\x1b"


def test_rich_escapes_texts_and_keeps_its_own_colours() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", width=60)
    table = Table("name")
    table.add_row("\x1b[2Jcat")
    console.print(table)
    console.print("[red]\x1b[2Jdog[/red]\x9b", Text("\x1b[2Jbird"))
    assert "\x1b[2J" not in file.getvalue()
    assert "\x9b" not in file.getvalue()
    assert "\\x1b[2Jcat" in file.getvalue()
    assert "\x1b[31m" in file.getvalue()


def test_there_is_one_console() -> None:
    """That of rich passes on what is in a name."""
    root = Path(pmeta.__file__).parent
    users = [p.name for p in root.rglob("*.py") if "rich.console" in p.read_text()]
    assert users == []
