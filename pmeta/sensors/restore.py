"""The best model of a run on sensors, restored to be evaluated on people or exported."""

import json
from dataclasses import replace
from typing import NamedTuple

from pmeta.compiler.export import Exported, export
from pmeta.data.recordings.windows import Windowing
from pmeta.device.model_file import facts, with_facts
from pmeta.method.learned import Meta
from pmeta.network.layers import Network
from pmeta.sensors.config import SensorConfig
from pmeta.sensors.train import build
from pmeta.training.calibration import temperatures
from pmeta.training.own.budget import Sample, export_budget
from pmeta.training.run_folder import Run, restored


class Trained(NamedTuple):
    """A run's best model, and how its windows are made."""

    config: SensorConfig
    windowing: Windowing
    net: Network
    meta: Meta


def load(path: str) -> Trained:
    """The best model of a run folder."""
    run = Run(path)
    config, best = run.settings(SensorConfig), run.best()
    try:
        windowing = Windowing.from_facts(json.loads((run.path / "windows.json").read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"the windows.json of {path} cannot be read ({error}): train again."
        ) from None
    net, meta = build(config, windowing)
    return Trained(config, windowing, net, restored(meta, best.tensors))


def export_run(path: str, batch: int | None = 1) -> Exported:
    """The best model of a run for the device, with its windows, the names of its classes and
    its temperatures."""
    trained = load(path)
    windowing = trained.windowing
    shape = len(windowing.columns), windowing.length
    what = trained.net, trained.meta, trained.config.method_row()
    budget = export_budget(*what, trained.config.memory_budget, "arena", Sample(shape), batch)
    made = export(
        *what, shape, scale=windowing.scale, shift=windowing.shift, batch=batch,
        memory_budget=budget,
    )  # fmt: skip
    known = facts(made.data) | {"classes": list(windowing.labels), "windows": windowing.as_facts()}
    return replace(made, data=with_facts(made.data, known, temperatures(path)))
