"""Trust-region policy optimisation in the outer loop (Sec. 4.3): a natural-gradient step.

With J = d w^i / d theta, the derivative of the inner loop, and F_i the Fisher matrix of the adapted
policy, the Hessian of the KL divergence at the current theta is F = mean_i J^T F_i J. Nothing is
dropped: J holds the second-order term.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pmeta.base.errors import DivergedError
from pmeta.kinds.policies.policy import log_prob

Distribution = tuple[Tensor, Tensor]
"""Mean (E, T, act) and log standard deviation (act,) of the actions."""


@dataclass(frozen=True)
class Query:
    """The episodes after adaptation, run by the policy `old`."""

    obs: Tensor  # (E, T, obs)
    target: Tensor  # (E, T, act + 1), as in policy.sample
    steps: Tensor  # (E, T), the share of each step in a mean over episodes; sums to 1
    old: Distribution


def surrogate(new: Distribution, query: Query) -> Tensor:
    """Minus the mean of pi_new / pi_old * A, over the steps of each episode and then over
    episodes."""
    actions, weight = query.target[..., :-1], query.target[..., -1]
    ratio = torch.exp(log_prob(*new, actions) - log_prob(*query.old, actions))
    return -(ratio * weight).sum() / len(weight)


def kl(old: Distribution, new: Distribution, steps: Tensor) -> Tensor:
    """KL(old || new) of Gaussians, averaged over steps."""
    (mean_0, log_0), (mean_1, log_1) = old, new
    per_action = (
        log_1
        - log_0
        + (torch.exp(2 * log_0) + (mean_0 - mean_1) ** 2) * torch.exp(-2 * log_1) / 2
        - 0.5
    )
    return (per_action.sum(dim=-1) * steps).sum()


class Fisher:
    """v -> J^T F_i J v for one task, from the graph of the adapted policy's output over theta.

    J v is had from reverse mode alone: J^T u is linear in u, and the derivative of <J^T u, v> over
    u is J v. Its graph is built once and serves every step of conjugate gradient.
    """

    def __init__(self, output: Distribution, steps: Tensor, theta: list[Tensor]):
        self.output, self.theta = output, theta
        mean, log_std = (t.detach() for t in output)
        self.metric = (
            steps[..., None] * torch.exp(-2 * log_std).expand_as(mean),
            2 * steps.sum() * torch.ones_like(log_std),
        )
        self.u = tuple(torch.zeros_like(t, requires_grad=True) for t in output)
        self.transposed = self._vjp(self.u, create_graph=True)

    def _vjp(self, u: tuple[Tensor, ...], create_graph: bool = False) -> list[Tensor]:
        g = torch.autograd.grad(
            self.output,
            self.theta,
            u,
            retain_graph=True,
            create_graph=create_graph,
            materialize_grads=True,
        )
        return list(g)

    def __call__(self, v: list[Tensor]) -> list[Tensor]:
        used = [(t, v_t) for t, v_t in zip(self.transposed, v, strict=True) if t.requires_grad]
        jv = torch.autograd.grad(
            [t for t, _ in used], self.u, [v_t for _, v_t in used], retain_graph=True
        )
        return self._vjp(tuple(m * t for m, t in zip(self.metric, jv, strict=True)))


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, iterations: int
) -> tuple[Tensor, Tensor]:
    """Solve product(x) = b for a symmetric positive definite product: (x, the residual b -
    product(x)).

    >>> A = torch.tensor([[4.0, 1.0], [1.0, 3.0]])
    >>> x, residual = conjugate_gradient(lambda v: A @ v, torch.tensor([1.0, 2.0]), iterations=2)
    >>> x
    tensor([0.0909, 0.6364])
    """
    x, r, p = torch.zeros_like(b), b.clone(), b.clone()
    rr = r @ r
    for _ in range(iterations):
        if rr < 1e-10 * (b @ b):
            break
        Ap = product(p)
        step = rr / (p @ Ap)
        x, r = x + step * p, r - step * Ap
        rr, rr_old = r @ r, rr
        p = r + rr / rr_old * p
    return x, r


def natural_step(
    product: Callable[[Tensor], Tensor], gradient: Tensor, max_kl: float, iterations: int
) -> Tensor:
    """The step along -F^-1 g whose quadratic model of the KL divergence is max_kl."""
    direction, residual = conjugate_gradient(product, gradient, iterations)
    curvature = float(direction @ (gradient - residual))  # x^T F x
    if not (math.isfinite(curvature) and curvature > 0):
        raise DivergedError(
            f"the Fisher matrix must be positive along the step, got {curvature}: the policy has "
            "diverged. Go back to the last checkpoint and lower the trust region (max_kl) or "
            "raise the damping (cg_damping)."
        )
    return -math.sqrt(2 * max_kl / curvature) * direction
