"""What the noise of an untrained policy costs the Half-Cheetah, at several action scales.

    python benchmarks/rl_noise.py

`jitter` is the mean distance of the velocity to the episode's own mean. Jitter over all steps and
torques are what is lost even if that mean is the target.
"""

import numpy as np

from pmeta.rl.cheetah import FRAME_SKIP, CheetahVelocity
from pmeta.rl.config import NAMED
from pmeta.rl.outer import stack
from pmeta.rl.policy import rollout
from pmeta.rl.train import build

SCALES = (1.0, 0.3, 0.1, 0.03)
TASKS, EPISODES = 10, 2
X = 17
"""Where the torso's x stands in an observation."""


def row(scale: float) -> str:
    env = CheetahVelocity(action_scale=scale)
    _, meta = build(NAMED["cheetah-velocity-paper"], env)
    targets = np.linspace(0.1, 1.9, TASKS)[:, None]
    rngs = [np.random.default_rng(i) for i in range(TASKS)]
    episodes = rollout(env, stack([meta.w] * TASKS), targets, EPISODES, rngs)
    velocity = np.diff(episodes.obs[..., X].numpy(), axis=-1) / (FRAME_SKIP * 0.01)
    jitter = np.abs(velocity - velocity.mean(axis=-1, keepdims=True)).mean()
    torque = np.clip(scale * episodes.actions.numpy(), -1, 1)
    cost = 0.05 * (torque**2).sum(axis=(-1, -2)).mean()
    lost = jitter * env.horizon + cost
    cells = (f"{scale:g}", f"{episodes.returns().mean():.0f}", f"{cost:.1f}", f"{jitter:.2f}")
    return f"| {' | '.join(cells)} | {lost:.0f} |"


def main() -> None:
    print("| action scale | return | torques | jitter, m/s | lost to the noise |")
    print("|---|---|---|---|---|")
    for scale in SCALES:
        print(row(scale))


if __name__ == "__main__":
    main()
