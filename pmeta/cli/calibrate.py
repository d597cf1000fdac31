"""The command `pmeta calibrate RUN`: temperatures, so that a probability is a share of right
answers."""

import json
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.table import Table

from pmeta import kinds, zoo
from pmeta.base.console import Console
from pmeta.base.files import check_can_write
from pmeta.training import workers
from pmeta.training.calibration import calibrate
from pmeta.training.restored import Asked
from pmeta.training.run_folder import open_run, write_json


@dataclass(frozen=True)
class CalibrateConfig:
    """Fit the temperatures of the best model of a run on its validation classes or people, and keep
    them in the run folder for `pmeta export`. `pmeta train` ends with it."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    data: str = ""
    """Where to draw tasks from; by default the data of the run."""
    _: KW_ONLY
    tasks: int | None = None
    """Tasks for each number of support samples (of recordings for each person with each device);
    each half of them is measured with the temperature that fits the other. By default 100, and 4
    of recordings."""
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
    """Print one JSON object instead of tables."""

    def asked(self) -> Asked:
        """The same as every command that reads a run has it."""
        trained = open_run(self.run).config()["seed"]
        if self.tasks is not None and self.tasks < 2:
            raise ValueError(f"--tasks fit and measure, so there are 2 or more, got {self.tasks}.")
        seed = trained + 1 if self.seed is None else self.seed
        return Asked(**{**vars(self), "seed": seed}, split="val")


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(
        CalibrateConfig, args=argv, prog="pmeta calibrate", description=CalibrateConfig.__doc__
    )
    if config.run in zoo.names():
        raise ValueError(f"{config.run} ships with its temperatures: pmeta zoo shows them.")
    restore = kinds.reading("calibrate", config, config.run).restore
    check_can_write(Path(config.run) / "calibration.json")  # now, and not after the work
    count = config.workers or workers.default_workers()
    found = workers.run(calibrate, (restore, config.asked()), count)
    if workers.is_first():
        if config.json:
            print(json.dumps(found))
        else:
            show(found)
        keep(config.run, found)  # last: what was found is shown in any case


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
