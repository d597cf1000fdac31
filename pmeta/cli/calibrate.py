"""The command `pmeta calibrate RUN`: temperatures, so that a probability is a share of right
answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from pmeta import zoo
from pmeta.base.console import Console
from pmeta.training import workers
from pmeta.training.calibration import TASKS, calibrate
from pmeta.training.restore import EvaluateConfig, TasksConfig
from pmeta.training.run_folder import open_run, write_json


@dataclass(frozen=True)
class CalibrateConfig(TasksConfig):
    """Fit the temperatures of the best model of a run on its validation classes, and keep them in
    the run folder for `pmeta export`. `pmeta train` ends with it."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    tasks: int = TASKS
    """Tasks of pictures for each number of support samples; each half of them is measured with the
    temperature that fits the other."""
    seed: int | None = None
    """Of the tasks; by default the training's and one."""


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(
        CalibrateConfig, args=argv, prog="pmeta calibrate", description=CalibrateConfig.__doc__
    )
    settings = open_run(config.run).config()
    if config.run in zoo.names():
        raise ValueError(f"{config.run} ships with its temperatures: pmeta zoo shows them.")
    if "env" in settings:
        raise ValueError(f"certainty is of a classifier, and {config.run} is a policy.")
    if config.tasks < 2 and "pooled_epochs" not in settings:
        raise ValueError(f"--tasks fit and measure, so there are 2 or more, got {config.tasks}.")
    fit, args = fitting(config, settings)
    found = workers.run(fit, args, config.workers or workers.default_workers())
    if workers.is_first():
        keep(config.run, found)
        if config.json:
            print(json.dumps(found))
        else:
            show(found)


def fitting(config: CalibrateConfig, settings: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """The function that fits temperatures of a run of such settings, and what it is given behind
    its group."""
    if "pooled_epochs" in settings:  # on recordings: people of the validation, some draws each
        from pmeta.sensors import calibrate as people  # late: pictures need no recordings

        return people.calibrate, (config.run, people.DRAWS)
    asked = EvaluateConfig(
        config.run,
        config.data,
        split="val",
        tasks=config.tasks,
        n_query=config.n_query,
        model=config.model,
        seed=settings["seed"] + 1 if config.seed is None else config.seed,
        device=config.device,
    )
    return calibrate, (asked,)


def keep(run: str, found: dict[str, Any]) -> None:
    """Write them to the run folder."""
    write_json(Path(run) / "calibration.json", found)


def show(found: dict[str, Any]) -> None:
    """A row for each number of support samples."""
    table = Table(
        "samples of a class",
        "temperature",
        "error before",
        "error",
        title="calibration (ECE, 15 bins, validation tasks that did not fit it)",
    )
    for s in found["shots"]:
        before, after = (f"{100 * s[key]:.1f} %" for key in ("ece_before", "ece"))
        table.add_row(str(s["n_shot"]), f"{s['temperature']:.2f}", before, after)
    Console().print(table)
