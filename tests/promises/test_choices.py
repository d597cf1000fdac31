"""docs/paper/choices.md: entries are numbered in order, and every test that one names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/paper/choices.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^\*\*(\d+)\.(\d+) (.*?)(?=^\*\*|^## |\Z)", TEXT, re.M | re.S)


def test_numbers_run_on() -> None:
    expected = []
    for section, _ in re.findall(r"^## (\d+) (.+)$", TEXT, re.M):
        expected += [(section, str(i + 1)) for i in range(sum(s == section for s, *_ in ENTRIES))]
    assert [(section, number) for section, number, _ in ENTRIES] == expected
    assert len(ENTRIES) > 20


@pytest.mark.parametrize(
    ("section", "number", "text"), ENTRIES, ids=[f"{s}.{n}" for s, n, _ in ENTRIES]
)
def test_each_entry_names_a_test_that_exists(section: str, number: str, text: str) -> None:
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)
    assert named, f"entry {section}.{number} names no test"
    for file, name in named:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), (
            f"{file} has no {name}"
        )
