"""The command `pmeta evaluate RUN`: unseen tasks, adapted to as a device does."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from pmeta import zoo
from pmeta.base.console import Console
from pmeta.cli.people import evaluate_people
from pmeta.rl.evaluate import ReturnSummary
from pmeta.training import workers
from pmeta.training.evaluate import CostSummary, Summary
from pmeta.training.restore import EvaluateConfig, evaluate
from pmeta.training.run_folder import open_run, plain, write_json

ASKED = (
    "data", "split", "n_way", "n_shot", "n_query", "batch", "least_step", "seed",
)  # fmt: skip
"""What is asked of a classifier, as the file of an evaluation is named."""


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(
        EvaluateConfig, args=argv, prog="pmeta evaluate", description=EvaluateConfig.__doc__
    )
    settings = open_run(config.run).config()
    if config.least_step is not None and ("env" in settings or "pooled_epochs" in settings):
        raise ValueError(f"--least-step is for models of pictures, and {config.run} is none.")
    if "env" in settings:
        return _policy(config)
    if "pooled_epochs" in settings:
        return evaluate_people(config)
    if config.run in zoo.names() and not config.data:
        raise ValueError(
            f"{config.run} comes without the pictures that it was trained on: give --data."
        )
    if config.render:
        raise ValueError(
            "--render shows episodes of a policy, and this run has none: leave it out."
        )
    count = config.workers or workers.default_workers()
    layers, summary = workers.run(evaluate, (config,), count)
    if workers.is_first():
        keep(config, values(config, layers, summary))
        show(config, layers, summary)


def _policy(config: EvaluateConfig) -> None:
    """The same for a run on reinforcement learning."""
    from pmeta.rl import restore  # late: a classifier needs no environment
    from pmeta.rl.render import check_path

    if config.render:
        check_path(config.render)
    args = (config.run, config.tasks or 400, config.batch, config.seed, config.render)
    count = config.workers or workers.default_workers()
    layers, summary = workers.run(restore.evaluate, args, count)
    if workers.is_first():
        found = {"run": config.run, "seed": config.seed, "batch": config.batch}
        found |= {"layers": layers, **dataclasses.asdict(summary)}
        keep(config, plain(found))
        show_policy(config, layers, summary)


def keep(config: EvaluateConfig, found: dict[str, Any]) -> None:
    """Write what was found to the run folder, from which `pmeta report` takes it."""
    if config.run in zoo.names():  # it is no folder
        return
    words = [str(found[key]) for key in (*ASKED, "tasks") if found.get(key) not in (None, "")]
    name = re.sub(r"[^\w.-]+", "_", "-".join(["evaluation", *words]))[-120:]
    write_json(Path(config.run) / f"{name}.json", found)


def values(config: EvaluateConfig, layers: list[str], summary: Summary) -> dict[str, Any]:
    """What `--json` prints."""
    asked = {key: getattr(config, key) for key in ("run", *ASKED)}
    return plain({**asked, "layers": layers, **dataclasses.asdict(summary)})


def show(config: EvaluateConfig, layers: list[str], summary: Summary) -> None:
    """Print the summary."""
    if config.json:
        print(json.dumps(values(config, layers, summary)))
        return
    console = Console()
    accuracy = f"[bold]{summary.accuracy:.2f} ± {summary.ci95:.2f} %[/bold]"
    console.print(f"accuracy {accuracy} on {summary.tasks} tasks ({config.split})")
    _show_costs(console, "peak memory, exact", layers, summary)


def show_policy(config: EvaluateConfig, layers: list[str], s: ReturnSummary) -> None:
    """Print the summary of a policy."""
    if config.json:
        print(json.dumps(plain({"run": config.run, "layers": layers, **dataclasses.asdict(s)})))
        return
    console = Console(highlight=False)
    before, after = f"{s.before:.2f} ± {s.before_ci95:.2f}", f"{s.after:.2f} ± {s.after_ci95:.2f}"
    console.print(
        f"return [bold]{after}[/bold] after adaptation ({before} before) on {s.tasks} tasks"
    )
    half = f"{s.first_half:.2f} ± {s.first_half_ci95:.2f}"
    console.print(f"median of the tasks {s.after_median:.2f}; first half of the steps {half}")
    _show_costs(Console(), "peak memory, exact, with the episodes kept", layers, s)


def _show_costs(console: Console, exact: str, layers: list[str], s: CostSummary) -> None:
    """Memory and MACs, and which share of each layer each step updates."""
    costs = Table("a task", "mean", "worst")
    for name, mean, worst in (
        ("peak memory, paper's accounting", s.memory_mb, s.worst_memory_mb),
        (exact, s.exact_memory_mb, s.worst_exact_memory_mb),
    ):
        costs.add_row(name, f"{mean:.3f} MB", f"{worst:.3f} MB")
    costs.add_row("GMACs of a step", f"{s.gmac:.3f}", f"{s.worst_gmac:.3f}")
    console.print(costs)
    steps = [f"step {k + 1}" for k in range(len(s.update_ratios))]
    ratios = Table("share of weights updated", *steps)
    for l, name in enumerate(layers):
        ratios.add_row(name, *[f"{row[l]:.2f}" if row[l] else "·" for row in s.update_ratios])
    console.print(ratios)
