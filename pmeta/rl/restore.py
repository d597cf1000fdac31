"""The best policy of a run, restored to be evaluated on unseen tasks or exported."""

import dataclasses

import torch

from pmeta.base.progress import progress
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta
from pmeta.network.layers import Network
from pmeta.rl.config import RLConfig
from pmeta.rl.evaluate import ReturnSummary, TaskReturn, summarise, task_returns
from pmeta.rl.policy import Env, policy_gradient
from pmeta.rl.render import draw
from pmeta.rl.train import TEST, build, make_env, run_tasks
from pmeta.training.run_folder import Run, restored
from pmeta.training.workers import Group

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


def evaluate(
    group: Group, path: str, tasks: int, batch: int | None, seed: int, render: str
) -> tuple[list[str], ReturnSummary]:
    """The names of the layers, and the summary over all tasks."""
    names, results = each_task(group, path, tasks, batch, seed, render)
    return names, summarise(results)


def each_task(
    group: Group, path: str, tasks: int, batch: int | None, seed: int, render: str = ""
) -> tuple[list[str], list[TaskReturn]]:
    """The names of the layers, and what each task gives, in order; each process of the group takes
    its share of them."""
    torch.set_num_threads(1)
    config, env, net, meta = restore(path)
    loop = InnerLoop(net, config.method_row(), policy_gradient, batch=batch)
    numbers = group.share(range(tasks))
    chunks = [numbers[i : i + CHUNK] for i in range(0, len(numbers), CHUNK)]
    results = []
    for chunk in progress(chunks, "adapting", shown=group.rank == 0):
        data = run_tasks(config, env, loop, meta, (TEST, 0), chunk, seed)
        results += task_returns(loop, meta, data)
        if render and group.rank == 0 and chunk is chunks[0]:
            draw(config.env, data, render)
    return [layer.name for layer in net.layers], group.gather(results)
