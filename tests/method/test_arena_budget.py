"""A budget of the device's memory: kept by the plan, used as far as it goes, few plans made."""

import pytest
import torch
from torch import Tensor, nn

from pmeta.compiler.arena import Arena
from pmeta.method.arena_budget import RETURNS, fit_arena
from pmeta.method.learned import init_meta
from pmeta.method.methods import METHODS
from pmeta.network.backbones import FourConv, MLPPolicy
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from tests.helpers import nets

PMETA = METHODS["pmeta"]
IMAGE = (1, 28, 28)


class Counted:
    """An arena that counts the masks it is asked for."""

    def __init__(self, arena: Arena):
        self.arena, self.asked = arena, 0

    def __call__(self, mask: Tensor) -> int:
        self.asked += 1
        return self.arena.bytes(mask)


@pytest.fixture(scope="module")
def four() -> Network:
    return take_in(FourConv(5, IMAGE, channels=16, groups=4), torch.zeros(1, *IMAGE))


@pytest.fixture(scope="module")
def arena(four: Network) -> Arena:
    meta = init_meta(four, PMETA, 2, 0.1, nets.generator())
    return Arena(four, meta, PMETA, IMAGE, input_type="uint8")


def test_the_arena_is_kept_and_used(four: Network, arena: Arena) -> None:
    """Whatever the budget, nothing that is left out fits beside what was chosen."""
    meta = init_meta(four, PMETA, 2, 0.1, nets.generator())
    every = arena.bytes(meta.mask)
    sizes = []
    for share in (0.4, 0.6, 0.8):
        budget, counted = int(share * every), Counted(arena)
        mask = fit_arena(four, meta, PMETA, budget, counted, samples=5).mask
        assert 0.75 * budget < arena.bytes(mask) <= budget
        assert counted.asked <= 2 + 7 + RETURNS
        sizes.append(int(mask.sum()))
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_all_of_it_fits(four: Network, arena: Arena) -> None:
    meta = init_meta(four, PMETA, 2, 0.1, nets.generator())
    fitted = fit_arena(four, meta, PMETA, arena.bytes(meta.mask), arena.bytes, samples=5)
    assert fitted.mask.all()
    assert torch.equal(fitted.alpha, meta.alpha)


def test_the_larger_step_size_stays() -> None:
    """Two layers of which either fits alone, by an arena of ten bytes for each."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    net = take_in(model, torch.zeros(1, 4))
    meta = init_meta(net, METHODS["pmeta-lr"], 1, 0.1, nets.generator())
    for alpha, kept in (([0.3, 0.1], [True, False]), ([0.1, 0.3], [False, True])):
        meta.alpha.copy_(torch.tensor([alpha]))
        fitted = fit_arena(
            net, meta, METHODS["pmeta-lr"], 10, lambda mask: 10 * int(mask.sum()), samples=5
        )
        assert fitted.mask.tolist() == [kept]


def test_an_arena_that_the_walk_knows_nothing_of() -> None:
    """Where no proposal fits, the single layer that does is found."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    net = take_in(model, torch.zeros(1, 4))
    meta = init_meta(net, METHODS["pmeta-lr"], 2, 0.1, nets.generator())

    def odd(mask: Tensor) -> int:  # only the first layer fits, in both steps
        return 100 if mask[:, 1].any() else 10

    fitted = fit_arena(net, meta, METHODS["pmeta-lr"], 50, odd, samples=5)
    assert fitted.mask.tolist() == [[True, False]] * 2


def test_a_budget_that_cannot_be_met(four: Network, arena: Arena) -> None:
    meta = init_meta(four, PMETA, 2, 0.1, nets.generator())
    message = (
        r"^memory budget of 1,000 bytes is too small to update any layer: \w+ alone takes "
        r"[\d,]+ on the device, give at least that, or a smaller network\.$"
    )
    with pytest.raises(ValueError, match=message):
        fit_arena(four, meta, PMETA, 1000, arena.bytes, samples=5)


def test_parameters_that_stand_alone_cost_nothing() -> None:
    net = take_in(MLPPolicy(2, 2, (8,)), torch.zeros(1, 32, 2), extra=("log_std",))
    meta = init_meta(net, METHODS["pmeta-lr"], 1, 0.1, nets.generator())
    arena = Arena(net, meta, METHODS["pmeta-lr"], (32, 2))
    least = arena.bytes(torch.tensor([[False, True, False]]))
    fitted = fit_arena(net, meta, METHODS["pmeta-lr"], least, arena.bytes, samples=3)
    assert fitted.mask.tolist() == [[False, True, True]]
