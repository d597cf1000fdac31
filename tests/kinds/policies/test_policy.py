"""Rollouts, baseline and the vanilla policy gradient."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from pmeta.kinds.policies.navigation import Navigation
from pmeta.kinds.policies.outer import stack
from pmeta.kinds.policies.policy import (
    DivergedError,
    Episodes,
    advantages,
    discounted,
    features,
    forward_stacked,
    initialise,
    log_prob,
    policy_gradient,
    rollout,
    sample,
)
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import init_meta
from pmeta.method.methods import METHODS
from pmeta.network.backbones import MLPPolicy
from pmeta.network.take_in import take_in


def policies(n, seed=0):
    """n policies for navigation that differ, as weights."""
    generator = torch.Generator().manual_seed(seed)
    out = []
    for _ in range(n):
        policy = MLPPolicy(2, 2)
        initialise(policy, generator)
        out.append({name: p.detach() for name, p in policy.named_parameters()})
    return out


def generators(*numbers):
    return [np.random.default_rng(i) for i in numbers]


def episodes(env=None, tasks=2, seed=0):
    env = env or Navigation(horizon=12)
    goals = env.sample_tasks(tasks, np.random.default_rng(seed))
    return rollout(env, stack(policies(tasks, seed)), goals, 5, generators(*range(tasks)))


def test_stacked_forward_equals_the_policy():
    weights = policies(3)
    obs = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(1))
    mean, log_std = forward_stacked(stack(weights), obs)
    for i, w in enumerate(weights):
        m, s = torch.func.functional_call(MLPPolicy(2, 2), w, (obs[i],))
        torch.testing.assert_close(mean[i], m)
        torch.testing.assert_close(log_std[i], s)


def test_rollout_replays_to_the_same_rewards():
    env = Navigation(horizon=30)
    goals = np.array([[0.3, 0.1], [-0.2, 0.4]])
    out = rollout(env, stack(policies(2)), goals, 4, generators(0, 1))
    for i in range(2):
        state = env.reset(np.repeat(goals[i : i + 1], 4, axis=0), np.random.default_rng(0))
        alive = np.ones(4, dtype=bool)
        for t in range(30):
            np.testing.assert_allclose(out.obs[i, alive, t], state[alive], atol=1e-6)
            state, reward, done = env.step(
                state, np.repeat(goals[i : i + 1], 4, 0), out.actions[i, :, t].double().numpy()
            )
            np.testing.assert_allclose(out.rewards[i, :, t], reward * alive)
            assert out.mask[i, :, t].bool().tolist() == alive.tolist()
            alive &= ~done


def test_after_the_goal_everything_is_zero():
    w = stack(policies(1))
    w = {name: torch.zeros_like(t) for name, t in w.items()} | {
        "log_std": torch.full((1, 2), -20.0)
    }
    w["fc3.bias"] = torch.tensor([[1.0, 0.0]])
    out = rollout(Navigation(horizon=6), w, np.array([[0.3, 0.0]]), 1, generators(0))
    assert out.mask[0, 0].tolist() == [1, 1, 1, 0, 0, 0]
    assert out.rewards[0, 0].tolist() == pytest.approx([-0.2, -0.1, 0, 0, 0, 0], abs=1e-7)
    assert not out.actions[0, 0, 3:].any()
    assert out.returns()[0, 0] == pytest.approx(-0.3, abs=1e-7)


def test_same_seeds_same_episodes_whichever_tasks_run_beside():
    env, weights = Navigation(horizon=15), policies(3)
    goals = env.sample_tasks(3, np.random.default_rng(0))
    together = rollout(env, stack(weights), goals, 4, generators(10, 11, 12))
    again = rollout(env, stack(weights), goals, 4, generators(10, 11, 12))
    assert torch.equal(together.actions, again.actions)
    alone = rollout(env, stack(weights[1:2]), goals[1:2], 4, generators(11))
    torch.testing.assert_close(alone.actions[0], together.actions[1])
    assert not torch.equal(together.actions[0], together.actions[1])


def test_nan_actions_end_in_a_clear_error():
    weights = policies(3)
    weights[1]["fc2.weight"] = torch.full_like(weights[1]["fc2.weight"], math.nan)
    message = (
        r"actions must be finite, .* at step 0 in task 1 of 3: it has diverged\. "
        "Go back to the last checkpoint"
    )
    with pytest.raises(DivergedError, match=message):
        rollout(
            Navigation(horizon=5), stack(weights), np.zeros((3, 2)) + 0.3, 2, generators(0, 1, 2)
        )


def test_discounted_by_hand():
    rewards = torch.tensor([[[1.0, 2.0, 4.0]]])  # one episode of one task
    assert discounted(rewards, 0.5).tolist() == [[[1 + 0.5 * 2 + 0.25 * 4, 2 + 0.5 * 4, 4.0]]]
    assert rewards.tolist() == [[[1.0, 2.0, 4.0]]]  # the caller's own are left alone


def test_log_prob_equals_torch_distributions():
    g = torch.Generator().manual_seed(0)
    mean, actions, log_std = (
        torch.randn(4, 3, 2, generator=g),
        torch.randn(4, 3, 2, generator=g),
        torch.tensor([-1.0, 0.5]),
    )
    expected = torch.distributions.Normal(mean, log_std.exp()).log_prob(actions).sum(-1)
    torch.testing.assert_close(log_prob(mean, log_std, actions), expected)


def test_features_by_hand():
    """obs, obs^2, t, t^2, t^3 and 1, with t in hundreds of steps; zero after the end."""
    obs = torch.tensor([2.0, 3.0, 5.0, 0.0]).view(1, 1, 4, 1)
    mask = torch.tensor([[[1.0, 1.0, 1.0, 0.0]]])
    expected = [
        [2, 4, 0, 0, 0, 1],
        [3, 9, 0.01, 1e-4, 1e-6, 1],
        [5, 25, 0.02, 4e-4, 8e-6, 1],
        [0] * 6,
    ]
    found = features(Episodes(obs, torch.zeros(1, 1, 4, 1), torch.zeros(1, 1, 4), mask))
    torch.testing.assert_close(
        found, torch.tensor([[expected]], dtype=torch.float64), atol=1e-15, rtol=1e-12
    )


def test_baseline_equals_least_squares_in_float64():
    out = episodes()
    phi, R = features(out).flatten(1, 2), discounted(out.rewards, 0.9).flatten(1)
    fit = torch.linalg.lstsq(phi, R[..., None], driver="gelsd").solution
    left = R - (phi @ fit)[..., 0]
    expected = (left - left.mean(1, keepdim=True)) / left.std(1, correction=0, keepdim=True)
    torch.testing.assert_close(
        advantages(out, 0.9, ridge=1e-12).flatten(1), expected, atol=1e-5, rtol=1e-5
    )


def test_advantages_have_mean_0_and_deviation_1_over_the_steps_that_were_taken():
    out = episodes()
    mask = out.mask.clone()
    mask[0, 1, 7:] = 0
    out = Episodes(
        out.obs * mask[..., None], out.actions * mask[..., None], out.rewards * mask, mask
    )
    adv = advantages(out, 0.99)
    for i in range(2):
        taken = adv[i][mask[i].bool()]
        assert float(taken.mean()) == pytest.approx(0, abs=1e-9)
        assert float(taken.std(correction=0)) == pytest.approx(1, abs=1e-6)
        assert not adv[i][~mask[i].bool()].any()


class LinearPolicy(nn.Module):
    """mean = w s + b, small enough to differentiate by hand."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(1, 1)
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.fc(x), self.log_std


