"""What `pmeta evaluate RUN` prints of a run on recordings of sensors."""

import dataclasses
import json

from rich.table import Table

from pmeta.base.console import Console
from pmeta.training import workers
from pmeta.training.restore import EvaluateConfig
from pmeta.training.run_folder import plain

DRAWS = 5
"""Tasks of each person with each device, unless --tasks says otherwise."""


def evaluate_people(config: EvaluateConfig) -> None:
    """Adapt the best model to people of the validation or the test, and print how well it does."""
    from pmeta.sensors.people import evaluate  # late: pictures need no recordings

    for name in ("n_way", "n_query"):
        if getattr(config, name) is not None:
            raise ValueError(
                f"--{name.replace('_', '-')} is for pictures; people keep their activities, and "
                "every other window is a query: leave it out."
            )
    if config.split == "train":
        raise ValueError("people of the training are not unseen: give --split val or test.")
    draws = config.tasks or DRAWS
    args = (config.run, config.data, config.split, draws, config.n_shot, config.batch)
    found = workers.run(evaluate, args, config.workers or workers.default_workers())
    if not workers.is_first():
        return
    if config.json:
        devices = {device: dataclasses.asdict(score) for device, score in found.items()}
        asked = {"run": config.run, "data": config.data, "split": config.split, "tasks": draws}
        print(json.dumps(plain({**asked, "n_shot": config.n_shot, "devices": devices})))
        return
    table = Table("balanced accuracy, %", "people", "before", "after adaptation", "gain")
    for device, s in found.items():
        cells = ((s.before, s.before_ci95), (s.after, s.after_ci95), (s.gain, s.gain_ci95))
        table.add_row(device, str(s.people), *(f"{mean:.1f} ± {ci:.1f}" for mean, ci in cells))
    Console().print(table)
