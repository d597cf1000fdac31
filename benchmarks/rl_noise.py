"""What keeps the return of the Half-Cheetah below zero: noise, a missed velocity, the start.

    python benchmarks/rl_noise.py              an untrained policy at several action scales
    python benchmarks/rl_noise.py --run RUN    that of a run after one step, by target velocity

`jitter` is the mean distance of the velocity to the episode's own mean. Jitter over all steps and
torques are what is lost even if that mean is the target. Of a trained run, the first second is
counted apart, since the robot starts at rest, and the same policies also act without their noise.
"""

import argparse
from itertools import pairwise

import numpy as np
import torch

from pmeta.method.inner import InnerLoop
from pmeta.rl.cheetah import FRAME_SKIP, CheetahVelocity
from pmeta.rl.config import NAMED
from pmeta.rl.navigation import Array
from pmeta.rl.outer import stack
from pmeta.rl.policy import Episodes, policy_gradient, rollout
from pmeta.rl.restore import restore
from pmeta.rl.train import TEST, build, run_tasks

SCALES = (1.0, 0.3, 0.1, 0.03)
TASKS, EPISODES = 10, 2
X = 17
"""Where the torso's x stands in an observation."""
SECOND = 20
"""Steps of one second."""
BOUNDS = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Of the target velocities that share a row."""


def velocities(episodes: Episodes) -> Array:
    """(tasks, episodes, steps - 1)."""
    return np.diff(episodes.obs[..., X].double().numpy(), axis=-1) / (FRAME_SKIP * 0.01)


def torque_costs(episodes: Episodes, scale: float) -> Array:
    """What the torques of an episode cost, (tasks, episodes)."""
    torque = np.clip(scale * episodes.actions.numpy(), -1, 1)
    return 0.05 * (torque**2).sum(axis=(-1, -2))


def untrained(scale: float) -> str:
    env = CheetahVelocity(action_scale=scale)
    _, meta = build(NAMED["cheetah-velocity-paper"], env)
    targets = np.linspace(0.1, 1.9, TASKS)[:, None]
    rngs = [np.random.default_rng(i) for i in range(TASKS)]
    episodes = rollout(env, stack([meta.w] * TASKS), targets, EPISODES, rngs)
    velocity = velocities(episodes)
    jitter = np.abs(velocity - velocity.mean(axis=-1, keepdims=True)).mean()
    cost = torque_costs(episodes, scale).mean()
    lost = jitter * env.horizon + cost
    cells = (f"{scale:g}", f"{episodes.returns().mean():.0f}", f"{cost:.1f}", f"{jitter:.2f}")
    return f"| {' | '.join(cells)} | {lost:.0f} |"


def adapted(path: str, tasks: int) -> tuple[Array, dict[str, Array]]:
    """The targets of the unseen tasks of `pmeta evaluate`, and what a row shows of each task."""
    config, env, net, meta = restore(path)
    loop = InnerLoop(net, config.method_row(), policy_gradient, batch=1)
    data = run_tasks(config, env, loop, meta, (TEST, 0), range(tasks), seed=0)
    w = stack([a.w for a in data.adapted])
    w["log_std"] = torch.full_like(w["log_std"], -20.0)
    rngs = [np.random.default_rng(i) for i in range(tasks)]
    quiet = rollout(env, w, data.tasks, config.episodes, rngs)
    before, after = (t.numpy() for t in data.returns())
    velocity = velocities(data.after)
    missed = np.abs(velocity - data.tasks[:, :, None])
    late = velocity[..., SECOND:]
    mean = late.mean(axis=-1)
    return data.tasks[:, 0], {
        "before": before,
        "after": after,
        "m/s before": velocities(data.before)[..., SECOND:].mean(axis=(-1, -2)),
        "m/s after": mean.mean(axis=1),
        "missed in the first second": missed[..., :SECOND].sum(-1).mean(1),
        "missed by the later mean": np.abs(mean - data.tasks).mean(1) * late.shape[-1],
        "jitter": np.abs(late - mean[..., None]).sum(-1).mean(1),
        "torques": torque_costs(data.after, config.action_scale).mean(1),
        "after, no noise": quiet.returns().mean(dim=1).numpy(),
    }


def table(path: str, tasks: int) -> None:
    target, columns = adapted(path, tasks)
    print(f"| v* | tasks | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 2) + "|")
    for low, high in [*pairwise(BOUNDS), (BOUNDS[0], BOUNDS[-1])]:
        row = (target >= low) & (target <= high)
        figures = [
            f"{of[row].mean():.{2 if 'm/s' in name else 1}f}" for name, of in columns.items()
        ]
        print(f"| {low:g} to {high:g} | {row.sum()} | {' | '.join(figures)} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", help="run folder of a training on the Half-Cheetah")
    parser.add_argument("--tasks", type=int, default=100, help="unseen tasks of the run")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.run:
        table(args.run, args.tasks)
        return
    print("| action scale | return | torques | jitter, m/s | lost to the noise |")
    print("|---|---|---|---|---|")
    for scale in SCALES:
        print(untrained(scale))


if __name__ == "__main__":
    main()
