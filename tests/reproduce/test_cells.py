"""The cells of `pmeta reproduce`: the paper's figures, and the training behind each."""

import dataclasses

import pytest

from pmeta.cli.train import NAMED
from pmeta.reproduce.cells import FIGURE5, NAMES, TABLES, TITLES, TRAININGS
from pmeta.reproduce.scales import CELLS_DIFFER_IN, POLICIES_DIFFER_IN, SCALES, configuration

PRINTED = {  # row by row, from the paper
    "table1": """
        0.13 0.53 0.90 48.33 0.72 1.96
        32.0 0.53 3.61 370.44 62.08 185.42
        0.05 0.016 0.08 3.72 0.05 0.15""",
    "table2": """
        46.2 51.4 39.7 0.39 2.06 61.4 66.5 55.6 1.96 2.06
        46.4 51.5 39.2 0.14 0.92 60.6 64.5 54.2 0.72 0.92
        44.7 51.3 42.3 0.39 2.05 60.5 65.3 58.3 1.96 2.05
        48.2 53.2 43.2 0.39 2.06 63.7 68.5 59.1 1.96 2.06
        47.1 52.3 41.8 0.16 1.00 62.9 68.3 59.3 1.34 1.09
        48.8 53.9 42.6 0.15 0.99 65.0 68.5 60.2 1.11 1.04
        51.7 57.4 41.3 37.08 54.69 64.7 69.6 53.8 185.42 54.69
        50.3 56.7 40.6 12.42 3.62 62.3 68.7 54.0 62.08 3.62
        42.7 47.7 44.2 37.08 54.69 53.6 59.8 53.7 185.42 54.69
        53.1 58.6 45.1 37.08 54.69 68.6 73.4 63.9 185.42 54.69
        51.8 58.3 40.6 25.84 17.66 68.8 72.6 65.9 124.15 18.95
        53.6 59.4 45.4 24.02 16.01 69.7 73.3 66.6 116.79 17.17""",
    "table3": """
        -82.2 0.15 0.24 -13.3 0.12 0.21
        -78.8 0.06 0.09 -13.8 0.04 0.08
        -76.4 0.15 0.23 -12.4 0.12 0.21
        -69.6 0.15 0.24 -17.6 0.12 0.21
        -65.5 0.11 0.12 -11.2 0.09 0.09
        -64.0 0.11 0.11 -11.8 0.09 0.09""",
    "table4": """
        47.1 52.3 41.8 62.9 68.3 59.3
        48.1 53.2 41.7 64.1 68.4 59.0
        47.8 53.1 40.9 63.9 68.5 60.0
        49.0 54.2 43.1 64.5 69.2 60.2
        48.5 53.4 42.2 64.7 68.2 59.3
        48.8 53.9 42.6 65.0 68.5 60.2
        48.7 53.7 42.3 64.5 68.3 59.5
        48.2 53.4 42.7 64.8 68.1 59.1
        47.8 52.8 41.0 63.6 68.1 58.1""",
    "table5": """
        25.3 27.2 26.1
        45.8 50.3 40.2
        27.6 28.9 26.5
        46.2 51.4 39.9""",
    "table6": """
        48.8 48.7 48.3 65.0 65.1 64.7
        53.9 53.6 54.3 68.5 68.9 68.1
        42.6 42.1 42.4 60.2 59.5 60.6""",
    "table7": """
        47.1 52.3 41.8 62.9 68.3 59.3
        48.2 53.6 41.2 63.6 69.0 59.0
        37.4 37.9 35.4 47.9 49.3 42.5
        48.0 53.0 42.6 64.0 67.8 59.9
        22.8 21.1 20.6 20.7 21.0 20.4""",
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


@pytest.mark.parametrize("name", TABLES)
def test_rows_and_figures_are_those_of_the_paper_in_its_order(name: str) -> None:
    cells = TABLES[name]
    rows, columns = (
        list(dict.fromkeys(getattr(cell, key) for cell in cells)) for key in ("row", "column")
    )
    found = {(cell.row, cell.column): cell.paper for cell in cells}
    assert len(found) == len(cells)
    printed = [
        [float(word) for word in line.split()] for line in PRINTED[name].strip().splitlines()
    ]
    assert [[found[row, column] for column in columns] for row in rows] == printed
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
        assert config == dataclasses.replace(NAMED[training.base], **training.changes, **data)
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
