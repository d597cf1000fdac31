"""What `pmeta report` is given: runs, results, and folders of these. Read whole, or not at all."""

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pmeta import kinds
from pmeta.base.files import read_json
from pmeta.cost.ops import Op
from pmeta.report import shapes
from pmeta.report.run import RunRecord
from pmeta.report.shapes import check
from pmeta.training.run_folder import Run

NO_EVALUATIONS = {
    f"{of}.json" for of in ["config", "best", "last", "failed", "network", "calibration"]
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
    config, metrics = _config(path, settings), run.metrics()
    if metrics and "val_loss" in metrics[0] and "val_accuracy" not in metrics[0]:
        raise ValueError(
            f"a report shows accuracies and returns, and {path} has losses of a regression: leave "
            "it out, its figures are in metrics.jsonl."
        )
    kept = _evaluations(path, "after" if settings["kind"] == "policies" else "accuracy")
    own = _own_network(path) if settings.get("model") else None
    record = RunRecord(path, config, settings, metrics, None, [*tests, *kept], own=own)
    _check(record)
    failed = _json(path / "failed.json") if (path / "failed.json").exists() else {"error": ""}
    check(str(path / "failed.json"), failed, shapes.Failed)
    return dataclasses.replace(
        record, best=_best(record), failed=failed["error"], calibration=_calibration(record)
    )


def _own_network(path: Path) -> tuple[list[str], tuple[Op, ...], int]:
    """Layers and operations of a network that is none of the paper's."""
    where = path / "network.json"
    if not where.exists():
        raise ValueError(f"a network of one's own is in {where}, which is missing: train it again.")
    found = _json(where)
    check(str(where), found, shapes.OwnNetwork)
    return found["layers"], tuple(_op(op) for op in found["ops"]), found.get("samples", 1)


def _op(found: dict[str, Any]) -> Op:
    known: dict[str, Any] = {}
    for name in (f.name for f in dataclasses.fields(Op) if f.name in found):
        known[name] = tuple(found[name]) if isinstance(found[name], list) else found[name]
    return Op(**known)


def _config(path: Path, settings: dict[str, Any]) -> Any:
    where = f"the config.json in {path}"
    check(where, settings, shapes.Start)
    kind = kinds.kind(settings["kind"]).Config
    for name, value in settings.items():
        if type(value) in (int, float):
            check(f"{name} in {where}", value, shapes.Number)
    return check(where, settings, kind)


def _best(run: RunRecord) -> dict[str, Any] | None:
    """Tasks and input of the best model; None where its validation is not logged yet."""
    path = run.path / "best.json"
    if not path.exists():
        return None
    best = _json(path)
    check(str(path), best, shapes.Best if run.is_rl else shapes.BestOfSamples)
    images = not run.is_rl and not getattr(run.config, "model", "")
    if images and (len(best["input"]) != 3 or 0 in best["input"]):
        raise ValueError(
            f"{path} should have channels, height and width as input, "
            f"and has {best['input']}: not ours."
        )
    if best["tasks"] > run.done:  # as after a kill between the two
        return None
    if best["tasks"] not in [m["tasks"] for m in run.metrics]:
        raise ValueError(
            f"{path} speaks of {best['tasks']} tasks, of which metrics.jsonl has no line: "
            "they are of two runs."
        )
    return best


def _calibration(run: RunRecord) -> dict[str, Any] | None:
    """calibration.json, where it is there and has something in it."""
    found = None if run.is_rl else Run(run.path).calibration()
    if found is None:
        return None
    check(str(run.path / "calibration.json"), found, shapes.Calibration)
    return found if found["shots"] else None


def _evaluations(path: Path, score: str) -> list[dict[str, Any]]:
    """What `pmeta evaluate --json` printed, kept anywhere in the run folder."""
    found = []
    for file in sorted(path.rglob("*.json")):
        content = None if file.name in NO_EVALUATIONS else _json(file)
        if isinstance(content, dict) and {score, "memory_mb", "gmac"} <= content.keys():
            of = shapes.EvaluationOfPolicy if score == "after" else shapes.EvaluationOfPictures
            check(str(file), content, of)
            found.append(content)
    return found


def _check(run: RunRecord) -> None:
    """Raise ValueError unless every validation has its figures and all step sizes."""
    steps, layers = run.config.inner_steps, len(run.layers)
    for i, m in enumerate(run.metrics):
        where = f"line {i + 1} of the metrics.jsonl in {run.path}"
        check(where, m, shapes.ValidationOfPolicy if run.is_rl else shapes.ValidationOfPictures)
        if len(m["alpha"]) != steps or any(len(row) != layers for row in m["alpha"]):
            raise ValueError(
                f"{where} should have step sizes for {steps} steps of {layers} layers, "
                "and has others: another network's."
            )
