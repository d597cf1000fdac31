"""The best policy of a run, and unseen tasks."""

import dataclasses
from collections.abc import Sequence

import torch

from pmeta.kinds.policies.config import RLConfig
from pmeta.kinds.policies.evaluate import TaskReturn, summarise, task_returns
from pmeta.kinds.policies.policy import Env, policy_gradient
from pmeta.kinds.policies.render import check_path, draw
from pmeta.kinds.policies.train import TEST, build, make_env, run_tasks
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta
from pmeta.network.layers import Network
from pmeta.training.budget import Sample
from pmeta.training.restored import Asked, Restored, Unseen
from pmeta.training.run_folder import Run, restored
from pmeta.training.workers import Group

TASKS = 400
"""Of an evaluation, unless told otherwise."""
CHUNK = 20
"""Tasks whose episodes are stepped together."""


def restore(path: str) -> tuple[RLConfig, Env, Network, Meta]:
    """The settings of a run, and the policy of its best checkpoint; layers with alpha = 0 are left
    alone altogether."""
    run = Run(path)
    config, best = run.settings(RLConfig), run.best()
    env = make_env(config)
    net, meta = build(config, env)
    meta = restored(meta, best.tensors)
    return config, env, net, dataclasses.replace(meta, mask=meta.updates())


def restore_run(group: Group, asked: Asked) -> Restored:
    """The best policy of a run, and tasks of a stream of their own. A sample is an episode."""
    if asked.render:
        check_path(asked.render)
    config, env, net, meta = restore(asked.run)
    meta = meta.without_steps_below(asked.least_step)
    return Restored(
        config,
        net,
        meta,
        Sample((config.horizon, env.obs_size)),
        Run(asked.run).best().info,
        lambda group: unseen(group, config, env, net, meta, asked),
        summarise,
        (config.memory_budget, config.budget_accounting),
        facts={"loss": "own"},
    )


def unseen(
    group: Group, config: RLConfig, env: Env, net: Network, meta: Meta, asked: Asked
) -> Unseen:
    """Tasks that were never drawn in a training or a validation."""
    torch.set_num_threads(1)
    loop = InnerLoop(net, config.method_row(), policy_gradient, batch=asked.batch)

    def results(numbers: Sequence[int]) -> list[TaskReturn]:
        data = run_tasks(config, env, loop, meta, (TEST, 0), numbers, asked.seed)
        if asked.render and 0 in numbers:
            draw(config.env, data, asked.render)
        return task_returns(loop, meta, data)

    return Unseen(asked.tasks or TASKS, results, CHUNK)
