"""Imports go one way: a room of the list below imports from rooms above it, never the other way round."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = [  # files in one line may import each other
    ("errors",),
    ("files",),
    ("zoo",),
    ("engine",),
    ("replay",),
    ("kernels",),
    ("cost_ops", "cost_memory", "cost_backbones", "cost"),
    ("methods",),
    ("palette",),
    ("cost_paper", "cost_table", "cost_command"),
    ("backbones",),
    ("conv_compiled", "autograd", "norm_pool_eager", "norm_pool_compiled", "norm_pool", "pool_first", "layers"),
    ("trace", "intake"),
    ("attention",),
    ("meta",),
    ("step_sizes",),
    ("inner",),
    ("head",),
    ("outer",),
    ("pool", "image_files", "image_cache", "glyphs", "image_decode", "images"),
    ("importers",),
    ("data_command",),
    ("config", "runs", "workers", "figures"),
    ("evaluate",),
    ("log",),
    ("train",),
    ("rl",),
    ("train_command", "evaluate_command"),
    ("flatfile", "device"),
    ("zoo_card", "adapt_command", "zoo_command"),
    ("arena", "graph", "stages", "instructions", "builder", "forward", "backward", "program", "layout"),
    ("export",),
    ("learner",),
    ("export_command",),
    ("zoo_add",),
    ("quickstart",),
    ("reproduce",),
    ("report_check", "report_html", "report_plot", "report_style"),
    ("report_run", "report_read"),
    ("report_figures", "report_memory", "report_steps", "report_tables"),
    ("report_setup", "report_single", "report_page", "report"),
    ("cli",),
]
TASKS = ("pool", "image_files", "image_cache", "glyphs", "image_decode", "images", "importers")
METHOD = ("attention", "step_sizes", "layers", "intake", "trace", "meta", "inner", "methods", "outer", "autograd", "backbones")
WITHOUT_TORCH = ("errors", "cli", "methods", "cost_ops", "cost_memory", "cost_backbones", "cost", "cost_paper", "cost_command")
ON_THE_DEVICE = ("adapt_command", "device", "engine", "files", "flatfile", "zoo", "zoo_command")


def room(module: str) -> str:
    """pmeta.data.importers.cub -> importers"""
    return [*module.split("."), ""][1]


def imports() -> dict[str, set[str]]:
    """What each room imports, also inside functions: of this package its rooms, of others the top name."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "pmeta").rglob("*.py"):
        owner = room(".".join(path.relative_to(ROOT).with_suffix("").parts))
        used = found.setdefault(owner, set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: imports name the package"
                names = [f"{node.module}.{alias.name}" if node.module == "pmeta" else str(node.module) for alias in node.names]
            else:
                continue
            used |= {f"pmeta.{room(name)}" if name.startswith("pmeta") else name.partition(".")[0] for name in names}
        used.discard(f"pmeta.{owner}")
    return {owner: used for owner, used in found.items() if owner not in ("__init__", "__main__")}


IMPORTS = imports()


def test_every_file_has_its_room() -> None:
    listed = [name for line in ROOMS for name in line]
    assert sorted(listed) == sorted(IMPORTS), "give a new file its place in the list"


@pytest.mark.parametrize("line", range(len(ROOMS)))
def test_imports_go_one_way(line: int) -> None:
    allowed = {f"pmeta.{name}" for above in ROOMS[: line + 1] for name in above}
    for name in ROOMS[line]:
        ours = {used for used in IMPORTS[name] if used.startswith("pmeta.")}
        assert ours <= allowed, f"{name} imports {', '.join(sorted(ours - allowed))}"


def reached(name: str) -> set[str]:
    """All rooms that importing one brings along."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        new = {used.removeprefix("pmeta.") for used in IMPORTS[todo.pop()] if used.startswith("pmeta.")} - seen
        seen |= new
        todo += new
    return seen


def test_tasks_and_the_method_do_not_know_each_other() -> None:
    for name in TASKS:
        assert not reached(name) & {*METHOD, "train", "evaluate", "log", "learner", "config"}, name
    for name in METHOD:
        assert not reached(name) & {*TASKS, "train", "evaluate", "log", "learner", "config", "runs", "workers"}, name


def test_costs_are_counted_and_devices_adapt_without_torch() -> None:
    for name in (*WITHOUT_TORCH, *ON_THE_DEVICE):
        assert "torch" not in IMPORTS[name], name
        assert not any("torch" in IMPORTS[other] for other in reached(name)), name
