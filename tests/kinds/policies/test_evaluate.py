"""Returns on unseen tasks, by hand."""

import dataclasses
import math

import pytest
import torch

from pmeta.kinds.policies.config import RLConfig
from pmeta.kinds.policies.evaluate import TaskReturn, summarise, task_returns
from pmeta.kinds.policies.policy import policy_gradient
from pmeta.kinds.policies.train import TEST, build, make_env, run_tasks
from pmeta.method.inner import InnerLoop


def result(before, after, half, peak, exact, macs, ratio):
    return TaskReturn(before, after, half, peak, exact, macs, torch.tensor([[ratio, 1.0]]))


def test_summary_by_hand():
    """Four tasks, of returns whose standard deviations are 2, 4 and 1."""
    summary = summarise(
        [
            result(-9, -8, -3.5, 1e6, 2e6, 1e9, 0.5),
            result(-9, -8, -3.5, 3e6, 4e6, 2e9, 0.7),
            result(-9, -8, -3.5, 2e6, 9e6, 3e9, 0.9),
            result(-5, 0, -1.5, 2e6, 5e6, 2e9, 0.7),
        ]
    )
    assert summary.tasks == 4
    assert (summary.before, summary.after, summary.first_half) == (-8, -6, -3)
    spread = (summary.before_ci95, summary.after_ci95, summary.first_half_ci95)
    assert spread == pytest.approx(
        (1.96 * 2 / 2, 1.96 * 4 / 2, 1.96 * 1 / 2)
    )  # over the root of 4 tasks
    assert summary.after_median == -8
    assert (summary.memory_mb, summary.worst_memory_mb) == pytest.approx((8, 12))
    assert (summary.exact_memory_mb, summary.worst_exact_memory_mb) == pytest.approx((20, 36))
    assert (summary.gmac, summary.worst_gmac) == pytest.approx((2, 3))
    assert summary.update_ratios == [pytest.approx([0.7, 1.0])]
    assert math.isnan(
        summarise([result(-1, -1, -1, 1, 1, 1, 1)]).after_ci95
    )  # one task says nothing of the spread


def test_returns_of_a_task_by_hand():
    """Two episodes of four steps: the mean of their sums, and of the sums over their first two
    steps."""
    config = RLConfig(episodes=2, horizon=4)
    env = make_env(config)
    net, meta = build(config, env)
    loop = InnerLoop(net, config.method_row(), policy_gradient, batch=1)
    data = run_tasks(config, env, loop, meta, (TEST, 0), [0])
    before = torch.tensor([[[-1.0, -1, -1, -1], [-3, -3, -3, -3]]])
    after = torch.tensor([[[-1.0, -2, -4, -8], [-3, -4, -10, 0]]])
    data = dataclasses.replace(
        data,
        before=dataclasses.replace(data.before, rewards=before),
        after=dataclasses.replace(data.after, rewards=after),
    )
    [found] = task_returns(loop, meta, data)
    assert (found.before, found.after, found.first_half) == (-8, -16, -5)
