"""The runs of the zoo as in the paper's Table 2, with curves and step sizes.

    python zoo/table.py --data DIR
    python zoo/table.py --data DIR --of paper

Each run's best model adapts to the same tasks of the validation classes, one sample at a time;
differences to MAML++ are taken task by task. Writes docs/results/zoo.json, .md and pictures, or
paper.json and so on for the runs at the paper's own length. A run whose best model is the same as
in that file is not measured again.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pmeta.cli.export import ExportConfig, export_run
from pmeta.kinds import pictures
from pmeta.kinds.pictures.best import load
from pmeta.method.methods import METHODS
from pmeta.paper import ADAPTATION, TABLE2
from pmeta.report import figures
from pmeta.report.picture import save
from pmeta.report.read import read_run
from pmeta.report.steps import step_sizes
from pmeta.report.words import SHORT
from pmeta.training import workers
from pmeta.training.restored import Asked, all_results
from pmeta.training.results import TaskResult, ci95, summarise
from pmeta.training.run_folder import Run, write_json
from pmeta.training.workers import Group
from pmeta.zoo.card_text import table

ROOT = Path(__file__).parent.parent
RUNS, RESULTS = ROOT / "zoo" / "runs", ROOT / "docs" / "results"
Row = tuple[int, str]
"""Shots and method."""
TABLES: dict[str, list[Row]] = {
    "zoo": [(1, method) for method in TABLE2["4conv", 1]]
    + [(5, method) for method in ("maml++", "pmeta-lr", "pmeta")],
    "paper": [(shots, method) for shots in (1, 5) for method in ("maml++", "pmeta")],
}
"""The rows of each table."""
QUERIES, MAML_PLUS = 15, "maml++"


def run_of(of: str, shots: int, method: str) -> Path:
    """The folder of a row's run."""
    return RUNS / (f"{shots}shot-{method}" if of == "zoo" else f"{of}-{shots}shot-{method}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="folder of MiniImageNet, with val")
    parser.add_argument("--of", choices=TABLES, default="zoo", help="which runs")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--only", nargs="+", help="names of runs to measure, without: all")
    parser.add_argument("--workers", type=int, default=workers.default_workers())
    args = parser.parse_args()
    path = RESULTS / f"{args.of}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for row in TABLES[args.of]:
        run = run_of(args.of, *row)
        if (not args.only or run.name in args.only) and (run / "best.safetensors").exists():
            known[run.name] = measured(run, args, known.get(run.name, {}))
            write_json(path, known)
    tables = [text(known, args.of, shots) for shots in (1, 5)]
    path.with_suffix(".md").write_text("\n\n".join(tables) + "\n")
    draw(args.of)


def measured(run: Path, args: argparse.Namespace, known: dict[str, Any]) -> dict[str, Any]:
    """What the best model of a run does; what is known of it where it is the same model."""
    config, best = load(str(run))
    last = Run(run).load("last")
    trained = {
        "planned": config.tasks,
        "trained": last.info["tasks"] if last else 0,
        "chosen_at": best.info["tasks"],
    }
    sha256 = hashlib.sha256((run / "best.safetensors").read_bytes()).hexdigest()
    if (known.get("sha256"), known.get("tasks")) == (sha256, args.tasks):
        return {**known, **trained, **arena(run)}
    asked = Asked(str(run), args.data, split="val", tasks=args.tasks, n_query=QUERIES)
    results = workers.run(results_of, (asked,), args.workers)
    summary = summarise(results)
    costs = {
        key: getattr(summary, key)
        for key in ("tasks", "accuracy", "ci95", "memory_mb", "exact_memory_mb", "gmac")
    }
    hits = [round(r.accuracy * config.n_way * QUERIES) for r in results]
    print(f"{run.name}: {summary.accuracy:.2f} ± {summary.ci95:.2f} %", flush=True)
    return {"sha256": sha256, **trained, **costs, **arena(run), "hits": hits}


BUDGETS = {"1shot-pmeta": "600kB", "paper-1shot-pmeta": "600kB"}
"""Arenas of runs whose model ships, or did, in a plan with a budget; as in zoo/again.py."""


def arena(run: Path) -> dict[str, float]:
    """What the C engine takes to adapt, in all and without the weights (as the paper counts)."""
    model = export_run(str(run), ExportConfig(str(run), memory_budget=BUDGETS.get(run.name, "")))
    without = model.arena_bytes - model.state_bytes
    return {"arena_mb": model.arena_bytes / 1e6, "arena_without_weights_mb": without / 1e6}


def results_of(group: Group, asked: Asked) -> list[TaskResult]:
    """Of each task, in order."""
    return all_results(group, pictures.restore(group, asked).unseen(group), "adapting")


def text(known: dict[str, Any], of: str, shots: int) -> str:
    """The table of one number of shots."""
    head = [
        "",
        "model of task",
        "accuracy",
        "difference to MAML++",
        "memory, paper's accounting",
        "exact",
        "C engine",
    ]
    head += ["without weights", "GMACs of a step", "the paper: accuracy", "memory", "GMACs"]
    rows = list(_rows(known, of, shots))
    return f"5-way {shots}-shot:\n\n{table(head, rows)}"


def _rows(known: dict[str, Any], of: str, shots: int) -> Iterator[list[str]]:
    base = known.get(run_of(of, shots, MAML_PLUS).name)
    for method in (method for n, method in TABLES[of] if n == shots):
        printed, (gmac, memory) = (
            TABLE2["4conv", shots][method][0],
            ADAPTATION["4conv", shots][method],
        )
        paper = [f"{printed:.1f} %", f"{memory:.2f} MB", f"{gmac:.2f}"]
        r = known.get(run_of(of, shots, method).name)
        if r is None:
            yield [METHODS[method].title, "not measured yet", *[""] * 7, *paper]
            continue
        finished = "" if r["trained"] >= r["planned"] else f", trained to {r['trained']:,} as yet"
        tasks = f"{r['chosen_at']:,} of {r['planned']:,}{finished}"
        memories = ("memory_mb", "exact_memory_mb", "arena_mb", "arena_without_weights_mb")
        ours = [*(f"{r[key]:.2f} MB" for key in memories), f"{r['gmac']:.2f}"]
        difference = ""
        if base and method != MAML_PLUS and base["tasks"] == r["tasks"]:
            difference = paired(percent(r["hits"]), percent(base["hits"]))
        yield [
            METHODS[method].title,
            tasks,
            f"{r['accuracy']:.2f} ± {r['ci95']:.2f} %",
            difference,
            *ours,
            *paper,
        ]


def percent(hits: list[int]) -> list[float]:
    """The accuracy of each task, from its queries classified right."""
    return [100 * n / (5 * QUERIES) for n in hits]


def paired(ours: list[float], base: list[float]) -> str:
    """The mean difference, task by task, with CI95."""
    points = torch.tensor(ours, dtype=torch.float64) - torch.tensor(base, dtype=torch.float64)
    return f"{points.mean():+.2f} ± {ci95(points):.2f}"


def draw(of: str) -> None:
    """Learning curves, and the step sizes of the runs that learned them."""
    for shots in (1, 5):
        folders = [run_of(of, n, m) for n, m in TABLES[of] if n == shots]
        runs = [read_run(folder, []) for folder in folders if (folder / "metrics.jsonl").exists()]
        if not runs:
            continue
        curves = [figures.curve_of(run, SHORT[run.method]) for run in runs]
        picture = figures.learning_curves(curves, *figures.axes_of(runs[0]))
        save(picture, RESULTS / f"{of}-{shots}shot-curves.png")
        for run in runs:
            if METHODS[run.method].learn_alpha and run.best is not None:
                picture = step_sizes(run.alpha, run.layers)
                save(picture, RESULTS / f"{of}-{shots}shot-{run.method}-step-sizes.png")


if __name__ == "__main__":
    main()
