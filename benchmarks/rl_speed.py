"""Half-Cheetah steps in a CPU second: ours, the physics alone, and Gymnasium's vector env.

python benchmarks/rl_speed.py        all three, alternating, and meta epochs of both tasks
"""

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable

import gymnasium
import mujoco
import numpy as np
import torch

from pmeta.kinds.policies.cheetah import CheetahVelocity, stop_timers
from pmeta.kinds.policies.config import NAMED
from pmeta.kinds.policies.outer import outer_update, stack
from pmeta.kinds.policies.policy import forward_stacked, policy_gradient, rollout
from pmeta.kinds.policies.train import TRAIN, build, make_env, run_tasks, schedule
from pmeta.method.inner import InnerLoop
from pmeta.method.outer import Outer
from pmeta.training.workers import Group, keep_freed_memory

TASKS, EPISODES, HORIZON = 10, 20, 40


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def weights() -> dict[str, torch.Tensor]:
    config = NAMED["cheetah-velocity-paper"]
    _, meta = build(config, make_env(config))
    return stack([meta.w] * TASKS)


def ours(w: dict[str, torch.Tensor]) -> None:
    stop_timers()
    env = CheetahVelocity(horizon=HORIZON)
    tasks = env.sample_tasks(TASKS, np.random.default_rng(0))
    rollout(env, w, tasks, EPISODES, [np.random.default_rng(i) for i in range(TASKS)])


def gymnasiums(envs: gymnasium.vector.VectorEnv, w: dict[str, torch.Tensor]) -> None:
    """The same policy on HalfCheetah-v5; its 17 observations are filled up to 20."""
    mujoco.set_mjcb_time(None)  # MuJoCo's timers, which run unless a program stops them
    obs, _ = envs.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _ in range(HORIZON):
            x = torch.from_numpy(np.pad(obs, ((0, 0), (0, 3)))).float().view(TASKS, EPISODES, 20)
            mean, log_std = forward_stacked(w, x)
            action = mean + log_std.exp()[:, None] * torch.randn(mean.shape, generator=generator)
            obs, *_ = envs.step(CheetahVelocity.action_scale * action.view(-1, 6).numpy())


def physics() -> None:
    """The steps of `ours` with noise for a policy: no network, nothing kept."""
    stop_timers()
    env, rng = CheetahVelocity(), np.random.default_rng(0)
    tasks = np.ones((TASKS * EPISODES, 1))
    state = env.reset(tasks, rng)
    for _ in range(HORIZON):
        state, *_ = env.step(state, tasks, rng.standard_normal((len(tasks), env.act_size)))


def epoch_seconds(name: str, meta_batch: int) -> float:
    """CPU seconds of one meta epoch of p-Meta at the paper's settings, the second of two."""
    config = dataclasses.replace(NAMED[name], meta_batch=meta_batch)
    env = make_env(config)
    net, meta = build(config, env)
    outer = Outer(InnerLoop(net, config.method_row(), policy_gradient), meta, schedule(config))

    def epoch() -> None:
        data = run_tasks(
            config, env, outer.loop, outer.meta, (TRAIN, outer.done), range(config.meta_batch)
        )
        outer_update(outer, data, config, Group())

    epoch()
    return cpu_seconds(epoch)


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    os.chdir(tempfile.mkdtemp())  # Gymnasium's loading of the model makes MuJoCo write a log
    w, steps = weights(), TASKS * EPISODES * HORIZON
    envs = gymnasium.make_vec(
        "HalfCheetah-v5", num_envs=TASKS * EPISODES, vectorization_mode="sync"
    )
    works = {
        "ours": lambda: ours(w),
        "physics": physics,
        "gymnasium": lambda: gymnasiums(envs, w),
    }
    rounds = [[cpu_seconds(work) for work in works.values()] for _ in range(4)][1:]
    best = dict(zip(works, map(min, zip(*rounds, strict=True)), strict=True))
    for name, seconds in best.items():
        print(f"{name:10s} {steps / seconds:8.0f} steps a CPU second")
    print(f"ours is {best['gymnasium'] / best['ours']:.2f} times as fast as gymnasium")
    print(f"physics is {best['physics'] / best['ours']:.0%} of ours")
    for name, meta_batch in (("navigation-paper", 20), ("cheetah-velocity-paper", 10)):
        seconds = epoch_seconds(name, meta_batch)
        print(f"one meta epoch of {name}, {meta_batch} tasks: {seconds:.2f} CPU seconds")


if __name__ == "__main__":
    main()
