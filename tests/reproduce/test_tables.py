"""Tables of `pmeta reproduce`: read from run folders, written as Markdown, CSV and JSON."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from pmeta.reproduce import results, tables
from pmeta.reproduce.cells import TABLES
from pmeta.reproduce.data import Dataset
from pmeta.reproduce.evaluations import path_of
from pmeta.reproduce.queue import Options

MINI = {"mini": Dataset("/data/mini", "MiniImageNet", "val")}
KEYS = {
    "row",
    "column",
    "unit",
    "ours",
    "ci95",
    "paper",
    "tasks",
    "seeds",
    "eval_tasks",
    "run",
    "missing",
}


def fake_run(out: Path, name: str, seed: int = 0, done: int = 2000, **settings: Any) -> Path:
    """A run folder as far as the tables look at it."""
    run = out / "runs" / (name if seed == 0 else f"{name}-seed{seed}")
    run.mkdir(parents=True)
    config = {
        "seed": seed,
        "tasks": 2000,
        "image_size": 84,
        "channels": 32,
        "n_way": 5,
        "inner_steps": 5,
        "versions": {},
        **settings,
    }
    (run / "config.json").write_text(json.dumps(config))
    (run / "last.json").write_text(json.dumps({"tasks": done}))
    return run


def fake_evaluation(
    run: Path, accuracies: list[float], data: str = "mini", batch: int = 1, **more: Any
) -> None:
    mean = 100 * sum(accuracies) / len(accuracies)
    found = {
        "tasks": len(accuracies),
        "seconds": 2.0,
        "accuracy": mean,
        "ci95": 0.5,
        "accuracies": accuracies,
        **more,
    }
    path = path_of(run, data, "val", batch)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found))


def cell(table: dict[str, Any], row: str, column: str) -> dict[str, Any]:
    (found,) = (c for c in table["cells"] if (c["row"], c["column"]) == (row, column))
    return found


def test_format(tmp_path: Path) -> None:
    for name, cells in TABLES.items():
        table = results.table(name, Options(tmp_path, "short", MINI))
        assert (table["format"], table["version"], table["name"], table["scale"]) == (
            "pmeta-results",
            1,
            name,
            "short",
        )
        assert len(table["cells"]) == len(cells)
        for found in table["cells"]:
            assert set(found) >= KEYS
            assert (found["ours"] is None) == bool(found["missing"])
            assert found["row"] in table["rows"]
            assert found["column"] in table["columns"]


def test_costs_are_complete_without_any_training_and_agree_with_the_paper(tmp_path: Path) -> None:
    """Within a last digit; but for p-Meta, whose layers training chooses, and one figure that the
    paper has wrong."""
    options = Options(tmp_path, "paper", {})
    found = [
        c for name in ("table1", "table2", "table3") for c in results.table(name, options)["cells"]
    ]
    costs = [c for c in found if c["unit"] in ("MB", "GMAC")]
    assert len(costs) == 18 + 48 + 24
    assert all(c["ours"] is not None for c in costs)
    for c in costs:
        if c.get("at_most"):
            assert "p-Meta" in c["row"]
            assert c["ours"] >= c["paper"] - 0.005
        elif c["paper"] == 370.44:
            assert (round(c["ours"], 2), "first block alone" in c["note"]) == (567.53, True)
        else:
            assert c["ours"] == pytest.approx(c["paper"], rel=0.001, abs=0.0051), c


def test_accuracy_with_ci95_tasks_seeds_and_run(tmp_path: Path) -> None:
    fake_evaluation(fake_run(tmp_path, "4conv-1shot-pmeta"), [0.2, 0.6])
    found = cell(results.table("table4", Options(tmp_path, "short", MINI)), "0.3/0", "1-shot Mini")
    expected = {
        "ours": 40.0,
        "ci95": 0.5,
        "paper": 48.8,
        "tasks": 2000,
        "seeds": [0],
        "eval_tasks": 2,
        "missing": None,
    }
    assert {key: found[key] for key in expected} == expected
    assert (found["run"], found["split"]) == ("runs/4conv-1shot-pmeta", "val")


def test_mean_over_seeds(tmp_path: Path) -> None:
    for seed, accuracy in ((0, 0.4), (2, 0.5)):
        evaluated = [accuracy - 0.1, accuracy + 0.1]
        fake_evaluation(
            fake_run(tmp_path, "4conv-1shot-pmeta", seed), evaluated, memory_mb=seed, gmac=1.0
        )
    fake_evaluation(
        fake_run(tmp_path, "4conv-1shot-pmeta-lr", channels=8), [0.3] * 2
    )  # another run, whose name begins alike
    found = cell(results.table("table4", Options(tmp_path, "short", MINI)), "0.3/0", "1-shot Mini")
    assert (found["ours"], found["seeds"]) == (pytest.approx(45.0), [0, 2])
    assert found["ci95"] == pytest.approx(
        1.96 * 10
    )  # of tasks with 35 and 55 %: another seed is no other task
    table2 = results.table("table2", Options(tmp_path, "short", MINI))
    assert cell(table2, "4Conv p-Meta (LR+attention)", "1-shot Memory")["ours"] == 1.0  # of 0 and 2


def test_mean_over_seeds_of_policies(tmp_path: Path) -> None:
    for seed in (0, 1):
        run = fake_run(
            tmp_path,
            "navigation-maml",
            seed,
            env="navigation",
            horizon=200,
            episodes=20,
            epochs=2,
            meta_batch=1,
        )
        path = path_of(run, "navigation", "test", 1)
        path.parent.mkdir()
        path.write_text(
            json.dumps(
                {"tasks": 2, "seconds": 1.0, "after": -20.0 - seed, "after_ci95": 2.0 + seed}
            )
        )
    found = cell(
        results.table("table3", Options(tmp_path, "short", {})), "MAML", "Navigation Return"
    )
    assert (found["ours"], found["ci95"]) == (-20.5, 2.5)


def test_differences_over_seeds_are_of_the_same_seed_and_task(tmp_path: Path) -> None:
    for seed in (1, 2):
        fake_evaluation(fake_run(tmp_path, "4conv-1shot-pmeta", seed), [0.1 + 0.2 * seed, 0.8])
    for seed in (0, 1, 2):
        fake_evaluation(fake_run(tmp_path, "4conv-1shot-pmeta-lr", seed), [0.1 * seed, 0.7])
    found = cell(results.table("table4", Options(tmp_path, "short", MINI)), "0.3/0", "1-shot Mini")
    assert found["difference"] == pytest.approx(17.5)
    assert found["difference_ci95"] == pytest.approx(
        1.96 * 7.5
    )  # of tasks with 25 (20 and 30) and 10 points


def test_differences_are_taken_task_by_task(tmp_path: Path) -> None:
    fake_evaluation(fake_run(tmp_path, "4conv-1shot-pmeta-lr"), [0.1, 0.9, 0.5, 0.5])
    fake_evaluation(fake_run(tmp_path, "4conv-1shot-pmeta"), [0.2, 1.0, 0.6, 0.8])
    table = results.table("table4", Options(tmp_path, "short", MINI))
    found = cell(table, "0.3/0", "1-shot Mini")
    assert (found["versus"], found["difference_paper"]) == ("x/x", 1.7)
    assert found["difference"] == pytest.approx(15)
    assert found["difference_ci95"] == pytest.approx(
        1.96 * 10 / 4**0.5
    )  # differences 10, 10, 10, 30
    assert "difference" not in cell(table, "x/x", "1-shot Mini")
    assert "| 0.3/0 | +15.0 ± 9.8 (+1.7) |" in tables.as_markdown(table)


def test_missing_cells_say_why(tmp_path: Path) -> None:
    fake_run(tmp_path, "4conv-1shot-pmeta", done=1200)
    fake_run(tmp_path, "4conv-1shot-pmeta-lr")
    failed = fake_run(tmp_path, "4conv-1shot-fw0-bw0", done=40)
    (failed / "failed.json").write_text(json.dumps({"error": "loss was not finite."}))
    table = results.table("table4", Options(tmp_path, "short", MINI))
    for row, why in (
        ("0.3/0", "in training: 1200 of 2000 tasks"),
        ("x/x", "trained, not evaluated yet"),
        ("0/0", "loss was not finite."),
        ("0/x", "not run yet"),
    ):
        assert cell(table, row, "1-shot Mini")["missing"] == why
    assert cell(table, "x/0", "1-shot CUB")["missing"] == "no CUB: --data cub=DIR"
    resnet = cell(
        results.table("table2", Options(tmp_path, "short", MINI)), "ResNet12 MAML", "1-shot Mini"
    )
    assert (
        resnet["missing"]
        == "ResNet12 is not trained at --scale short: a task takes a core about a minute"
    )
    none = cell(results.table("table5", Options(tmp_path, "paper", {})), "max/batch", "1-shot Mini")
    assert none["missing"] == "no MiniImageNet to train on: --data mini=DIR"


def test_cost_of_p_meta_is_that_of_its_training_if_the_network_has_the_papers_size(
    tmp_path: Path,
) -> None:
    run = fake_run(tmp_path, "4conv-1shot-pmeta")
    fake_evaluation(run, [0.5, 0.5], memory_mb=0.97, gmac=0.17)
    small = fake_run(tmp_path, "4conv-1shot-pmeta-lr", channels=4)
    fake_evaluation(small, [0.5, 0.5], memory_mb=0.01, gmac=0.01)
    table = results.table("table2", Options(tmp_path, "short", MINI))
    memory = cell(table, "4Conv p-Meta (LR+attention)", "1-shot Memory")
    assert (memory["ours"], memory["run"], memory["tasks"], memory["ci95"]) == (
        0.97,
        "runs/4conv-1shot-pmeta",
        2000,
        None,
    )
    assert cell(table, "4Conv p-Meta (LR+attention)", "1-shot GMAC")["ours"] == 0.17
    most = cell(table, "4Conv p-Meta (LR)", "1-shot Memory")
    assert (round(most["ours"], 2), most["at_most"], most["run"]) == (2.06, True, None)


def test_markdown(tmp_path: Path) -> None:
    fake_evaluation(fake_run(tmp_path, "4conv-1shot-pmeta"), [0.2, 0.6])
    text = tables.as_markdown(results.table("table6", Options(tmp_path, "short", MINI)))
    lines = text.splitlines()
    assert lines[0] == "# Table 6: Samples at a time in adaptation"
    assert lines[2].endswith("Scale: short. Data: MiniImageNet. Classes evaluated on: val.")
    assert lines[4].startswith("|  | 1-shot batch 1 (%) | 1-shot batch 2 (%) |")
    assert (
        lines[6]
        == "| Mini | 40.0 ± 0.5 (48.8) | – (48.7) | – (48.3) | – (65.0) | – (65.1) | – (64.7) |"
    )
    assert "| Mini | 2000 | 0 | 2 | runs/4conv-1shot-pmeta |" in lines
    assert any(
        line.startswith(
            "- Missing (no CUB: --data cub=DIR): CUB 1-shot batch 1, CUB 1-shot batch 2"
        )
        for line in lines
    )


def test_figures_have_the_digits_of_the_paper(tmp_path: Path) -> None:
    text = tables.as_markdown(results.table("table1", Options(tmp_path, "paper", {})))
    assert (
        "| 0.05 (0.05) | 0.016 (0.016) | 0.08 (0.08) | 3.72 (3.72) | 0.05 (0.05) | 0.15 (0.15) |"
        in text
    )
    assert "≤ 2.06 (1.00)" in tables.as_markdown(
        results.table("table2", Options(tmp_path, "paper", {}))
    )


def test_csv_has_a_line_for_each_cell(tmp_path: Path) -> None:
    fake_evaluation(fake_run(tmp_path, "4conv-1shot-pmeta"), [0.2, 0.6])
    table = results.table("table6", Options(tmp_path, "short", MINI))
    rows = list(csv.DictReader(io.StringIO(tables.as_csv(table))))
    assert len(rows) == len(table["cells"]) == 18
    assert rows[0]["ours"] == "40.0"
    assert (rows[0]["seeds"], rows[0]["run"], rows[0]["missing"]) == (
        "0",
        "runs/4conv-1shot-pmeta",
        "",
    )
    assert (rows[1]["ours"], rows[1]["missing"]) == ("", "no TieredImageNet: --data tiered=DIR")


def test_written_whole_in_three_forms(tmp_path: Path) -> None:
    table = results.table("table5", Options(tmp_path, "paper", MINI))
    with tables.only_one_writes(tmp_path / "new"):
        tables.write(table, tmp_path / "new")
    assert {p.name for p in (tmp_path / "new").iterdir()} == {
        ".lock",
        "table5.md",
        "table5.csv",
        "table5.json",
    }
    assert json.loads((tmp_path / "new/table5.json").read_text()) == table


def test_a_lock_that_is_a_link_is_refused_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(ValueError, match="it is a link"), tables.only_one_writes(tmp_path):
        pass
    assert (tmp_path / "precious").read_bytes() == b"mine"


def test_a_broken_evaluation_is_named(tmp_path: Path) -> None:
    run = fake_run(tmp_path, "4conv-1shot-pmeta")
    fake_evaluation(run, [0.2, 0.6])
    path = path_of(run, "mini", "val", 1)
    path.write_text("{")
    with pytest.raises(
        ValueError, match=rf"^{path} cannot be read \(.*\): remove it to evaluate again\.$"
    ):
        results.table("table6", Options(tmp_path, "short", MINI))


def test_the_smoke_scale_is_no_result(tmp_path: Path) -> None:
    """Nothing of the paper's stands beside it, in any file."""
    tables.write(results.table("table1", Options(tmp_path, "smoke", {})), tmp_path)
    text = (tmp_path / "table1.md").read_text()
    assert "\n**Plumbing check, not results.** Scale: smoke." in text
    assert "paper" not in text
    assert "(5" not in text.partition("| --- |")[2]
    assert "paper" not in (tmp_path / "table1.csv").read_text()
    cells = json.loads((tmp_path / "table1.json").read_text())["cells"]
    assert {cell["paper"] for cell in cells} == {None}
    tables.write(results.table("table1", Options(tmp_path, "short", {})), tmp_path)
    assert "the paper's in brackets" in (tmp_path / "table1.md").read_text()
