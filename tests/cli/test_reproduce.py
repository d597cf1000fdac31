"""`pmeta reproduce`: everything at the smallest scale, then what the command says and refuses."""

import dataclasses
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pmeta.cli import main
from pmeta.kinds import pictures
from pmeta.reproduce import evaluations
from pmeta.reproduce.cells import NAMES, TABLES, TITLES, TRAININGS
from pmeta.reproduce.config import choose
from pmeta.training import workers
from pmeta.training.restored import Asked, Restored, Unseen
from pmeta.training.workers import Group


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit code, output, error of `pmeta reproduce`."""
    try:
        code = main(["reproduce", *argv])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    return code, *capsys.readouterr()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything, at the smallest scale.

    The curve of each run is drawn in other tests, and takes longer than the run.
    """
    folder = tmp_path_factory.mktemp("reproduce")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pmeta.report.figures.run_pictures", lambda *args: None)
        assert main(["reproduce", "all", "--scale", "smoke", "--out", str(folder)]) == 0
    return folder


def test_everything_is_there(out: Path) -> None:
    assert {p.name for p in (out / "runs").iterdir()} == set(TRAININGS)
    for name in NAMES:
        kinds = ("json", "svg", "png") if name == "figure5" else ("json", "md", "csv")
        assert all((out / f"{name}.{kind}").stat().st_size > 0 for kind in kinds)
    for name in TABLES:
        table = json.loads((out / f"{name}.json").read_text())
        missing = {cell["missing"] for cell in table["cells"] if cell["missing"]}
        assert missing <= {"no TieredImageNet: --data tiered=DIR", "no CUB: --data cub=DIR"}, name
        assert all(cell["ours"] is not None or cell["missing"] for cell in table["cells"])


def test_figure5_has_what_the_paper_shows(out: Path) -> None:
    figure = json.loads((out / "figure5.json").read_text())
    assert (figure["format"], figure["name"], figure["split"]) == (
        "pmeta-results",
        "figure5",
        "test",
    )
    assert [s["shots"] for s in figure["series"]] == [1, 5]
    for s in figure["series"]:
        assert s["layers"] == [
            "conv1",
            "norm1",
            "conv2",
            "norm2",
            "conv3",
            "norm3",
            "conv4",
            "norm4",
            "fc",
        ]
        assert (len(s["ratios"]), len(s["ratios"][0]), len(s["cosine"]), s["eval_tasks"]) == (
            2,
            9,
            9,
            3,
        )
        assert s["pairs"] == 3 * 5 * s["shots"] // 2
        for ratios, updated in zip(s["ratios"], s["updated"], strict=True):
            assert all((r > 0) == alive for r, alive in zip(ratios, updated, strict=True))
        assert s["cosine"][-1] == pytest.approx(1)  # no attention on the output layer
    svg = (out / "figure5.svg").read_text()
    assert svg.rstrip().endswith("</svg>")


