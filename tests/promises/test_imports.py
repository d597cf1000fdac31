"""Imports between rooms go as docs/architecture.md says; costs and devices need no torch."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
TABLE = {
    room: allowed if allowed == "everything" else set(re.findall(r"`(\w+)`", allowed))
    for room, allowed in re.findall(r"^\| `(\w+)` \|[^|]*\| *([^|]*?) *\|$", TEXT, re.M)
}
WITHOUT_TORCH = ("base", "cost", "device", "firmware", "paper", "web", "zoo")
WITHOUT_TORCH_TOO = ("pmeta.cli.cost", "pmeta.cli.zoo", "pmeta.cli.device.")
HEAVY = ("torch", "matplotlib", "jinja2", "markupsafe")


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in (ROOT / "pmeta").rglob("*.py")}


def room(module: str) -> str:
    """pmeta.data.importers.cub -> data"""
    return [*module.split("."), ""][1]


def imports(path: Path) -> set[str]:
    """The modules that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports name the package"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else str(node.module) for name in whole}
    return found


IMPORTS = {module: imports(path) for module, path in MODULES.items()}


def test_the_table_lists_every_room() -> None:
    rooms = {room(module) for module in MODULES} - {"", "__main__"}
    assert sorted(TABLE) == sorted(rooms)


def test_the_table_has_no_circle() -> None:
    seen: set[str] = set()
    for name, allowed in TABLE.items():  # each row allows only rows above it
        assert allowed == "everything" or allowed <= seen, name
        seen.add(name)


@pytest.mark.parametrize("name", TABLE)
def test_rooms_import_what_the_table_allows(name: str) -> None:
    for module in (m for m in MODULES if room(m) == name):
        used = {room(i) for i in IMPORTS[module] if i.startswith("pmeta.")} - {name}
        assert TABLE[name] == "everything" or used <= set(TABLE[name]), f"{module} imports {used}"


def test_no_kind_imports_another() -> None:
    for module in (m for m in MODULES if m.startswith("pmeta.kinds.")):
        own = module.split(".")[2]
        others = {i.split(".")[2] for i in IMPORTS[module] if i.startswith("pmeta.kinds.")} - {own}
        assert not others, f"{module} imports {others}"


def test_the_trainer_knows_no_kind() -> None:
    for module in (m for m in MODULES if room(m) in ("training", "report")):
        assert not [i for i in IMPORTS[module] if room(i) == "kinds"], module


def reached(module: str) -> set[str]:
    """All modules that importing one brings along, and itself."""
    seen: set[str] = set()
    todo = {module}
    while todo:
        one = todo.pop()
        seen.add(one)
        parents = {one.rpartition(".")[0]} & set(IMPORTS)
        todo |= (IMPORTS.get(one, set()) | parents) - seen
    return seen


def test_tasks_and_the_method_do_not_know_each_other() -> None:
    for module in MODULES:
        if room(module) == "data":
            assert not {room(m) for m in reached(module)} & {"method", "network", "training"}, (
                module
            )
        if room(module) in ("method", "network"):
            assert not {room(m) for m in reached(module)} & {"data", "training"}, module


def test_costs_are_counted_and_devices_adapt_without_torch() -> None:
    starts = [
        m for m in MODULES if room(m) in WITHOUT_TORCH or f"{m}.".startswith(WITHOUT_TORCH_TOO)
    ]
    assert "pmeta.cli.device.adapt" in starts
    for module in starts:
        assert not {m for m in reached(module) if m.partition(".")[0] in HEAVY}, module
