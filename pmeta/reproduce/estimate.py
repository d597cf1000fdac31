"""How long the queue has to go, measured on what its folder holds already."""

import dataclasses
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch

from pmeta.cost.adaptation import cost
from pmeta.cost.ops import layer_names
from pmeta.data.tasks import Task
from pmeta.method.meta_gradient import task_gradient
from pmeta.reproduce import evaluations
from pmeta.reproduce.queue import Options, Step
from pmeta.rl.config import RLConfig
from pmeta.training.config import NAMED, ImageConfig
from pmeta.training.run_folder import Run
from pmeta.training.train import build, training_loop

POLICY_SECONDS = {"navigation": 2e-5, "cheetah-velocity": 8e-5}
"""Rough CPU seconds for a step of an episode with its part of the update."""
SECOND_ORDER = 3.0
"""An inner step of meta-training, with the way back through it, against the same step in
adaptation."""
OVERHEAD = 1.5
"""Seconds of a step besides its tasks."""


class Estimate:
    """Seconds of the steps to come; what was measured counts more than what was calculated."""

    def __init__(self, options: Options):
        self.options = options
        self.calculated: dict[tuple[str, str], float] = {}

    def seconds(self, steps: Sequence[Step]) -> list[float]:
        """Of each of these steps."""
        rates: dict[tuple[str, str], float] = {}
        for step in steps:
            key = step.job.training.kind, step.what
            if key not in rates:
                rates[key] = self._measured(step) or self._calculated(key, step)
        return [OVERHEAD + step.tasks * rates[step.job.training.kind, step.what] for step in steps]

    def total(self, steps: Sequence[Step]) -> float:
        """Of all these steps."""
        return sum(self.seconds(steps))

    def _measured(self, step: Step) -> float:
        """Seconds for a task in runs of the same kind, or 0 where there are none."""
        runs = [p for p in (self.options.out / "runs").glob("*") if _kind(p) == _kind(step.job.run)]
        spent = [_training(run) if step.what == "train" else _evaluations(run) for run in runs]
        seconds, tasks = (sum(pair[i] for pair in spent) for i in (0, 1))
        return seconds / tasks if tasks else 0.0

    def _calculated(self, key: tuple[str, str], step: Step) -> float:
        """The same where nothing of the kind was done yet."""
        if key not in self.calculated:
            config, training = step.job.config, step.what == "train"
            if isinstance(config, RLConfig):
                own = (
                    POLICY_SECONDS[config.env]
                    * config.episodes
                    * config.horizon
                    * (2 if training else 1)
                )
            else:
                own = gmacs(config, training) / self.speed
            self.calculated[key] = own / self.options.workers
        return self.calculated[key]

    @cached_property
    def speed(self) -> float:
        """GMACs a second of one process, measured when first needed."""
        return calibrate(dataclasses.replace(NAMED["miniimagenet-4conv-5way-1shot"], n_query=5))


def _kind(run: Path) -> str:
    """4conv-1shot-pmeta-lr -> 4conv-1shot; navigation-pmeta -> navigation."""
    parts = run.name.split("-")
    return parts[0] if parts[0] == "navigation" else "-".join(parts[:2])


def _training(run: Path) -> tuple[float, int]:
    """Seconds and tasks between the validations of a run, each with its validation."""
    lines, seconds, tasks = Run(run).metrics(), 0.0, 0
    for a, b in zip([{"seconds": 0.0, "tasks": 0}, *lines], lines, strict=False):
        if b["seconds"] > a["seconds"]:  # else it was stopped between the two
            seconds, tasks = seconds + b["seconds"] - a["seconds"], tasks + b["tasks"] - a["tasks"]
    return seconds, tasks


def _evaluations(run: Path) -> tuple[float, int]:
    found = [evaluations.read(path) or {} for path in (run / "evaluations").glob("*-batch*.json")]
    return sum(e.get("seconds", 0) for e in found), sum(e.get("tasks", 0) for e in found)


def gmacs(config: ImageConfig, training: bool) -> float:
    """GMACs of a task by the cost model: K steps over the support set, and the queries."""
    net, _ = build(
        config, (3, config.image_size or 28, config.image_size or 28), torch.device("cpu")
    )
    samples = config.n_way * config.n_shot
    one = cost(net.ops, [layer_names(net.ops)], samples)
    queries = one.inference_gmac / samples * config.n_way * config.n_query
    if training:
        return config.inner_steps * one.gmac * SECOND_ORDER + 3 * queries
    return config.inner_steps * one.gmac + queries


def calibrate(config: ImageConfig) -> float:
    """GMACs a second: the time of a training task on noise, the second of two, for the first one
    warms up."""
    image = (3, config.image_size or 28, config.image_size or 28)
    net, meta = build(config, image, torch.device("cpu"))
    labels = torch.arange(config.n_way)
    support, query = (
        labels.repeat_interleave(config.n_shot),
        labels.repeat_interleave(config.n_query),
    )
    generator = torch.Generator().manual_seed(0)
    x, x_query = (torch.randn(len(y), *image, generator=generator) for y in (support, query))
    for _ in range(2):
        started = time.perf_counter()
        task_gradient(training_loop(net, config), meta, Task(x, support, x_query, query))
    return gmacs(config, training=True) / (time.perf_counter() - started)
