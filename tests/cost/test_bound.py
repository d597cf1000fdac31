"""The bound on mu_fw by hand, and against Alg. 1."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmeta.cost.bound import bound_mu_fw, max_mu_fw, max_survivors
from pmeta.cost.networks import Builder


def test_bound_by_hand() -> None:
    assert max_survivors(10, 0.3) == 7  # not 6, as (1 - 0.3) * 10 in floats has it at times
    assert [max_survivors(C, 0.3) for C in (1, 2, 3, 32, 64, 100)] == [1, 1, 2, 22, 44, 70]
    assert [max_survivors(10, k / 10) for k in range(10)] == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert max_mu_fw(32, 0.3) == 22 / 32
    assert max_mu_fw(5, 0.0) == 1
    net = Builder((2, 4, 4))
    net.fc("fc", net.flatten(net.norm("norm", net.conv("conv", -1, 3), groups=1)), 5)
    assert bound_mu_fw(net.ops, 0.3) == {"conv": 0.5, "norm": 2 / 3}


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40), st.floats(0, 0.999))
def test_clipping_never_leaves_more_channels_than_the_bound(
    scores: list[float], rho: float
) -> None:
    pi = sorted(score / math.fsum(scores) for score in scores)
    sums = [math.fsum(pi[:c]) for c in range(1, len(pi) + 1)]
    clipped = 1 + sum(total < rho - 1e-6 for total in sums) if rho > 0 else 0  # Alg. 1
    assert max(1, len(pi) - clipped) <= max_survivors(len(pi), rho)


@pytest.mark.parametrize("rho", [1.0, -0.1, math.nan])
def test_rho_out_of_range(rho: float) -> None:
    with pytest.raises(
        ValueError,
        match=r"clip ratio rho must be in \[0, 1\), got .*: at 1 no channel is left to update.",
    ):
        max_survivors(8, rho)
