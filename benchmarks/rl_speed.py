"""Half-Cheetah steps in a CPU second: one MuJoCo call against Gymnasium's vector env.

python benchmarks/rl_speed.py            both, alternating, and one meta epoch of navigation
"""

import os
import tempfile
import time
from collections.abc import Callable

import gymnasium
import numpy as np
import torch

from pmeta.method.inner import InnerLoop
from pmeta.method.outer import Outer
from pmeta.rl.cheetah import CheetahVelocity
from pmeta.rl.config import NAMED
from pmeta.rl.outer import outer_update, stack
from pmeta.rl.policy import forward_stacked, policy_gradient, rollout
from pmeta.rl.train import TRAIN, build, make_env, run_tasks, schedule
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
    env = CheetahVelocity(horizon=HORIZON)
    tasks = env.sample_tasks(TASKS, np.random.default_rng(0))
    rollout(env, w, tasks, EPISODES, [np.random.default_rng(i) for i in range(TASKS)])


def gymnasiums(envs: gymnasium.vector.VectorEnv, w: dict[str, torch.Tensor]) -> None:
    """The same policy on HalfCheetah-v5; its 17 observations are filled up to 20."""
    obs, _ = envs.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _ in range(HORIZON):
            x = torch.from_numpy(np.pad(obs, ((0, 0), (0, 3)))).float().view(TASKS, EPISODES, 20)
            mean, log_std = forward_stacked(w, x)
            action = mean + log_std.exp()[:, None] * torch.randn(mean.shape, generator=generator)
            obs, *_ = envs.step(action.view(-1, 6).numpy())


def navigation_epoch() -> float:
    """CPU seconds of one meta epoch at the paper's settings, the second of two."""
    config = NAMED["navigation-paper"]
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
    rounds = [
        (cpu_seconds(lambda: ours(w)), cpu_seconds(lambda: gymnasiums(envs, w))) for _ in range(4)
    ][1:]
    best = [min(seconds) for seconds in zip(*rounds, strict=True)]
    print(f"ours       {steps / best[0]:8.0f} steps a CPU second")
    print(f"gymnasium  {steps / best[1]:8.0f} steps a CPU second")
    print(f"ratio      {best[1] / best[0]:8.2f}")
    print(f"one meta epoch of navigation, p-Meta: {navigation_epoch():.2f} CPU seconds")


if __name__ == "__main__":
    main()