def test_the_same_again_does_nothing_and_says_so(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {p: p.stat().st_mtime_ns for p in (out / "runs").rglob("*")} | dict.fromkeys(
        out.glob("figure5.*"), 0
    )
    code, text, err = told(capsys, "all", "--scale", "smoke", "--out", str(out))
    assert (code, err) == (0, "")
    assert "to go" not in text
    assert text.splitlines()[-1] == f"left in {out}/: {', '.join(NAMES)}, runs/"
    assert {p: p.stat().st_mtime_ns for p in (out / "runs").rglob("*")} == {
        p: t for p, t in before.items() if t
    }


def test_killed_and_started_again_it_comes_to_the_same(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "reproduce",
        "table6",
        "--scale",
        "smoke",
        "--only",
        "Mini 1-shot*",
        "--out",
        str(tmp_path),
    ]
    run = tmp_path / "runs" / "4conv-1shot-pmeta"
    with subprocess.Popen(
        [sys.executable, "-m", "pmeta", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        while not (run / "last.json").exists():  # in the middle of the training, or soon after it
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.002)
        process.kill()
    assert not list(run.glob("evaluations/mini-test-batch5.json"))
    assert main(words) == 0
    capsys.readouterr()
    ours, never_stopped = (
        json.loads((folder / "table6.json").read_text())["cells"] for folder in (tmp_path, out)
    )
    mini = [
        i
        for i, cell in enumerate(ours)
        if cell["row"] == "Mini" and cell["column"].startswith("1-shot")
    ]
    assert [ours[i] for i in mini] == [never_stopped[i] for i in mini]
    assert [ours[i]["missing"] for i in mini] == [None] * 3


def test_evaluations_that_were_stopped_go_on(
    out: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = str(out / "runs" / "4conv-1shot-pmeta")
    monkeypatch.setattr(evaluations, "PART", 2)
    calls: list[int] = []

    def counted(group: Group, asked: Asked) -> Restored:
        restored = pictures.restore(group, asked)

        def unseen(group: Group) -> Unseen:
            found = restored.unseen(group)

            def results(numbers: Sequence[int]) -> list[Any]:
                for i in numbers:
                    if len(calls) == 5:
                        raise KeyboardInterrupt
                    calls.append(i)
                return found.results(numbers)

            return dataclasses.replace(found, results=results)

        return dataclasses.replace(restored, unseen=unseen)

    config, path = Asked(run, tasks=6, n_query=1), tmp_path / "mini-test-batch1.json"
    with pytest.raises(KeyboardInterrupt):
        workers.run(evaluations.evaluate_images, (counted, config, path), 1)
    assert (calls, path.exists()) == ([0, 1, 2, 3, 4], False)
    calls[:] = [0]  # so that it is not stopped again
    workers.run(evaluations.evaluate_images, (counted, config, path), 1)
    assert calls == [0, 4, 5]
    stopped = json.loads(path.read_text())
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    calls[:] = []
    args = pictures.restore, config, tmp_path / "whole.json"
    workers.run(evaluations.evaluate_images, args, 1)
    whole = json.loads((tmp_path / "whole.json").read_text())
    assert {k: v for k, v in stopped.items() if k != "seconds"} == {
        k: v for k, v in whole.items() if k != "seconds"
    }


def test_a_part_of_another_evaluation_is_not_taken_up(tmp_path: Path) -> None:
    part = tmp_path / "a.part"
    part.write_text(
        json.dumps(
            {"asked": {"seed": 1}, "seconds": 3.0, "results": [[0.5, 1.0, 2.0, 3.0, [[1.0]]]]}
        )
    )
    assert evaluations._read_part(part, {"seed": 2}) == ([], 0.0)
    (result,), seconds = evaluations._read_part(part, {"seed": 1})
    assert (result.accuracy, result.macs, result.ratios.tolist(), seconds) == (
        0.5,
        3.0,
        [[1.0]],
        3.0,
    )


def test_other_data_are_tested_on_too(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Glyphs stand in for CUB here; nothing is trained again."""
    words = ("--scale", "smoke", "--data", "mini=glyphs", "cub=glyphs", "--only", "max/group")
    code, text, _ = told(capsys, "table5", *words, "--out", str(out))
    assert code == 0
    assert re.findall(r"\] (.*)", text) == [
        "evaluate 4conv-1shot-maml on glyphs (test), 1 at a time: 4 tasks"
    ]
    table = json.loads((out / "table5.json").read_text())
    found = [c for c in table["cells"] if c["row"] == "max/group" and c["column"] == "1-shot CUB"]
    assert [c["eval_tasks"] for c in found] == [4]


def test_the_plan_tells_and_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, _ = told(
        capsys,
        "table6",
        "--scale",
        "smoke",
        "--only",
        "Mini 1-shot*",
        "--plan",
        "--out",
        str(tmp_path),
    )
    assert code == 0
    assert text.splitlines()[-5:] == [
        "4 steps to go in 1 runs.",
        "  train 4conv-1shot-pmeta: 2 tasks",
        *(
            f"  evaluate 4conv-1shot-pmeta on glyphs (test), {batch} at a time: 4 tasks"
            for batch in (1, 2, 5)
        ),
    ]
    assert not (tmp_path / "runs").exists()
    assert (tmp_path / "table6.md").exists()


def test_costs_need_no_data_and_what_is_missing_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, err = told(capsys, "table2", "--only", "4Conv*", "--out", str(tmp_path))
    assert (code, err) == (0, "")
    lines, table = text.splitlines(), (tmp_path / "table2.md").read_text()
    assert [line.split(":")[0] for line in lines[:3]] == [
        "no MiniImageNet",
        "no TieredImageNet",
        "no CUB",
    ]
    assert "\n".join(lines[3:]) == f"{table}\nleft in {tmp_path}/: table2"
    assert "| 4Conv MAML | – (46.2) | – (51.4) | – (39.7) | 0.39 (0.39) | 2.06 (2.06) |" in table
    code, text, _ = told(capsys, "table1", "--out", str(tmp_path))
    assert (code, text) == (
        0,
        f"{(tmp_path / 'table1.md').read_text()}\nleft in {tmp_path}/: table1\n",
    )


@pytest.mark.parametrize(
    ("patterns", "rows", "columns"),
    [
        (["0/0"], {"0/0"}, 6),
        (["x/x 1-shot*"], {"x/x"}, 3),
        (["ALPHA^CH", "0.3/*"], {"alpha^Ch", "0.3/0", "0.3/0.3"}, 6),
        (["4conv-5shot-fw0"], {"0/x"}, 3),
    ],
)
def test_only(patterns: list[str], rows: set[str], columns: int) -> None:
    _, cells, _ = choose("table4", patterns)
    assert {cell.row for cell in cells} == rows
    assert len({cell.column for cell in cells}) == columns


def test_only_and_figure5() -> None:
    assert choose("figure5", ["*5shot*"]) == (["figure5"], [], ["4conv-5shot-pmeta"])
    asked, cells, figure = choose("all", [])
    assert (asked, len(figure)) == (list(NAMES), 2)
    assert len(cells) == sum(map(len, TABLES.values()))


def test_help_says_what_each_one_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, err = told(capsys, "--help")
    assert (code, err) == (0, "")
    flat = " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())
    assert all(f"{name} {title}" in flat for name, title in TITLES.items())
    assert "pmeta reproduce table4 --data mini=DIR --scale short --out results" in flat


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "table4",
            "--out names the folder for runs and tables, got none: say where, as in --out results.",
        ),
        (
            "table4 --out x --only 0/1",
            "--only picks rows, columns or runs of table4, got 0/1; its rows are x/x, 0/x, x/0, "
            "0/0,",
        ),
        (
            "table4 --out x --only a --only b",
            "--only is given once, with all of its values behind it: --only A B.",
        ),
        ("table4 --out x --tasks 0", "--tasks must be at least 1, got 0."),
        (
            "table4 --out x --seeds -1",
            "--workers and --seeds must not be negative, got 0 and (-1,).",
        ),
        (
            "table4 --out x --set n_query",
            "--set takes NAME=VALUE, or rl.NAME=VALUE, got 'n_query'; the names are",
        ),
        ("table4 --out x --set n_query=0", "--n-query must be at least 1, got 0."),
        (
            "table4 --out x --data birds",
            "--data takes mini=DIR, tiered=DIR and cub=DIR, or folders with such names, got "
            "'birds'.",
        ),
        ("table4 --out x --data mini=birds", "no data at"),
    ],
)
def test_mistakes(
    words: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, text, err = told(capsys, *words.split())
    assert (code, text) == (2, "")
    assert message in " ".join(re.sub(r"[│╭╮╰╯─]", " ", err).split())
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pmeta.kinds.train", stop)
    code, _, err = told(capsys, "table6", "--scale", "smoke", "--out", str(tmp_path))
    assert (code, err) == (130, "stopped; the same command goes on from here.\n")


def test_a_full_disk(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    code, _, err = told(capsys, "table1", "--out", str(tmp_path))
    path = tmp_path / "table1.json"
    message = (
        f"cannot write {path} (No space left on device): make room there, or choose another place."
    )
    assert (code, err) == (2, f"pmeta: error: {message}\n")
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]
