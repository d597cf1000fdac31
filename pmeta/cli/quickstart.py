"""The command `pmeta quickstart`: all methods on the embedded characters, in three minutes."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from pmeta.base.console import Console
from pmeta.kinds import pictures, train
from pmeta.kinds.pictures.config import NAMED, ImageConfig
from pmeta.method.methods import METHODS
from pmeta.report import figures
from pmeta.training import workers
from pmeta.training.restored import Asked, evaluate
from pmeta.training.results import Summary
from pmeta.training.run_folder import write_json
from pmeta.training.workers import Group

FIGURES = ("accuracy", "ci95", "memory_mb", "exact_memory_mb", "gmac", "tasks")


@dataclass(frozen=True)
class QuickstartConfig:
    """Meta-train p-Meta and its baselines on glyphs, 5-way 1-shot, and adapt each to unseen
    characters."""

    out: str = "runs/quickstart"
    """Where to keep the runs, the picture and results.json."""
    tasks: int = 600
    """Tasks that each method is trained on."""
    test_tasks: int = 200
    """Unseen tasks that each method is evaluated on."""
    methods: tuple[str, ...] = tuple(METHODS)
    """Which methods."""
    workers: int = 0
    """Processes; 0: one for each core."""


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(
        QuickstartConfig, args=argv, prog="pmeta quickstart", description=QuickstartConfig.__doc__
    )
    for name in config.methods:
        if name not in METHODS:
            raise ValueError(f"--methods are of {', '.join(METHODS)}, got {name!r}.")
    if config.test_tasks < 1 or config.workers < 0:
        raise ValueError(
            "--test-tasks must be at least 1 and --workers must not be negative, got "
            f"{config.test_tasks} and {config.workers}."
        )
    results = workers.run(quickstart, (config,), config.workers or workers.default_workers())
    if workers.is_first():
        finish(config, results)


def run_config(config: QuickstartConfig, method: str) -> ImageConfig:
    """The training of one method; p-Meta is given a third of MAML's memory, less a little."""
    budget = "105kB" if METHODS[method].sparse_alpha else ""
    return dataclasses.replace(
        NAMED["glyphs-4conv-5way-1shot"],
        method=method,  # type: ignore[arg-type]
        out=str(Path(config.out) / method),
        tasks=config.tasks,
        epoch_tasks=config.tasks,
        val_tasks=50,
        memory_budget=budget,
        budget_accounting="exact",
        freeze_at=0.2,
    )


def quickstart(group: Group, config: QuickstartConfig) -> list[dict[str, Any]]:
    """Train and evaluate every method, one after the other, all processes at work on each."""
    results = []
    for method in config.methods:
        run = run_config(config, method)
        train(group, run)
        asked = Asked(run.out, tasks=config.test_tasks)
        _, summary = evaluate(group, pictures.restore, asked)
        assert isinstance(summary, Summary)
        results.append({"method": method, **{key: getattr(summary, key) for key in FIGURES}})
    return results


def finish(config: QuickstartConfig, results: list[dict[str, Any]]) -> None:
    """Print the table, draw the pictures, write results.json, and name what was left."""
    out = Path(config.out)
    write_json(out / "results.json", results)
    for r in results:
        figures.run_pictures(out / r["method"])
    figures.accuracy_against_memory(results, out / "accuracy_against_memory.png")
    table = Table("method", title="5-way 1-shot on unseen characters, adapted one sample at a time")
    for column in ("accuracy", "peak memory", "exact", "MMACs of a step"):
        table.add_column(column, justify="right")
    for r in results:
        table.add_row(
            METHODS[r["method"]].title,
            f"{r['accuracy']:.1f} ± {r['ci95']:.1f} %",
            f"{1000 * r['memory_mb']:.0f} kB",
            f"{1000 * r['exact_memory_mb']:.0f} kB",
            f"{1000 * r['gmac']:.0f}",
        )
    console = Console()
    console.print(table)
    console.print(
        f"left in {out}/: a run folder for each method, accuracy_against_memory.png, results.json",
        highlight=False,
    )
