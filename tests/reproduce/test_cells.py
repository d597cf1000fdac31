"""The cells of `pmeta reproduce`: the paper's figures, and the training behind each."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from pmeta import paper
from pmeta.kinds import named
from pmeta.reproduce.cells import FIGURE5, NAMES, TABLES, TITLES, TRAININGS
from pmeta.reproduce.scales import CELLS_DIFFER_IN, POLICIES_DIFFER_IN, SCALES, configuration

SOURCES: dict[str, tuple[Any, ...]] = {
    "table1": (paper.EXAMPLES,),
    "table2": (paper.TABLE2, [paper.ADAPTATION[key] for key in paper.TABLE2]),
    "table3": (paper.TABLE3, [paper.ADAPTATION[mlp, 20] for mlp in paper.MLPS.values()]),
    **{name: (getattr(paper, name.upper()),) for name in ("table4", "table5", "table6", "table7")},
}
CORNERS = {  # as printed: the first and the last figure of the first and of the last row
    "table1": (0.13, 1.96, 0.05, 0.15),
    "table2": (46.2, 2.06, 53.6, 17.17),
    "table3": (-82.2, 0.21, -64.0, 0.09),
    "table4": (47.1, 59.3, 47.8, 58.1),
    "table5": (25.3, 26.1, 46.2, 39.9),
    "table6": (48.8, 64.7, 42.6, 60.6),
    "table7": (47.1, 59.3, 22.8, 20.4),
}
ROWS = {
    "table4": ["x/x", "0/x", "x/0", "0/0", "0/0.3", "0.3/0", "0.3/0.3", "0.5/0.5", "alpha^Ch"],
    "table5": ["average/batch", "average/group", "max/batch", "max/group"],
    "table6": ["Mini", "Tiered", "CUB"],
    "table7": ["x/x", "g(w)/x", "x_(l-1)/x", "x/g(w)", "x/g(y)"],
}
ACCURACIES = [
    cell for cells in TABLES.values() for cell in cells if cell.training and not cell.cost
]


def figures(printed: Any) -> Iterator[float]:
    """All numbers of a table, however they are nested."""
    if isinstance(printed, float | int):
        yield printed
    else:
        for part in printed.values() if isinstance(printed, dict) else printed:
            yield from figures(part)


@pytest.mark.parametrize("name", TABLES)
def test_rows_and_figures_are_those_of_the_paper_in_its_order(name: str) -> None:
    cells = TABLES[name]
    rows, columns = (
        list(dict.fromkeys(getattr(cell, key) for cell in cells)) for key in ("row", "column")
    )
    found = {(cell.row, cell.column): cell.paper for cell in cells}
    assert len(found) == len(cells)
    assert len(found) == len(rows) * len(columns)
    corners = [
        found[row, column] for row in (rows[0], rows[-1]) for column in (columns[0], columns[-1])
    ]
    assert tuple(corners) == CORNERS[name]
    assert sorted(found.values()) == sorted(figures(SOURCES[name]))
    assert rows == ROWS.get(name, rows)


def test_everything_has_a_title_and_every_training_a_use() -> None:
    assert set(TITLES) == set(NAMES)
    assert {cell.training for cell in ACCURACIES} | set(FIGURE5) == set(TRAININGS)


def test_trainings_that_are_the_same_are_one() -> None:
    seen: dict[str, str] = {}
    for training in TRAININGS.values():
        config = configuration(training, "paper", "DIR", None)
        settings = repr(dataclasses.replace(config, out=""))
        assert settings not in seen, f"{training.name} is {seen[settings]}"
        seen[settings] = training.name

    def behind(table: str, row: str, column: str) -> str:
        return next(c.training for c in TABLES[table] if (c.row, c.column) == (row, column))

    plain = behind("table2", "4Conv p-Meta (LR)", "1-shot Mini")
    assert (
        plain
        == behind("table4", "x/x", "1-shot CUB")
        == behind("table7", "x/x", "1-shot Mini")
        == "4conv-1shot-pmeta-lr"
    )
    full = behind("table2", "4Conv p-Meta (LR+attention)", "5-shot Mini")
    assert (
        full
        == behind("table4", "0.3/0", "5-shot Mini")
        == behind("table6", "Mini", "5-shot batch 25")
        == FIGURE5[1]
    )
    assert behind("table5", "max/group", "1-shot Mini") == behind(
        "table2", "4Conv MAML", "1-shot Mini"
    )


def test_cells_with_one_training_and_evaluation_have_one_figure_but_for_a_misprint() -> None:
    """MAML on CUB is 39.7 in Table 2 and 39.9 in Table 5."""
    printed: dict[tuple[str, str, int | None], set[float]] = {}
    for cell in ACCURACIES:
        printed.setdefault((cell.training, cell.data, cell.batch), set()).add(cell.paper)
    twice = {key: figures for key, figures in printed.items() if len(figures) > 1}
    assert twice == {("4conv-1shot-maml", "cub", 1): {39.7, 39.9}}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("4conv-1shot-pmeta-lr", {"method": "pmeta-lr", "n_shot": 1, "scores": ""}),
        (
            "4conv-5shot-pmeta",
            {"method": "pmeta", "n_shot": 5, "clip_ratio_fw": 0.3, "clip_ratio_bw": 0.0},
        ),
        ("4conv-1shot-fw0", {"clip_ratio_fw": 0.0, "clip_ratio_bw": None, "sparse_fw": "w"}),
        ("4conv-1shot-bw0", {"clip_ratio_fw": None, "clip_ratio_bw": 0.0}),
        ("4conv-1shot-fw0.5-bw0.5", {"clip_ratio_fw": 0.5, "clip_ratio_bw": 0.5}),
        ("4conv-1shot-alpha-ch", {"method": "pmeta", "scores": "static"}),
        (
            "4conv-5shot-sparse-x",
            {"clip_ratio_fw": 0.3, "clip_ratio_bw": None, "sparse_fw": "x", "sparse_bw": "w"},
        ),
        (
            "4conv-1shot-sparse-gy",
            {"clip_ratio_fw": None, "clip_ratio_bw": 0.3, "sparse_fw": "w", "sparse_bw": "y"},
        ),
        ("4conv-1shot-maml-average-batch", {"method": "maml", "pool": "average", "norm": "batch"}),
        (
            "resnet12-5shot-boil",
            {"method": "boil", "backbone": "resnet12", "n_shot": 5, "meta_batch": 2},
        ),
        ("navigation-pmeta", {"method": "pmeta", "memory_budget": "170kB", "freeze_at": 0.1}),
        (
            "cheetah-velocity-pmeta-lr",
            {"method": "pmeta-lr", "memory_budget": "190kB", "freeze_at": 0.2},
        ),
        ("navigation-maml++", {"method": "maml++", "memory_budget": ""}),
        (
            "cheetah-velocity-anil",
            {"env": "cheetah-velocity", "method": "anil", "epochs": 500, "meta_batch": 40},
        ),
    ],
)
def test_settings_of_a_training(name: str, settings: dict[str, object]) -> None:
    config = configuration(TRAININGS[name], "paper", "DIR", None)
    assert {key: getattr(config, key) for key in settings} == settings


def test_the_paper_scale_is_the_papers_own() -> None:
    for training in TRAININGS.values():
        config = configuration(training, "paper", "DIR", None)
        data = {} if training.is_rl else {"data": "DIR"}
        base: Any = named()[training.base]
        assert config == dataclasses.replace(base, **training.changes, **data)
    assert (
        SCALES["paper"].eval_tasks,
        SCALES["paper"].rl_eval_tasks,
        SCALES["paper"].figure_tasks,
    ) == (5000, 400, 100)


def test_tasks_and_other_settings_are_changed_on_top_of_the_scale() -> None:
    pmeta = TRAININGS["4conv-1shot-pmeta"]
    config = configuration(
        pmeta, "short", "DIR", 2000, ["n_query=7", "lr=0.01", "first_order=true", "image_size=None"]
    )
    expected = {
        "tasks": 2000,
        "epoch_tasks": 250,
        "n_query": 7,
        "lr": 0.01,
        "first_order": True,
        "image_size": None,
        "data": "DIR",
    }
    assert {key: getattr(config, key) for key in expected} == expected
    assert configuration(pmeta, "short", "DIR", None).tasks == SCALES["short"].tasks[1]
    walk = configuration(
        TRAININGS["navigation-pmeta"], "short", "", 2000, ["rl.epochs=3", "n_query=7"]
    )
    assert (walk.epochs, walk.tasks) == (3, 60)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "word",
    [
        "n_query",
        "queries=5",
        "method=maml",
        "rl.n_query=5",
        "tasks=5",
        "clip_ratio_fw=0.1",
        "rl.memory_budget=1MB",
    ],
)
def test_settings_that_are_none_or_make_the_cells(word: str) -> None:
    name = "navigation-pmeta" if word.startswith("rl.") else "4conv-1shot-pmeta"
    with pytest.raises(
        ValueError, match=r"^--set takes NAME=VALUE, or rl\.NAME=VALUE, got '.*'; the names are "
    ):
        configuration(TRAININGS[name], "paper", "DIR", None, [word])


@pytest.mark.parametrize(
    ("word", "kind"), [("n_query=five", "int"), ("lr=fast", "float"), ("first_order=1", "bool")]
)
def test_values_of_another_type(word: str, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"^--set {word}: '.*' is no {kind}\.$"):
        configuration(TRAININGS["4conv-1shot-pmeta"], "paper", "DIR", None, [word])


def test_what_cells_differ_in_is_all_that_their_changes_name() -> None:
    for is_rl, own in ((False, CELLS_DIFFER_IN), (True, POLICIES_DIFFER_IN)):
        assert {key for t in TRAININGS.values() if t.is_rl == is_rl for key in t.changes} <= set(
            own
        )
