"""Meta-training of policies (Alg. 2, Sec. 4.3): an update, and its validation."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pmeta.kinds.policies.cheetah import CheetahVelocity, stop_timers
from pmeta.kinds.policies.config import RLConfig
from pmeta.kinds.policies.evaluate import TaskReturn, summarise, task_returns
from pmeta.kinds.policies.figures import FIGURES
from pmeta.kinds.policies.navigation import Navigation
from pmeta.kinds.policies.outer import Batch, collect, outer_update
from pmeta.kinds.policies.policy import Env, initialise, policy_gradient
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta, init_meta
from pmeta.method.outer import Outer
from pmeta.network.backbones import MLPPolicy
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from pmeta.training.budget import Sample, budget_choice
from pmeta.training.meta_learning import OuterTraining, schedule
from pmeta.training.run_folder import Run
from pmeta.training.workers import Group

TRAIN, VALIDATION, TEST = range(3)
"""Streams of random numbers: the tasks and episodes of one never come up in another."""


class PolicyTraining(OuterTraining):
    """What the trainer drives: episodes of tasks, and TRPO."""

    sums: tuple[str, ...] = ("before", "after", "tasks", "kl", "gain", "step")
    figures = FIGURES

    def __init__(self, config: RLConfig):
        self.env = make_env(config)
        self.net, meta = build(config, self.env)
        method, reads = config.method_row(), Sample((config.horizon, self.env.obs_size))
        budget = config.memory_budget, config.budget_accounting, config.episodes
        choose = budget_choice(self.net, meta, method, *budget, reads)
        loop = InnerLoop(self.net, method, policy_gradient)
        super().__init__(config, Outer(loop, meta, schedule(config), choose), config.episodes)
        self.policies = config
        of_a_step = self.env.obs_size + self.env.act_size + 1  # the reward
        self.kept_words = config.episodes * config.horizon * of_a_step

    def counts(self, done: int) -> dict[str, int]:
        """Meta epochs and tasks."""
        return {"epoch": done, **super().counts(done)}

    def step(self, group: Group) -> dict[str, float]:
        """A meta epoch: each process runs its share of the tasks."""
        config, outer = self.policies, self.outer
        stream, tasks = (TRAIN, outer.done), group.share(range(config.meta_batch))
        data = run_tasks(config, self.env, outer.loop, outer.meta, stream, tasks)
        info = outer_update(outer, data, config, group)
        before, after = (t.sum() for t in data.returns())
        number = torch.tensor(float(len(data.support)))
        total = group.add({"before": before, "after": after, "tasks": number})
        outer.check_finite()
        return {**{key: float(t) for key, t in total.items()}, **info}

    def validate(self, group: Group, sums: dict[str, float]) -> dict[str, Any]:
        """Returns of the epochs and of unseen tasks, and what adapting to these took."""
        results = validate(group, self.env, self.net, self.outer.meta, self.policies)
        summary = summarise(results)
        epochs = max(1, round(sums["tasks"] / self.policies.meta_batch))
        return {
            **{key: sums[key] / sums["tasks"] for key in ("before", "after")},
            **{key: sums[key] / epochs for key in ("kl", "gain", "step")},
            "val_before": summary.before,
            "val_after": summary.after,
            "val_ci95": summary.after_ci95,
            "std": self.outer.meta.w["log_std"].exp().tolist(),
            **self.of_layers(results),
        }

    def status(self, sums: dict[str, float]) -> list[str]:
        """Returns of these epochs."""
        tasks = sums["tasks"] or float("nan")
        before, after = sums["before"] / tasks, sums["after"] / tasks
        return [f"return {before:.1f} -> {after:.1f}", self.memory()]


def training(group: Group, run: Run, config: RLConfig) -> PolicyTraining:
    """What the trainer drives."""
    if group.size > config.meta_batch:
        raise ValueError(
            f"each process takes a task of --meta-batch, got {config.meta_batch} for {group.size} "
            "processes."
        )
    torch.set_num_threads(1)  # the matrices are small: --workers uses the other cores better
    return PolicyTraining(config)


def make_env(config: RLConfig) -> Env:
    if config.env == "navigation":
        return Navigation(config.horizon, config.action_scale)
    stop_timers()
    return CheetahVelocity(config.horizon, config.action_scale)


def build(config: RLConfig, env: Env) -> tuple[Network, Meta]:
    """The policy of a run, and its initial parameters. A sample is an episode."""
    generator = torch.Generator().manual_seed(config.seed)
    policy = MLPPolicy(env.obs_size, env.act_size)
    initialise(policy, generator)
    net = take_in(policy, torch.zeros(1, config.horizon, env.obs_size), extra=("log_std",))
    return net, init_meta(net, config.method_row(), config.inner_steps, config.alpha_0, generator)


def run_tasks(
    config: RLConfig,
    env: Env,
    loop: InnerLoop,
    meta: Meta,
    stream: tuple[int, int],
    tasks: Sequence[int],
    seed: int = -1,
) -> Batch:
    """Draw the tasks of these numbers, run, adapt and run again. A task is the same whichever
    others run beside it."""
    entropy = config.seed if seed < 0 else seed
    seeds = [np.random.SeedSequence(entropy, spawn_key=(*stream, i)) for i in tasks]
    rngs = [np.random.default_rng(seed) for seed in seeds]
    drawn = np.concatenate([env.sample_tasks(1, rng) for rng in rngs])
    meta = meta.map(torch.Tensor.detach)
    return collect(env, loop, meta, drawn, config.episodes, rngs, config.discount)


def validate(
    group: Group, env: Env, net: Network, meta: Meta, config: RLConfig
) -> list[TaskReturn]:
    """The same unseen tasks each time, adapted to one episode at a time as a device does."""
    loop = InnerLoop(net, config.method_row(), policy_gradient, batch=1)
    meta = dataclasses.replace(meta, mask=meta.updates())
    tasks = group.share(range(config.val_tasks))
    if not tasks:
        return group.gather([])
    data = run_tasks(config, env, loop, meta, (VALIDATION, 0), tasks)
    return group.gather(task_returns(loop, meta, data))
