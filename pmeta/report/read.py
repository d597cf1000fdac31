"""What `pmeta report` is given: runs, results, and folders of these. Read whole, or not at all."""

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pmeta.base.files import read_json
from pmeta.report import shapes
from pmeta.report.run import RunRecord
from pmeta.report.shapes import Count, Number, check
from pmeta.training.run_folder import Run

NO_EVALUATIONS = {
    f"{of}.json" for of in ["config", "network", "figures", "best", "last", "failed", "calibration"]
}
OF_A_RUN = ("config.json", "metrics.jsonl", "last.safetensors", "best.safetensors")


@dataclass
class Given:
    """All that was found."""

    runs: list[RunRecord] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    figures: list[tuple[str, Path]] = field(default_factory=list)
    """Pictures of `pmeta reproduce`, with their titles."""
    left_out: list[Path] = field(default_factory=list)
    """JSON files that are not for a report."""


def read(paths: list[str]) -> Given:
    """Read all; raises ValueError at the first thing that is not as it should be."""
    given = Given()
    for path in dict.fromkeys(Path(p) for p in paths):
        if not path.exists():
            raise ValueError(f"a report is made of run folders and results, {path} is not there.")
        before = _found(given)
        if path.is_file() and path.suffix != ".json":
            raise ValueError(
                "a report is made of run folders, and of results that end in .json, "
                f"{path} is neither."
            )
        if path.is_file():
            _take_results(path, _json(path), given)
        else:
            _walk(path, given)
        if _found(given) == before:
            raise ValueError(
                "a report is made of run folders (pmeta train) and results (pmeta reproduce), "
                f"{path} holds neither: give another folder."
            )
    given.runs = list({run.path.resolve(): run for run in given.runs}.values())
    given.tables = list({table["path"].resolve(): table for table in given.tables}.values())
    given.figures = list(dict.fromkeys(given.figures))
    return given


def _found(given: Given) -> int:
    return len(given.runs) + len(given.tables) + len(given.figures)


def _walk(root: Path, given: Given) -> None:
    """Everything below a folder; the inside of a run folder belongs to the run."""
    tests: dict[Path, dict[str, Any]] = {}
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        if any(name in files for name in OF_A_RUN):
            folders.clear()
            given.runs.append(read_run(here, [tests[here]] if here in tests else []))
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(n for n in files if n.endswith(".json")):
            _take_json(here / name, given, tests)


def _take_json(path: Path, given: Given, tests: dict[Path, dict[str, Any]]) -> None:
    content = _json(path)
    if isinstance(content, dict) and content.get("format") == "pmeta-results":
        _take_results(path, content, given)
    elif path.name == "results.json" and isinstance(content, list):  # of `pmeta quickstart`
        check(str(path), content, list[shapes.EvaluationOfQuickstart])
        tests |= {path.parent / e["method"]: e for e in content}
    else:
        given.left_out.append(path)


def _json(path: Path) -> Any:
    try:
        return read_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"{path} is not whole JSON ({error}): remove it, or have it written anew."
        ) from None


def _take_results(path: Path, content: Any, given: Given) -> None:
    """A table or a figure of `pmeta reproduce`."""
    if not isinstance(content, dict) or content.get("format") != "pmeta-results":
        raise ValueError(
            'results of pmeta reproduce say "format": "pmeta-results", '
            f"{path} does not: give another file."
        )
    if content.get("version") != 1:
        raise ValueError(
            f"this pmeta reads results of version 1, {path} has {content.get('version')!r}: "
            "use a newer pmeta."
        )
    if "series" not in content:
        given.tables.append(read_table(path, content))
        return
    measured = [s for s in content["series"] if not (isinstance(s, dict) and s.get("missing"))]
    if content["series"] and not measured:
        given.left_out.append(path)
        return
    if not path.with_suffix(".svg").exists():
        raise ValueError(
            f"the picture of {path} is not beside it: "
            f"have pmeta reproduce draw {path.stem}.svg anew."
        )
    name = path.stem.replace("figure", "Figure ")
    given.figures.append((f"{name}. {content.get('title', '')}", path.with_suffix(".svg")))


