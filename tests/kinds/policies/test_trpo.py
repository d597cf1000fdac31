"""The trust-region update: Fisher product, conjugate gradient, line search."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from pmeta.base.errors import DivergedError
from pmeta.kinds.policies import outer as rl_outer
from pmeta.kinds.policies.config import RLConfig
from pmeta.kinds.policies.navigation import Navigation
from pmeta.kinds.policies.outer import (
    collect,
    differentiate,
    fisher_matrices,
    fisher_product,
    line_search,
    measure,
    outer_update,
    shifted,
    step_shares,
    theta,
)
from pmeta.kinds.policies.policy import policy_gradient
from pmeta.kinds.policies.train import build, schedule
from pmeta.kinds.policies.trpo import Query, conjugate_gradient, kl, natural_step, surrogate
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import init_meta
from pmeta.method.methods import METHODS
from pmeta.method.outer import Outer
from pmeta.network.tape import forward
from pmeta.training.workers import Group

ENV = Navigation(horizon=8, action_scale=0.1)
CONFIG = RLConfig(meta_batch=3, episodes=4, horizon=8, epochs=4)


def in_double(episodes):
    return dataclasses.replace(
        episodes,
        **{f.name: getattr(episodes, f.name).double() for f in dataclasses.fields(episodes)},
    )


def problem(name, seed=0, attention_scale=0.3):
    """A loop, a meta in float64 away from its start, and the episodes of three tasks."""
    config = dataclasses.replace(CONFIG, method=name, seed=seed)
    net, meta = build(config, ENV)
    generator = torch.Generator().manual_seed(seed)
    loop = InnerLoop(net, METHODS[name], policy_gradient)
    tasks = ENV.sample_tasks(3, np.random.default_rng(seed))
    moved = {
        n: t + attention_scale * torch.randn(t.shape, generator=generator)
        if n.startswith("attention")
        else t
        for n, t in meta.parameters().items()
    }
    meta = meta.with_parameters(moved)
    data = collect(
        ENV, loop, meta, tasks, 4, [np.random.default_rng([seed, i]) for i in range(3)], 0.99
    )
    data = dataclasses.replace(
        data,
        after=in_double(data.after),
        support=[(x.double(), y.double()) for x, y in data.support],
        query=[(x.double(), y.double()) for x, y in data.query],
    )
    return loop, meta.map(torch.Tensor.double), data


def mean_kl(loop, meta, data, old, episodes):
    """The KL divergence of the adapted policies, summed over tasks, as plain autograd sees it."""
    loop = dataclasses.replace(loop, second_order=True)
    total = torch.zeros((), dtype=torch.float64)
    for (x, y), (obs, _), mask, o in zip(
        data.support, data.query, data.after.mask, old, strict=True
    ):
        output, _ = forward(
            loop.net, loop.adapt(meta, (x[:episodes], y[:episodes])).w, obs[:episodes]
        )
        total = total + kl(o, output, step_shares(mask[:episodes]))
    return total


@pytest.mark.parametrize("name", ["maml", "anil", "boil", "maml++", "pmeta"])
@pytest.mark.parametrize("episodes", [2, 4])
def test_fisher_product_equals_double_backward_of_the_kl(name, episodes):
    loop, meta, data = problem(name)
    meta = meta.map(lambda t: t.clone().requires_grad_())
    old = []
    for (x, y), (obs, _) in zip(data.support, data.query, strict=True):
        w = dataclasses.replace(loop, second_order=True).adapt(meta, (x[:episodes], y[:episodes])).w
        output, _ = forward(loop.net, w, obs[:episodes])
        old.append(tuple(t.detach() for t in output))
    leaves = list(theta(meta).values())
    generator = torch.Generator().manual_seed(1)
    v = [torch.randn(t.shape, generator=generator, dtype=torch.float64) for t in leaves]
    g = torch.autograd.grad(
        mean_kl(loop, meta, data, old, episodes), leaves, create_graph=True, materialize_grads=True
    )
    dot = torch.stack([(a * b).sum() for a, b in zip(g, v, strict=True)]).sum()
    expected = torch.cat(
        [t.flatten() for t in torch.autograd.grad(dot, leaves, materialize_grads=True)]
    )
    product = fisher_product(
        fisher_matrices(loop, meta, data, episodes), torch.cat([t.flatten() for t in v])
    )
    assert expected.norm() > 1e-3
    torch.testing.assert_close(product, expected, atol=1e-9 * float(expected.norm()), rtol=1e-7)


def test_outer_gradient_equals_finite_differences():
    loop, meta, data = problem("pmeta")
    gradients, queries, loss = differentiate(loop, meta, data)
    assert float(loss) == pytest.approx(float(measure(loop, meta, data, queries)[0]), abs=1e-12)
    generator = torch.Generator().manual_seed(2)
    for name in ("alpha", "w/fc1.weight", "w/fc3.bias", "w/log_std"):
        direction = torch.randn(gradients[name].shape, generator=generator, dtype=torch.float64)
        eps = 1e-6
        ends = []
        for sign in (1, -1):
            moved = {**meta.parameters(), name: meta.parameters()[name] + sign * eps * direction}
            ends.append(float(measure(loop, meta.with_parameters(moved), data, queries)[0]))
        slope = float((gradients[name] * direction).sum())
        assert (ends[0] - ends[1]) / (2 * eps) == pytest.approx(slope, rel=1e-4, abs=1e-7), name


def test_second_order_term_is_in_the_gradient():
    """Dropping the derivative of the inner gradient gives another direction."""
    loop, meta, data = problem("maml")
    full, *_ = differentiate(loop, meta, data)
    first = torch.zeros_like(meta.w["fc2.weight"])
    for support, (obs, target), mask in zip(data.support, data.query, data.after.mask, strict=True):
        w = {n: t.detach().requires_grad_() for n, t in loop.adapt(meta, support).w.items()}
        output, _ = forward(loop.net, w, obs)
        query = Query(obs, target, step_shares(mask), tuple(t.detach() for t in output))
        first += torch.autograd.grad(surrogate(output, query), w["fc2.weight"])[0]
    assert (full["w/fc2.weight"] - first).norm() > 1e-2 * first.norm()


def test_kl_equals_torch_distributions_and_is_zero_at_the_same_policy():
    g = torch.Generator().manual_seed(0)
    old = (torch.randn(3, 5, 2, generator=g), torch.tensor([-0.5, 0.2]))
    new = (torch.randn(3, 5, 2, generator=g), torch.tensor([0.1, -0.3]))
    shares = step_shares(torch.ones(3, 5))
    normals = [torch.distributions.Normal(mean, log_std.exp()) for mean, log_std in (old, new)]
    expected = torch.distributions.kl_divergence(*normals).sum(-1).mean()
    torch.testing.assert_close(kl(old, new, shares), expected)
    assert float(kl(old, old, shares)) == pytest.approx(0, abs=1e-7)


def test_surrogate_and_kl_by_hand():
    """The policy gives N(1, 2^2) and N(0, 1) to the two parts of an action wherever it is; the old
    one gave N(0, 1) to both.

    pi_new / pi_old is exp(a^2 / 2 - (a - 1)^2 / 8) / 2 for the first part a of the action and 1 for
    the second, KL(old || new) is log 2 + (1 + 1) / (2 * 4) - 1 / 2 for the first and 0 for the
    second.
    """
    loop, meta, data = problem("maml")
    fixed = {"w/fc3.weight": torch.zeros(2, 100), "w/fc3.bias": torch.tensor([1.0, 0.0])}
    fixed["w/log_std"] = torch.tensor([math.log(2), 0.0])
    meta = meta.map(torch.Tensor.float)
    meta = meta.with_parameters({**meta.parameters(), **fixed})
    support = (torch.zeros(2, 2, 2), torch.zeros(2, 2, 3))  # no advantage: nothing to adapt to
    target = torch.tensor(
        [[[0.0, 7.0, 3.0], [1.0, 7.0, 5.0]], [[1.0, 7.0, -1.0], [0.0, 0.0, 0.0]]]
    )  # as in policy.sample
    shares = step_shares(torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    query = Query(torch.ones(2, 2, 2), target, shares, (torch.zeros(2, 2, 2), torch.zeros(2)))
    loss, divergence = measure(loop, meta, dataclasses.replace(data, support=[support]), [query])
    assert float(loss) == pytest.approx(
        -(3 * math.exp(-1 / 8) + 5 * math.exp(1 / 2) - math.exp(1 / 2)) / 2 / 2
    )
    assert float(divergence) == pytest.approx(math.log(2) - 1 / 4)


def test_step_shares_give_each_episode_the_same_weight():
    shares = step_shares(torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0]]))
    assert shares.tolist() == [[0.125] * 4, [0.25, 0.25, 0, 0]]


def test_conjugate_gradient_solves_and_gives_the_residual():
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    A, b = (
        A @ A.T + torch.eye(6, dtype=torch.float64),
        torch.randn(6, generator=generator, dtype=torch.float64),
    )
    x, residual = conjugate_gradient(lambda v: A @ v, b, 3)
    torch.testing.assert_close(residual, b - A @ x)
    x, _ = conjugate_gradient(lambda v: A @ v, b, 6)
    torch.testing.assert_close(x, torch.linalg.solve(A, b))


def test_natural_step_has_the_kl_it_was_asked_for():
    A, g = torch.diag(torch.tensor([1.0, 4.0])), torch.tensor([1.0, 2.0])
    step = natural_step(lambda v: A @ v, g, 0.01, 2)
    assert float(step @ A @ step) / 2 == pytest.approx(0.01)
    assert float(step @ g) < 0


def test_a_fisher_matrix_that_is_no_number_ends_in_a_clear_error():
    with pytest.raises(
        DivergedError,
        match=r"Fisher matrix must be positive along the step, got nan: the policy has diverged",
    ):
        natural_step(lambda v: v * torch.nan, torch.ones(2), 0.01, 2)


@pytest.mark.parametrize("name", list(METHODS))
def test_an_update_gains_and_keeps_to_the_trust_region(name):
    config = dataclasses.replace(CONFIG, method=name)
    loop, meta, data = problem(name)
    outer = Outer(loop, meta, schedule(config))
    _, queries, before = differentiate(loop, meta, data)
    info = outer_update(outer, data, config, Group())
    loss, divergence = (
        float(t) / 3 for t in measure(loop, outer.meta.map(torch.Tensor.detach), data, queries)
    )
    assert 0 < info["kl"] <= config.max_kl
    assert info["step"] > 0
    assert divergence == pytest.approx(info["kl"])
    assert float(before) / 3 - loss == pytest.approx(info["gain"])
    assert info["gain"] > 0
    assert torch.equal(outer.meta.alpha.detach(), meta.alpha) != METHODS[name].learn_alpha


def test_the_full_step_aims_at_its_share_of_the_trust_region(monkeypatch):
    """Half of 0.02, in the quadratic model of the KL divergence."""
    monkeypatch.setattr(rl_outer, "line_search", lambda at, config: (1.0, *at(1.0)))
    config = dataclasses.replace(CONFIG, method="maml", max_kl=0.02, aim=0.5)
    loop, meta, data = problem("maml")
    outer = Outer(loop, meta, schedule(config))
    outer_update(outer, data, config, Group())
    new, old = (
        torch.cat([t.detach().flatten() for t in theta(m).values()]) for m in (outer.meta, meta)
    )
    step = new - old
    F_step = (
        fisher_product(fisher_matrices(loop, meta, data, config.fisher_episodes), step) / 3
        + config.cg_damping * step
    )
    assert float(step @ F_step) / 2 == pytest.approx(0.01)


def test_where_no_fraction_of_the_step_is_good_only_the_step_sizes_move(monkeypatch):
    monkeypatch.setattr(rl_outer, "line_search", lambda at, config: (0.0, *at(0.0)))
    config = dataclasses.replace(CONFIG, method="maml++")
    loop, meta, data = problem("maml++")
    outer = Outer(loop, meta, schedule(config))
    info = outer_update(outer, data, config, Group())
    assert info["step"] == 0
    for name, t in outer.meta.parameters().items():
        assert torch.equal(t.detach(), meta.parameters()[name]) == (name != "alpha")


def test_a_diverged_policy_ends_in_a_clear_error_and_changes_nothing():
    config = dataclasses.replace(CONFIG, method="maml++")
    loop, meta, data = problem("maml++")
    outer = Outer(loop, meta, schedule(config))
    x, y = data.query[1]
    data.query[1] = (x, torch.full_like(y, torch.nan))
    with pytest.raises(
        DivergedError,
        match="outer gradient must be finite, got NaN or infinity: the policy has diverged",
    ):
        outer_update(outer, data, config, Group())
    assert all(
        torch.equal(t.detach(), meta.parameters()[n]) for n, t in outer.meta.parameters().items()
    )


def test_shifted_adds_the_flat_step_in_the_order_of_theta():
    net, meta = build(CONFIG, ENV)
    meta = init_meta(net, METHODS["maml"], 1, 0.1, torch.Generator())
    sizes = [t.numel() for t in theta(meta).values()]
    new = shifted(meta, torch.arange(sum(sizes), dtype=torch.float32))
    flat = torch.cat(
        [
            (t - old).flatten()
            for t, old in zip(theta(new).values(), theta(meta).values(), strict=True)
        ]
    )
    torch.testing.assert_close(
        flat, torch.arange(sum(sizes), dtype=torch.float32), atol=1e-3, rtol=1e-5
    )
    assert torch.equal(new.alpha, meta.alpha)


@pytest.mark.parametrize(
    ("kl_of_full", "gain_from", "tried", "taken"),
    [
        (0.007, 0.0, [1.0], 1.0),
        (0.0125, 0.0, [1.0, 0.8], 0.8),
        (0.0007, 0.0, [1.0, 10**0.5], 10**0.5),  # far inside: lengthened once, to 0.7 of the bound
        (0.0, 0.0, [1.0, 10.0], 10.0),
        (0.007, 0.7, [1.0, 0.8, 0.64], 0.64),  # the surrogate rises at fractions above 0.7
        (0.007, 1e-9, [1.0, 0.8, 0.64, 0.512, 0.0], 0.0),
    ],
)
def test_line_search_by_hand(kl_of_full, gain_from, tried, taken):
    """With a KL divergence that grows with the square of the step."""
    asked = []

    def at(fraction):
        asked.append(fraction)
        return (1.0 if not gain_from or fraction <= gain_from else -1.0), kl_of_full * fraction**2

    fraction, _, divergence = line_search(at, dataclasses.replace(CONFIG, backtracks=4))
    assert asked == pytest.approx(tried)
    assert fraction == pytest.approx(taken)
    assert divergence <= CONFIG.max_kl
