"""Gaussian policy, rollouts and the vanilla policy gradient (Sec. 4.3): an episode is a sample."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from pmeta.base.errors import DivergedError
from pmeta.kinds.policies.cheetah import CheetahVelocity
from pmeta.kinds.policies.navigation import Array, Navigation
from pmeta.network.layers import Weights

Env = Navigation | CheetahVelocity
"""They step N episodes together, one a row, in plain values."""


def forward_stacked(w: Weights, obs: Tensor) -> tuple[Tensor, Tensor]:
    """MLPPolicy's forward for weights stacked over I tasks, obs (I, E, obs): four times faster than
    vmap at this size."""
    h = torch.baddbmm(w["fc1.bias"][:, None], obs, w["fc1.weight"].mT).relu_()
    h = torch.baddbmm(w["fc2.bias"][:, None], h, w["fc2.weight"].mT).relu_()
    return torch.baddbmm(w["fc3.bias"][:, None], h, w["fc3.weight"].mT), w["log_std"]


def initialise(policy: nn.Module, generator: torch.Generator) -> None:
    """Xavier-uniform weights and zero biases, as in MAML's own experiments."""
    for module in policy.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)
            nn.init.zeros_(module.bias)


@dataclass(frozen=True)
class Episodes:
    """E episodes of T steps for each of I tasks. After an episode's end, all is zero."""

    obs: Tensor  # (I, E, T, obs)
    actions: Tensor  # (I, E, T, act), unclipped
    rewards: Tensor  # (I, E, T), float64
    mask: Tensor  # (I, E, T), 1 for a step that was taken

    def returns(self) -> Tensor:
        """Undiscounted sum of rewards, (I, E)."""
        return self.rewards.sum(dim=-1)


def rollout(env: Env, w: Weights, tasks: Array, episodes: int, rngs: list) -> Episodes:
    """Run `episodes` episodes of every task with its own weights.

    Args:
        w: weights stacked over the tasks, each (I, ...).
        tasks: (I, ...), one row a task.
        rngs: a numpy generator for each task: its episodes do not depend on the tasks beside it.
    """
    n, T, act = len(tasks), env.horizon, env.act_size
    rows = np.repeat(tasks, episodes, axis=0)  # (I * E, ...)
    state = np.concatenate(
        [env.reset(rows[i * episodes : (i + 1) * episodes], rngs[i]) for i in range(n)]
    )
    std = w["log_std"].exp()[:, None]  # (I, 1, act)
    noise = np.stack([rng.standard_normal((T, episodes, act), dtype=np.float32) for rng in rngs], 1)
    # step by step, each in one piece of memory; in the order of Episodes only at the end
    actions = torch.from_numpy(noise).mul_(std)  # (T, I, E, act): first the noise, then all of it
    obs = torch.zeros(T, n, episodes, env.obs_size)
    rewards = torch.zeros(T, n, episodes, dtype=torch.float64)
    live = np.zeros((T, n * episodes), dtype=bool)
    alive = np.ones(n * episodes, dtype=bool)
    with torch.no_grad():
        for t in range(T):
            obs[t] = torch.from_numpy(env.observe(state)).view(n, episodes, -1)
            action = actions[t].add_(forward_stacked(w, obs[t])[0])
            check_finite(action, t)
            state, reward, done = env.step(
                state, rows, action.view(n * episodes, act).double().numpy()
            )
            rewards[t] = torch.from_numpy(reward).view(n, episodes)
            live[t] = alive
            alive &= ~done
            if not alive.any():
                break
    mask = torch.from_numpy(live).view(T, n, episodes).float()

    def ordered(steps: Tensor) -> Tensor:  # (T, I, E, ...) -> (I, E, T, ...)
        return steps.movedim(0, 2).contiguous()

    return Episodes(
        ordered(obs * mask[..., None]),
        ordered(actions * mask[..., None]),
        ordered(rewards * mask),
        ordered(mask),
    )


def check_finite(action: Tensor, t: int) -> None:
    if not torch.isfinite(action).all():
        tasks = (~torch.isfinite(action)).flatten(1).any(dim=1).nonzero().flatten().tolist()
        raise DivergedError(
            f"actions must be finite, but the policy gave NaN or infinity at step {t} in task "
            f"{tasks[0]} of {len(action)}: it has diverged. Go back to the last checkpoint and "
            "lower the step size or the trust region (max_kl)."
        )


def features(episodes: Episodes) -> Tensor:
    """What the linear baseline sees of a step: obs, obs^2, t, t^2, t^3 and 1, in float64; (..., E,
    T, 2 obs + 4)."""
    obs = episodes.obs.double()
    t = (torch.arange(obs.shape[-2], dtype=torch.float64) / 100)[:, None].expand(*obs.shape[:-1], 1)
    return (
        torch.cat([obs, obs**2, t, t**2, t**3, torch.ones_like(t)], dim=-1)
        * episodes.mask.double()[..., None]
    )


def discounted(rewards: Tensor, discount: float) -> Tensor:
    """The sum of later rewards, discounted to each step: R_t = r_t + discount * R_{t+1}."""
    by_step = rewards.movedim(-1, 0).clone()
    for t in reversed(range(len(by_step) - 1)):
        by_step[t] += discount * by_step[t + 1]
    return by_step.movedim(0, -1)


def advantages(episodes: Episodes, discount: float, ridge: float = 1e-5) -> Tensor:
    """Discounted returns minus a linear baseline fitted to each task's own episodes, then mean 0
    and deviation 1; (I, E, T).

    The fit is ridge regression by normal equations in float64: their condition number is 2e13 on
    the Half-Cheetah.
    """
    mask = episodes.mask.double()
    R = discounted(episodes.rewards, discount) * mask
    phi = features(episodes)
    A = phi.flatten(1, 2)  # (I, E * T, F)
    gram = A.mT @ A + ridge * torch.eye(A.shape[-1], dtype=torch.float64)
    beta = torch.linalg.solve(gram, A.mT @ R.flatten(1)[..., None])  # (I, F, 1)
    adv = (R - (A @ beta).view_as(R)) * mask
    n = mask.sum(dim=(1, 2), keepdim=True)
    mean = adv.sum(dim=(1, 2), keepdim=True) / n
    std = (((adv - mean) ** 2 * mask).sum(dim=(1, 2), keepdim=True) / n).sqrt()
    return (adv - mean) / (std + 1e-8) * mask


def log_prob(mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
    """log N(a; mean, std^2) summed over the action's components, of the unclipped action."""
    z = (actions - mean) * torch.exp(-log_std)
    return -(0.5 * z**2 + log_std + 0.5 * math.log(2 * math.pi)).sum(dim=-1)


def sample(episodes: Episodes, discount: float) -> list[tuple[Tensor, Tensor]]:
    """Each task's episodes as the support set (x, y) of an inner step: x (E, T, obs), y (E, T, act
    + 1).

    y holds the action and A_t / (number of steps of the episode), so that a loss of -sum_t y log pi
    is the episode's mean.
    """
    weight = advantages(episodes, discount) / episodes.mask.sum(dim=-1, keepdim=True)
    y = torch.cat([episodes.actions, weight.to(episodes.actions.dtype)[..., None]], dim=-1)
    return list(zip(episodes.obs, y, strict=True))


def policy_gradient(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """The loss of the inner loop, one number an episode, (E,): minus the mean over steps of A_t log
    pi(a_t | s_t)."""
    mean, log_std = output
    return -(log_prob(mean, log_std, target[..., :-1]) * target[..., -1]).sum(dim=-1)
