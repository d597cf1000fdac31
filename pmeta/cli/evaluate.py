"""The command `pmeta evaluate RUN`: unseen tasks, adapted to as a device does."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from pmeta import kinds, zoo
from pmeta.base.console import Console
from pmeta.base.files import check_can_write
from pmeta.training import workers
from pmeta.training.restored import Asked, evaluate
from pmeta.training.results import CostSummary
from pmeta.training.run_folder import plain, write_json


def main(argv: list[str]) -> None:
    """Run the command."""
    asked = tyro.cli(Asked, args=argv, prog="pmeta evaluate", description=Asked.__doc__)
    restore = kinds.reading("evaluate", asked, asked.run).restore
    if asked.run not in zoo.names():  # now, and not after the work
        check_can_write(Path(asked.run) / "evaluation.json")
    count = asked.workers or workers.default_workers()
    layers, summary = workers.run(evaluate, (restore, asked), count)
    if workers.is_first():
        found = values(asked, layers, summary)
        if asked.json:
            print(json.dumps(found))
        else:
            show(layers, summary)
        keep(asked, found)  # last: what was found is shown in any case


def values(asked: Asked, layers: list[str], summary: CostSummary) -> dict[str, Any]:
    """What was asked and found, as `--json` prints it."""
    return plain({**words_of(asked), "layers": layers, **dataclasses.asdict(summary)})


def words_of(asked: Asked) -> dict[str, Any]:
    """What was asked of the model and its tasks."""
    told = dataclasses.asdict(asked)
    for name in ("tasks", "render", "device", "workers", "json", "model"):
        del told[name]
    return told


def keep(asked: Asked, found: dict[str, Any]) -> None:
    """Write what was found to the run folder, from which `pmeta report` takes it."""
    if asked.run in zoo.names():  # it is no folder
        return
    told = {key: value for key, value in words_of(asked).items() if key != "run"}
    words = [str(value) for value in (*told.values(), found["tasks"]) if value not in (None, "")]
    name = re.sub(r"[^\w.-]+", "_", "-".join(["evaluation", *words]))[-120:]
    write_json(Path(asked.run) / f"{name}.json", found)


def show(layers: list[str], summary: CostSummary) -> None:
    """Print the summary: what was found, memory and MACs, which share of each layer each step
    updates."""
    console = Console()
    for line in summary.words():
        console.print(line, soft_wrap=True)
    costs = Table("a task", "mean", "worst")
    s = summary
    for name, mean, worst in (
        ("peak memory, paper's accounting", s.memory_mb, s.worst_memory_mb),
        ("peak memory, exact", s.exact_memory_mb, s.worst_exact_memory_mb),
    ):
        costs.add_row(name, f"{mean:.3f} MB", f"{worst:.3f} MB")
    costs.add_row("GMACs of a step", f"{s.gmac:.3f}", f"{s.worst_gmac:.3f}")
    console.print(costs)
    steps = [f"step {k + 1}" for k in range(len(s.update_ratios))]
    ratios = Table("share of weights updated", *steps)
    for l, name in enumerate(layers):
        ratios.add_row(name, *[f"{row[l]:.2f}" if row[l] else "·" for row in s.update_ratios])
    console.print(ratios)
