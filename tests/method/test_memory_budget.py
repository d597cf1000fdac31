"""Layers that fit in a memory budget: by hand, and every step within the exact accounting."""

import math

import pytest
import torch
from torch import Tensor

from pmeta.cost.bound import bound_mu_fw
from pmeta.cost.memory import peak_words
from pmeta.cost.ops import layer_names
from pmeta.method.learned import init_meta
from pmeta.method.memory_budget import fit_budget
from pmeta.method.methods import METHODS, Method
from pmeta.method.step_sizes import updated_layers
from pmeta.network.backbones import FourConv, MLPPolicy
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from tests.helpers import nets


@pytest.fixture(scope="module")
def two() -> Network:
    return nets.two_linear()


@pytest.fixture(scope="module")
def residual() -> Network:
    return nets.network(nets.Residual(), (2, 6, 6))


# In words, batch 1 of 5 samples. Both layers: x is stored (4), a bit of the ReLU (1), its output
# (3); at the backward pass of the head g(y) and g(x) beside that (5); accumulators 15 + 8: 36
# words. The head alone: 7 at the first layer, 8: 15 words. The first layer alone: 4 + 1 stored,
# 3 + 2 at the head, 15: 25 words.
@pytest.mark.parametrize(
    ("alpha", "budget", "kept"),
    [
        ([0.1, 0.1], 144, [True, True]),
        ([0.1, 0.1], 143, [False, True]),  # 0.1 / (5 + 15) words is less than 0.1 / (3 + 8)
        ([0.2, 0.1], 143, [True, False]),  # 0.2 / 20 is more than 0.1 / 11
        ([0.2, 0.1], 100, [True, False]),
        ([0.2, 0.1], 99, [False, True]),  # the first layer does not fit even alone
        ([0.2, 0.0], 99, [False, True]),  # rather a step size that was zero than none at all
        ([0.1, 0.1], 60, [False, True]),
    ],
)
def test_budget_by_hand(two: Network, alpha: list[float], budget: int, kept: list[bool]) -> None:
    fitted = fit_budget(two, nets.meta_with(two, [alpha]), METHODS["pmeta-lr"], budget, samples=5)
    assert fitted.mask.tolist() == [kept]
    assert fitted.alpha.tolist() == [
        pytest.approx([a * k for a, k in zip(alpha, kept, strict=True)])
    ]


def test_a_budget_that_cannot_be_met(two: Network) -> None:
    message = (
        "^memory budget of 59 bytes is too small to update any layer: 2 alone takes 60, "
        "give at least that.$"
    )
    with pytest.raises(ValueError, match=message):
        fit_budget(two, nets.meta_with(two, [[0.1, 0.1]]), METHODS["pmeta-lr"], 59, samples=5)


def exact_peak(net: Network, update: list[str], method: Method, samples: int) -> float:
    attention = method.scores == "attention"
    mu_fw = bound_mu_fw(net.ops, method.stored_rho)
    return 4 * peak_words(net.ops, update, 1, samples, mu_fw, "exact", attention)


@pytest.mark.parametrize("method", ["pmeta-lr", "pmeta"])
def test_every_step_fits_in_the_exact_accounting(residual: Network, method: str) -> None:
    row = METHODS[method]
    meta = nets.meta_of(residual, row)
    names = layer_names(residual.ops)
    full = exact_peak(residual, names, row, 5)
    least = min(exact_peak(residual, [name], row, 5) for name in names)
    sizes: list[Tensor] = []
    for budget in torch.linspace(least, full, 9).ceil().int().tolist():
        fitted = fit_budget(residual, meta, row, budget, samples=5)
        peaks = [
            exact_peak(residual, update, row, 5)
            for update in updated_layers(residual, fitted.updates())
        ]
        assert max(peaks) <= budget
        assert fitted.mask.any()
        sizes.append(fitted.mask.sum())
    assert sizes[-1] == meta.mask.numel()
    assert sizes[0] < sizes[4] < sizes[-1]
    with pytest.raises(ValueError, match="too small to update any layer"):
        fit_budget(residual, meta, row, math.ceil(least) - 1, samples=5)


def test_more_memory_keeps_no_fewer_layers() -> None:
    """Low layers share what they drag along, so that each of them seems free beside the others."""
    net = take_in(FourConv(5, (3, 84, 84)), torch.zeros(1, 3, 84, 84))
    meta = init_meta(net, METHODS["pmeta-lr"], 1, 0.1, nets.generator())
    kept = {
        kb: updated_layers(
            net, fit_budget(net, meta, METHODS["pmeta-lr"], 1000 * kb, samples=5).updates()
        )[0]
        for kb in (910, 930, 945, 960, 1000, 1040, 1500, 1900, 1940, 1995, 2100)
    }
    assert kept[945] == ["norm2", "norm3", "norm4", "fc"]
    assert kept[1940] == ["conv2", "norm2", "conv3", "norm3", "conv4", "norm4", "fc"]
    counts = [len(layers) for layers in kept.values()]
    assert counts == sorted(counts)
    assert counts[-1] == 9


def test_parameters_that_stand_alone_cost_nothing() -> None:
    net = take_in(MLPPolicy(2, 2, (8,)), torch.zeros(1, 32, 2), extra=("log_std",))
    meta = init_meta(net, METHODS["pmeta-lr"], 1, 0.1, nets.generator())
    least = math.ceil(
        min(exact_peak(net, [name], METHODS["pmeta-lr"], 3) for name in layer_names(net.ops))
    )
    fitted = fit_budget(net, meta, METHODS["pmeta-lr"], least, samples=3)
    assert fitted.mask.tolist() == [[False, True, True]]
