"""docs/security.md is one table on one screen, and each of its lines has its tests."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_line_names_tests_that_are_there() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 20
    assert len(text.splitlines()) <= 45
    for row in rows:
        tests = re.findall(r"`(tests/[\w/.]+)`", row.rsplit("|", 2)[1])
        assert tests, row
        assert all((ROOT / name).exists() for name in tests), row