def read_table(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    """A table of `pmeta reproduce`, and its path."""
    check(str(path), table, shapes.Table)
    rows, columns = table["rows"], table["columns"]
    strange = [c for c in table["cells"] if c["row"] not in rows or c["column"] not in columns]
    if strange:
        place = f"{strange[0]['row']!r}, {strange[0]['column']!r}"
        raise ValueError(
            f"{path} has a cell for {place}, which is not in its table: "
            "have pmeta reproduce write it anew."
        )
    return {**table, "path": path}


def read_run(path: Path, tests: list[dict[str, Any]]) -> RunRecord:
    """A run folder; `tests` are evaluations that were found elsewhere."""
    run = Run(path)
    settings = run.config()
    check(f"the config.json in {path}", settings, shapes.Start)
    network, figures = (_described(path, name) for name in ("network", "figures"))
    known = (
        check(str(path / "network.json"), network, shapes.Network),
        check(str(path / "figures.json"), figures, shapes.Figures),
    )
    record = RunRecord(path, settings, *known, run.metrics(), None, [])
    _check_metrics(record)
    failed = _json(path / "failed.json") if (path / "failed.json").exists() else {"error": ""}
    check(str(path / "failed.json"), failed, shapes.Failed)
    return dataclasses.replace(
        record,
        best=_best(record),
        evaluations=[*tests, *_evaluations(record)],
        failed=failed["error"],
        calibration=_calibration(run),
    )


def _described(path: Path, name: str) -> Any:
    """What a run says of itself."""
    where = path / f"{name}.json"
    if not (path / "figures.json").exists() or not where.exists():
        raise ValueError(
            f"a run says what it is in network.json and figures.json, {path} does not, as runs of "
            "older releases: pmeta train with the same --out writes both (after Learner.fit: the "
            "same call)."
        )
    return _json(where)


def _check_metrics(run: RunRecord) -> None:
    """Raise ValueError unless every validation has its figures and all step sizes."""
    for i, m in enumerate(run.metrics):
        where = f"line {i + 1} of the metrics.jsonl in {run.path}"
        check(where, m, dict[str, Any])
        _check_figures(where, m, **{run.figures.count: Count, run.figures.score: Number})
        for key in (run.figures.ci95, "exact_memory_mb"):
            check(f"{key} of {where}", m.get(key), Number | None)
        if not run.adapts:
            continue
        _check_figures(where, m, memory_mb=Number, gmac=Number, alpha=list[list[Number]])
        steps, layers = len(run.metrics[0]["alpha"]), len(run.layers)
        if not steps or len(m["alpha"]) != steps or any(len(row) != layers for row in m["alpha"]):
            raise ValueError(
                f"{where} should have step sizes for {steps or 'all'} steps of {layers} layers, "
                "and has others: another network's."
            )


def _check_figures(where: str, found: dict[str, Any], **shapes: Any) -> None:
    """Raise ValueError unless these keys are there and as they should be."""
    for key, shape in shapes.items():
        if key not in found:
            raise ValueError(f"{where} lacks {key}: have it written anew, or leave it out.")
        check(f"{key} of {where}", found[key], shape)


def _best(run: RunRecord) -> int | None:
    """How far the training was at the best model; None where its validation is not logged yet."""
    path = run.path / "best.json"
    if not path.exists():
        return None
    found = check(str(path), _json(path), dict[str, Any])
    _check_figures(str(path), found, **{run.figures.count: Count})
    best = run.at(found)
    if best > run.done:  # as after a kill between the two
        return None
    if best not in [run.at(m) for m in run.metrics]:
        raise ValueError(
            f"{path} speaks of {run.so_far(best)}, of which metrics.jsonl has no line: "
            "they are of two runs."
        )
    return best


def _calibration(run: Run) -> dict[str, Any] | None:
    """calibration.json, where it is there and has something in it."""
    found = run.calibration()
    if found is None:
        return None
    check(str(run.path / "calibration.json"), found, shapes.Calibration)
    return found if found["shots"] else None


def _evaluations(run: RunRecord) -> list[dict[str, Any]]:
    """What `pmeta evaluate --json` printed, kept anywhere in the run folder."""
    found, score = [], run.figures.evaluated
    for file in sorted(run.path.rglob("*.json")):
        content = None if file.name in NO_EVALUATIONS else _json(file)
        if isinstance(content, dict) and {score, "memory_mb", "gmac"} <= content.keys():
            check(str(file), content, shapes.Evaluation)
            _check_figures(str(file), content, **{score: Number})
            check(f"{score}_ci95 of {file}", content.get(f"{score}_ci95"), Number | None)
            found.append(content)
    return found
