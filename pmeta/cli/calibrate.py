"""The command `pmeta calibrate RUN`: temperatures, so that a probability is a share of right
answers."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.table import Table

from pmeta import zoo
from pmeta.base.console import Console
from pmeta.training import workers
from pmeta.training.calibration import TASKS, calibrate
from pmeta.training.restore import EvaluateConfig
from pmeta.training.run_folder import open_run, write_json


@dataclass(frozen=True)
class CalibrateConfig:
    """Fit the temperatures of the best model of a run on its validation classes, and keep them in
    the run folder for `pmeta export`. `pmeta train` ends with it."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    data: str = ""
    """Folder of classes to draw tasks from; by default that of the run."""
    tasks: int = TASKS
    """Tasks of pictures for each number of support samples; each half of them is measured with the
    temperature that fits the other."""
    n_query: int | None = None
    """Query samples of each class; by default as in training."""
    model: str = ""
    """Of a run with a network of your own: FILE.py:FUNCTION, which makes it."""
    seed: int | None = None
    """Of the tasks; by default the training's and one."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto: on the GPU if there is one."""
    workers: int = 0
    """Processes; 0: one for each core."""
    json: bool = False
    """Print one JSON object instead of a table."""


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
    if "pooled_epochs" in settings:
        found = _recogniser(config)
    else:
        found = _pictures(config, settings["seed"] + 1 if config.seed is None else config.seed)
    if workers.is_first():
        keep(config.run, found)
        if config.json:
            print(json.dumps(found))
        else:
            show(found)


def _recogniser(config: CalibrateConfig) -> dict[str, Any]:
    """Of a run on recordings: people of the validation, some draws each."""
    from pmeta.sensors import calibrate as people  # late: pictures need no recordings

    count = config.workers or workers.default_workers()
    return workers.run(people.calibrate, (config.run, people.DRAWS), count)


def _pictures(config: CalibrateConfig, seed: int) -> dict[str, Any]:
    if config.tasks < 2:
        raise ValueError(f"--tasks fit and measure, so there are 2 or more, got {config.tasks}.")
    asked = EvaluateConfig(
        config.run,
        config.data,
        split="val",
        tasks=config.tasks,
        n_query=config.n_query,
        model=config.model,
        seed=seed,
        device=config.device,
    )
    return workers.run(calibrate, (asked,), config.workers or workers.default_workers())


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
