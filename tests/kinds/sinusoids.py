"""A fifth kind, for tests: regression on sinusoids (Finn et al. 2017). Nothing else names it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from pmeta.method.inner import InnerLoop, mse
from pmeta.method.learned import Meta, init_meta
from pmeta.method.meta_gradient import AnyTask
from pmeta.method.outer import Outer
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from pmeta.training.budget import Sample
from pmeta.training.figures import REGRESSION
from pmeta.training.meta_learning import MetaLearning, schedule
from pmeta.training.restored import Asked, Restored, Unseen
from pmeta.training.results import TaskResult, evaluate_task, summarise
from pmeta.training.run_folder import Run, restored
from pmeta.training.settings import AdamSettings
from pmeta.training.workers import Group


@dataclass(frozen=True)
class Config(AdamSettings):
    """Meta-train a network on sinusoids of any amplitude and phase."""

    kind = "sinusoids"

    tasks: int = 24
    epoch_tasks: int = 8
    inner_steps: int = 2
    points: int = 5
    """Of a sinusoid, in its support set."""


FIGURES = REGRESSION
NAMED = {"sinusoids": Config(method="pmeta-lr", freeze_at=0.3)}
COMMON = ("out", "method", "tasks", "points", "seed")
NEXT = "pmeta evaluate {run}"
TAKES = {"evaluate": ("tasks", "batch", "seed"), "export": ("batch", "memory_budget")}
OTHERWISE = {"calibrate": "certainty is of a classifier, and {run} gives numbers."}


def task(i: int, seed: int, points: int) -> AnyTask:
    """Sinusoid number i."""
    random = torch.Generator().manual_seed(1000 * seed + i)
    amplitude, phase = torch.rand(2, generator=random) * torch.tensor([4.0, 3.0])
    x = 10 * torch.rand(points + 10, 1, generator=random) - 5
    y = amplitude * torch.sin(x + phase)
    return x[:points], y[:points], x[points:], y[points:]


def build(config: Config) -> tuple[Network, Meta]:
    """Network and first parameters of a run."""
    random = torch.Generator().manual_seed(config.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = nn.Sequential(nn.Linear(1, 20), nn.ReLU(), nn.Linear(20, 1))
    net = take_in(model, torch.zeros(1, 1))
    return net, init_meta(net, config.method_row(), config.inner_steps, config.alpha_0, random)


def results_of(
    config: Config,
    net: Network,
    meta: Meta,
    numbers: Sequence[int],
    seed: int,
    batch: int | None = 1,
) -> list[TaskResult]:
    loop = InnerLoop(net, config.method_row(), mse, batch=batch)
    return [evaluate_task(loop, meta, task(i, seed, config.points)) for i in numbers]


def training(group: Group, run: Run, config: Config) -> MetaLearning:
    net, meta = build(config)

    def results(group: Group, meta: Meta) -> list[TaskResult]:
        return group.gather(results_of(config, net, meta, group.share(range(4)), config.seed + 1))

    outer = Outer(InnerLoop(net, config.method_row(), mse), meta, schedule(config))
    args = config, outer, config.points
    return MetaLearning(
        *args, lambda i: task(i, config.seed, config.points), results, classes=False
    )


def restore(group: Group, asked: Asked) -> Restored:
    run = Run(asked.run)
    config, best = run.settings(Config), run.best()
    net, meta = build(config)
    meta = restored(meta, best.tensors)
    unseen = Unseen(
        asked.tasks or 20,
        lambda numbers: results_of(config, net, meta, numbers, 100 + asked.seed, asked.batch),
    )
    return Restored(config, net, meta, Sample((1,)), best.info, lambda group: unseen, summarise)
