"""How sure a recogniser may be: temperatures fitted on people of its validation."""

from dataclasses import replace
from typing import Any

import torch

from pmeta.method.inner import InnerLoop
from pmeta.network.tape import forward
from pmeta.sensors.people import open_people
from pmeta.sensors.restore import load
from pmeta.sensors.tasks import personal_task
from pmeta.training.calibration import Judged, by_shots, measured
from pmeta.training.run_folder import Run
from pmeta.training.workers import Group

SHOTS = (1, 2, 5, 10)
"""Windows of each activity that are measured, besides those of the training."""
DRAWS = 4
"""Tasks of each person with each device; each half is measured with what fits the other."""


def calibrate(group: Group, run: str, draws: int = DRAWS) -> dict[str, Any]:
    """Temperatures of the best model of a run, and how well they fit, as plain values."""
    trained, best = load(run), Run(run).load("best")
    assert best
    windows = group.from_first(lambda: open_people(trained, "", "val"))
    loop = InnerLoop(trained.net, trained.config.method_row(), batch=1)
    meta = replace(trained.meta, mask=trained.meta.updates())
    seed = trained.config.seed + 1

    def queries(i: int, shots: int) -> Judged:
        """Draw i % draws of group i // draws, so that each half has all people."""
        task = personal_task(windows, i // draws, seed, i % draws, shots)
        w = loop.adapt(meta, (task.support_x, task.support_y)).w
        with torch.no_grad():
            scores, _ = forward(trained.net, w, task.query_x)
        return Judged(scores.numpy(), task.query_y.numpy())

    found = []
    for shots in sorted({*SHOTS, trained.config.n_shot}):
        numbers = group.share(range(len(windows.groups) * draws))
        found.append(
            {"n_shot": shots, **measured(group.gather([queries(i, shots) for i in numbers]))}
        )
    asked = {"split": "val", "tasks": draws, "seed": seed}
    return {**asked, "best": best.info["tasks"], **by_shots(found)}