def test_policy_gradient_by_hand():
    """One episode of two steps, w = 2, b = 1, sigma = 1: d/dw is the mean of -A (a - mu) s,
    d/dlog(sigma) that of -A ((a - mu)^2 - 1).

    s = 1, a = 4, A = 3: mu = 3, a - mu = 1;   s = 2, a = 3, A = -1: mu = 5, a - mu = -2.
    """
    net = take_in(LinearPolicy(), torch.zeros(1, 2, 1), extra=("log_std",))
    loop = InnerLoop(net, METHODS["maml"], policy_gradient)
    meta = init_meta(net, METHODS["maml"], 1, 0.5, torch.Generator())
    meta = meta.with_parameters(
        {
            **meta.parameters(),
            "w/fc.weight": torch.tensor([[2.0]]),
            "w/fc.bias": torch.tensor([1.0]),
        }
    )
    x = torch.tensor([[[1.0], [2.0]]])
    y = torch.tensor(
        [[[4.0, 3.0 / 2], [3.0, -1.0 / 2]]]
    )  # the action, and A over the number of steps
    w = loop.adapt(meta, (x, y)).w
    assert w["fc.weight"].item() == pytest.approx(2 - 0.5 * (-3 * 1 * 1 + 1 * -2 * 2) / 2)
    assert w["fc.bias"].item() == pytest.approx(1 - 0.5 * (-3 * 1 + 1 * -2) / 2)
    assert w["log_std"].item() == pytest.approx(0 - 0.5 * (-3 * 0 + 1 * 3) / 2)


def test_sample_weighs_each_episode_by_its_own_length():
    out = episodes()
    mask = out.mask.clone()
    mask[0, 1, 3:] = 0
    out = Episodes(
        out.obs * mask[..., None], out.actions * mask[..., None], out.rewards * mask, mask
    )
    adv = advantages(out, 0.99)
    _, y = sample(out, 0.99)[0]
    torch.testing.assert_close(y[1, :3, -1].double(), adv[0, 1, :3] / 3, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(y[0, :, -1].double(), adv[0, 0] / 12, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["maml", "anil", "boil", "maml++", "pmeta-lr"])
def test_accumulating_over_20_episodes_equals_the_batch(name):
    """On the device an episode is a sample: 20 backward passes, one at a time, give the update of
    all at once."""
    policy = MLPPolicy(2, 2)
    initialise(policy, torch.Generator().manual_seed(0))
    net = take_in(policy, torch.zeros(1, 12, 2), extra=("log_std",))
    meta = init_meta(net, METHODS[name], 1, 0.1, torch.Generator().manual_seed(1)).map(
        torch.Tensor.double
    )
    env = Navigation(horizon=12)
    out = rollout(env, stack(policies(1)), np.array([[0.3, -0.1]]), 20, generators(0))
    x, y = (t.double() for t in sample(out, 0.99)[0])
    whole = InnerLoop(net, METHODS[name], policy_gradient).adapt(meta, (x, y)).w
    one_by_one = (
        InnerLoop(net, METHODS[name], policy_gradient, batch=1, vectorised=False)
        .adapt(meta, (x, y))
        .w
    )
    assert any(not torch.equal(whole[n], meta.w[n]) for n in whole)
    for n in whole:
        torch.testing.assert_close(one_by_one[n], whole[n], atol=1e-12, rtol=1e-9)
