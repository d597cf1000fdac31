"""Learned sparse step sizes: the Lasso by hand, and what a freeze leaves."""

import pytest
import torch
from torch import nn

from pmeta.cost.bound import bound_mu_fw
from pmeta.method.methods import METHODS, Method
from pmeta.method.step_sizes import freeze, input_kib, lasso_gradient, updated_layers
from pmeta.network.backbones import MLPPolicy
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from tests.helpers import nets


@pytest.fixture(scope="module")
def two() -> Network:
    return nets.two_linear()


def test_inputs_in_kib_a_sample() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 6, 5)
    )
    net = take_in(model, torch.zeros(1, 2, 16, 8))
    # 2 * 16 * 8 = 256 words are 1 KiB; behind the conv 4 * 14 * 6 = 336 words are 1.3125 KiB
    assert input_kib(net).tolist() == [1.0, 1.3125, 1.3125]
    policy = take_in(MLPPolicy(2, 2, (8,)), torch.zeros(1, 32, 2), extra=("log_std",))
    assert [layer.name for layer in policy.layers] == ["fc1", "fc2", "log_std"]
    assert input_kib(policy).tolist() == [
        0.25,
        1.0,
        0.0,
    ]  # 32 steps of 2 and of 8 words; a parameter alone stores nothing


def test_gradient_of_the_lasso_by_hand() -> None:
    alpha, kib = torch.tensor([[0.1, 0.0], [0.3, 0.2], [0.0, 0.0]]), torch.tensor([4.0, 0.5])
    assert (
        lasso_gradient(alpha, kib, lam=0.5).tolist() == [[2.0, 0.25]] * 3
    )  # the same at 0: the clamp does the rest


def test_freeze_keeps_what_is_not_small(two: Network) -> None:
    frozen = freeze(nets.meta_with(two, [[0.2, 0.1], [0.05, 0.3]]), 0.1)
    assert frozen.mask.tolist() == [[True, True], [False, True]]
    assert torch.equal(frozen.alpha, torch.tensor([[0.2, 0.1], [0.0, 0.3]]))


@pytest.mark.parametrize(
    ("alpha", "mask", "left"),
    [
        ([[0.02, 0.01], [0.03, 0.0]], None, (1, 0)),
        ([[0.02, 0.01], [0.03, 0.0]], [[True, True], [False, True]], (0, 0)),
        ([[0.0, 0.0], [0.0, 0.0]], None, (1, 1)),
        ([[0.0, 0.0], [0.0, 0.0]], [[True, False], [False, False]], (0, 0)),
    ],
)
def test_freeze_leaves_at_least_one_step_size(
    two: Network, alpha: list[list[float]], mask: list[list[bool]] | None, left: tuple[int, int]
) -> None:
    frozen = freeze(nets.meta_with(two, alpha, mask), 0.1)
    assert frozen.mask.nonzero().tolist() == [list(left)]
    assert float(frozen.alpha[left]) == pytest.approx(alpha[left[0]][left[1]])
    assert int((frozen.alpha > 0).sum()) <= 1


def test_names_of_updated_layers() -> None:
    net = take_in(MLPPolicy(2, 2, (8,)), torch.zeros(1, 32, 2), extra=("log_std",))
    updates = torch.tensor([[True, False, True], [False, False, False], [True, True, False]])
    assert updated_layers(net, updates) == [["fc1"], [], ["fc1", "fc2"]]


def test_bound_of_mu_fw_by_method(two: Network) -> None:
    def bound(method: Method) -> dict[str, float]:
        return bound_mu_fw(two.ops, method.stored_rho)

    # of 4 channels at most 2 survive rho = 0.3; the head is dense
    assert bound(METHODS["pmeta"]) == {"0": 0.5}
    assert bound(METHODS["pmeta-lr"]) == {}
    assert bound(Method("backward only", scores="attention", clip_ratio_fw=None)) == {}
    assert bound(Method("sparse x", scores="attention", sparse_fw="x")) == {}
