"""One outer update of policies (Alg. 2 with TRPO, Sec. 4.3)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from pmeta.base.errors import DivergedError
from pmeta.kinds.policies.config import RLConfig
from pmeta.kinds.policies.policy import Array, Env, Episodes, rollout, sample
from pmeta.kinds.policies.trpo import Fisher, Query, kl, natural_step, surrogate
from pmeta.method.inner import Adapted, InnerLoop
from pmeta.method.learned import Meta
from pmeta.method.meta_gradient import MetaGradient
from pmeta.method.outer import Outer
from pmeta.network.layers import Weights
from pmeta.network.tape import forward
from pmeta.training.workers import Group

Support = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Batch:
    """The episodes of I tasks before and after adaptation."""

    tasks: Array
    before: Episodes
    after: Episodes
    support: list[Support]
    query: list[Support]
    adapted: list[Adapted]

    def returns(self) -> tuple[Tensor, Tensor]:
        """Mean return of each task before and after adaptation, (I,) each."""
        return self.before.returns().mean(dim=1), self.after.returns().mean(dim=1)


def stack(weights: list[Weights]) -> Weights:
    return {name: torch.stack([w[name] for w in weights]) for name in weights[0]}


def collect(
    env: Env,
    loop: InnerLoop,
    meta: Meta,
    tasks: Array,
    episodes: int,
    rngs: list[np.random.Generator],
    discount: float,
) -> Batch:
    """Run `episodes` episodes of every task, adapt to each task from its own, and run as many
    again."""
    before = rollout(env, stack([meta.w] * len(tasks)), tasks, episodes, rngs)
    support = sample(before, discount)
    adapted = [loop.adapt(meta, s) for s in support]
    after = rollout(env, stack([a.w for a in adapted]), tasks, episodes, rngs)
    return Batch(tasks, before, after, support, sample(after, discount), adapted)


def outer_update(outer: Outer, data: Batch, config: RLConfig, group: Group) -> dict[str, float]:
    """Alg. 2 with TRPO: a natural-gradient step on w and w^atten together, and Eq. 9 with Adam on
    the step sizes.

    The step sizes move first. The line search then takes the largest fraction of the natural step
    that, with the new step sizes, lowers the surrogate and keeps to the trust region; 0 when there
    is none. Each process holds its own tasks; all of them take the same step.
    """
    mean = partial(mean_of_tasks, group, config.meta_batch)
    gradients, queries, loss = differentiate(outer.loop, outer.meta, data)
    flat = mean(torch.cat([loss[None], *(g.flatten() for g in gradients.values())]))
    check_gradient(flat)
    n_alpha = outer.meta.alpha.numel()
    loss_before, g_alpha, g_theta = flat.split([1, n_alpha, len(flat) - n_alpha - 1])
    fishers = fisher_matrices(outer.loop, outer.meta, data, config.fisher_episodes)
    curvature = partial(damped_product, fishers, mean, config.cg_damping)
    step = natural_step(curvature, g_theta, config.aim * config.max_kl, config.cg_iterations)
    move_step_sizes(outer, g_alpha, float(loss_before))
    start = outer.meta.map(Tensor.detach)

    def gain_at(fraction: float) -> tuple[float, float]:
        measured = measure(outer.loop, shifted(start, fraction * step), data, queries)
        loss_after, divergence = mean(torch.stack(measured)).tolist()
        return float(loss_before) - loss_after, divergence

    fraction, gain, divergence = line_search(gain_at, config)
    new = shifted(start, fraction * step).parameters()
    with torch.no_grad():
        for name, t in outer.meta.parameters().items():
            t.copy_(new[name])
    return {"kl": divergence, "gain": gain, "step": fraction}


def mean_of_tasks(group: Group, tasks: int, own: Tensor) -> Tensor:
    """The mean over all tasks, from the sum over those of this process."""
    return group.add({"": own})[""] / tasks


def damped_product(
    fishers: list[Fisher], mean: Callable[[Tensor], Tensor], damping: float, v: Tensor
) -> Tensor:
    """The mean Fisher matrix, with `damping` on its diagonal, times v."""
    return mean(fisher_product(fishers, v)) + damping * v


def move_step_sizes(outer: Outer, g_alpha: Tensor, loss: float) -> None:
    """Eq. 9 with Adam on the step sizes alone: it leaves what has no gradient."""
    still = {name: torch.zeros_like(t) for name, t in outer.meta.parameters().items()}
    moved = {**still, "alpha": g_alpha.view_as(outer.meta.alpha)}
    outer.update(MetaGradient(moved, loss, math.nan, 1))


def line_search(
    at: Callable[[float], tuple[float, float]], config: RLConfig
) -> tuple[float, float, float]:
    """The fraction of the natural step to take, its gain and its KL divergence, from `at`: fraction
    -> (gain, KL).

    A Fisher matrix from a few episodes can be too large and its step too short: a first try that
    stays far inside the trust region is lengthened once, to the KL divergence that was aimed at.
    Then 0.8 of the step at each further try, and 0 at last.
    """
    fraction = 1.0
    for j in range(config.backtracks):
        gain, divergence = at(fraction)
        if j == 0 and divergence < config.max_kl / 3:
            fraction = min(10.0, math.sqrt(config.aim * config.max_kl / max(divergence, 1e-12)))
        elif divergence <= config.max_kl and gain > 0:
            return fraction, gain, divergence
        else:
            fraction *= 0.8
    return 0.0, *at(0.0)


def check_gradient(flat: Tensor) -> None:
    if not torch.isfinite(flat).all():
        raise DivergedError(
            "the outer gradient must be finite, got NaN or infinity: the policy has diverged. Go "
            "back to the last checkpoint and lower the inner step size (alpha_0) or the trust "
            "region (max_kl)."
        )


def theta(meta: Meta) -> dict[str, Tensor]:
    """What the natural-gradient step moves: w and w^atten."""
    return {name: t for name, t in meta.parameters().items() if name != "alpha"}


def shifted(meta: Meta, step: Tensor) -> Meta:
    """theta + step, where step is flat."""
    old = theta(meta)
    parts = torch.split(step, [t.numel() for t in old.values()])
    new = {name: t + s.view_as(t) for (name, t), s in zip(old.items(), parts, strict=True)}
    return meta.with_parameters({**new, "alpha": meta.alpha})


def differentiate(
    loop: InnerLoop, meta: Meta, data: Batch
) -> tuple[dict[str, Tensor], list[Query], Tensor]:
    """The gradient of the surrogate over alpha and theta, second-order term and all; the queries;
    the surrogate. Sums."""
    loop = replace(loop, second_order=True)
    meta = meta.map(lambda t: t.detach().clone().requires_grad_())
    leaves = {"alpha": meta.alpha, **theta(meta)}
    total = {name: torch.zeros_like(t) for name, t in leaves.items()}
    loss, queries = torch.zeros((), dtype=meta.alpha.dtype), []
    for i, (support, (obs, target)) in enumerate(zip(data.support, data.query, strict=True)):
        output, _ = forward(loop.net, loop.adapt(meta, support).w, obs)
        old = (output[0].detach(), output[1].detach())
        queries.append(Query(obs, target, step_shares(data.after.mask[i]), old))
        part = surrogate(output, queries[-1])
        g = torch.autograd.grad(part, list(leaves.values()), materialize_grads=True)
        for sum_, g_t in zip(total.values(), g, strict=True):
            sum_ += g_t
        loss += part.detach()
    return total, queries, loss


def step_shares(mask: Tensor) -> Tensor:
    """The share of each step in a mean over episodes of means over steps, (E, T)."""
    return mask / mask.sum(dim=1, keepdim=True) / len(mask)


def fisher_matrices(loop: InnerLoop, meta: Meta, data: Batch, episodes: int) -> list[Fisher]:
    """J^T F_i J of every task over theta, from its first `episodes` episodes before and after
    adaptation."""
    loop = replace(loop, second_order=True)
    meta = meta.map(lambda t: t.detach().clone().requires_grad_())
    out = []
    for (x, y), (obs, _), mask in zip(data.support, data.query, data.after.mask, strict=True):
        output, _ = forward(
            loop.net, loop.adapt(meta, (x[:episodes], y[:episodes])).w, obs[:episodes]
        )
        out.append(Fisher(output, step_shares(mask[:episodes]), list(theta(meta).values())))
    return out


def fisher_product(fishers: list[Fisher], v: Tensor) -> Tensor:
    """The sum over tasks of J^T F_i J v, flat."""
    parts = torch.split(v, [t.numel() for t in fishers[0].theta])
    shaped = [part.view_as(t) for part, t in zip(parts, fishers[0].theta, strict=True)]
    products = [torch.cat([t.flatten() for t in fisher(shaped)]) for fisher in fishers]
    return torch.stack(products).sum(dim=0)


def measure(
    loop: InnerLoop, meta: Meta, data: Batch, queries: list[Query]
) -> tuple[Tensor, Tensor]:
    """Surrogate and KL divergence, sums over the tasks, after adapting again from the same
    episodes."""
    loss, divergence = [], []
    for support, query in zip(data.support, queries, strict=True):
        w = loop.adapt(meta, support).w
        with torch.no_grad():
            new, _ = forward(loop.net, w, query.obs)
            loss.append(surrogate(new, query))
            divergence.append(kl(query.old, new, query.steps))
    return torch.stack(loss).sum(), torch.stack(divergence).sum()
