"""Meta-training of policies (Alg. 2, Sec. 4.3): the loop, and its validation."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pmeta.base.errors import DivergedError
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta, init_meta
from pmeta.method.memory_budget import live_cost
from pmeta.method.outer import Outer
from pmeta.network.backbones import MLPPolicy
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from pmeta.rl.cheetah import CheetahVelocity, stop_timers
from pmeta.rl.config import RLConfig
from pmeta.rl.evaluate import TaskReturn, task_returns
from pmeta.rl.log import Returns, RLLog
from pmeta.rl.navigation import Navigation
from pmeta.rl.outer import Batch, collect, outer_update
from pmeta.rl.policy import Env, initialise, policy_gradient
from pmeta.training.loop import schedule
from pmeta.training.own.budget import Sample, budget_choice
from pmeta.training.run_folder import Run, usual
from pmeta.training.workers import Group

MAY_DIFFER = ("out", "workers", "tensorboard")
"""Settings that a continued run may change."""
TRAIN, VALIDATION, TEST = range(3)
"""Streams of random numbers: the tasks and episodes of one never come up in another."""


def train(group: Group, config: RLConfig) -> dict[str, Any]:
    """Train, or go on with, the run in `config.out`; returns what is known of its best checkpoint.

    Every process of the group holds the same state and makes the same updates; process 0 alone
    writes and shows."""
    if group.size > config.meta_batch:
        raise ValueError(
            f"each process takes a task of --meta-batch, got {config.meta_batch} for {group.size} "
            "processes."
        )
    torch.set_num_threads(1)  # the matrices are small: --workers uses the other cores better
    with Run(config.out) as run:
        if group.rank == 0:
            run.start(dataclasses.asdict(config), MAY_DIFFER, usual(config))
        env = make_env(config)
        net, meta = build(config, env)
        method, reads = config.method_row(), Sample((config.horizon, env.obs_size))
        budget = config.memory_budget, config.budget_accounting, config.episodes
        choose = budget_choice(net, meta, method, *budget, reads)
        outer = Outer(InnerLoop(net, method, policy_gradient), meta, schedule(config), choose)
        with RLLog(run, group, config, outer) as log:
            try:
                while outer.done < config.epochs:
                    stream, tasks = (TRAIN, outer.done), group.share(range(config.meta_batch))
                    data = run_tasks(config, env, outer.loop, outer.meta, stream, tasks)
                    info = outer_update(outer, data, config, group)
                    cost = live_cost(net, outer.meta, method, config.episodes)
                    log.update(returns(group, data, info), cost)
                    if log.epoch_ends():
                        log.epoch(validate(group, env, net, outer.meta, config))
                    log.checkpoint()
            except DivergedError as error:
                raise DivergedError(
                    f"{error} The last good checkpoint is kept in {run.path}."
                ) from error
        return log.best


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


def returns(group: Group, data: Batch, info: dict[str, float]) -> Returns:
    """What the log takes note of, summed over the tasks of all processes."""
    before, after = (t.sum() for t in data.returns())
    total = group.add(
        {"before": before, "after": after, "tasks": torch.tensor(float(len(data.support)))}
    )
    sums = (float(total["before"]), float(total["after"]), int(total["tasks"]))
    return Returns(*sums, kl=info["kl"], gain=info["gain"], step=info["step"])


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
