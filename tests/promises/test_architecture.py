"""docs/architecture.md names files, functions and folders that are there, and leaves none out."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
TREE = TEXT.split("```")[1]


def folders() -> set[str]:
    """The folders of the tree, from their names and how far they are indented."""
    path: list[str] = []
    found = set()
    for indent, name in re.findall(r"^( *)([\w/]+)/(?: |$)", TREE, re.M):
        path = [*path[: len(indent) // 2], name]
        found.add("/".join(path))
    return found


def test_the_tree_has_every_folder_of_python() -> None:
    there = {str(p.parent.relative_to(ROOT)) for p in (ROOT / "pmeta").rglob("*.py")}
    named = {f for f in folders() if f.startswith("pmeta")}
    assert there <= named
    assert all((ROOT / folder).is_dir() for folder in named)


def test_files_and_functions_are_where_it_says() -> None:
    named = re.findall(r"`([\w/]+\.(?:py|c|h))(?::(\w+))?`", TEXT)
    assert len(named) > 30
    for file, name in named:
        path = ROOT / file if file.startswith("tests/") else ROOT / "pmeta" / file
        assert path.exists(), file
        if name:
            pattern = rf"^(def|class) {name}\b"
            assert re.search(pattern, path.read_text(encoding="utf-8"), re.M), f"{file}:{name}"


def test_files_of_the_tree_are_there() -> None:
    for file in re.findall(r"\b\w+\.py\b", TREE):
        assert list((ROOT / "pmeta").rglob(file)), file


def test_calls_of_the_engine_are_in_its_header() -> None:
    header = (ROOT / "pmeta/device/engine/pmeta.h").read_text(encoding="utf-8")
    for call in set(re.findall(r"`(pmeta_\w+)`", TEXT)):
        assert re.search(rf"\b{call}\(", header), call
