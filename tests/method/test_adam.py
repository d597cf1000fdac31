"""Adam by hand, its weight decay, and a state that goes on the same."""

import math

import pytest
import torch

from pmeta.method.adam import Adam


def test_adam_by_hand() -> None:
    w = {"w": torch.tensor([1.0, 1.0], dtype=torch.float64)}
    adam = Adam(w)
    adam.step(w, {"w": torch.tensor([2.0, -0.5]).double()}, {"w": 0.1})
    # the first step is the rate, whatever the gradient
    assert w["w"].tolist() == pytest.approx([0.9, 1.1], abs=1e-8)
    adam.step(w, {"w": torch.tensor([-1.0, -0.5]).double()}, {"w": 0.1})
    # first moment (0.9 * 0.2 - 0.1) / (1 - 0.81) = 8 / 19,
    # second (0.999 * 0.004 + 0.001) / (1 - 0.998001) = 4996 / 1999
    second = 0.9 - 0.1 * 8 / 19 / math.sqrt(4996 / 1999)
    assert w["w"].tolist() == pytest.approx([second, 1.2], abs=1e-8)


def test_what_has_more_than_one_axis_decays() -> None:
    w = {"matrix": torch.ones(1, 1), "bias": torch.ones(1)}
    zeros = {name: torch.zeros_like(t) for name, t in w.items()}
    Adam(w).step(w, zeros, {"matrix": 0.5, "bias": 0.5}, weight_decay=0.25)
    assert (w["matrix"].item(), w["bias"].item()) == (0.875, 1.0)


def test_a_loaded_state_goes_on_the_same() -> None:
    w, g, rates = {"w": torch.ones(3)}, {"w": torch.tensor([1.0, -2.0, 0.5])}, {"w": 0.1}
    adam = Adam(w)
    adam.step(w, g, rates)
    again, resumed = {"w": w["w"].clone()}, Adam(w)
    resumed.load({name: t.clone() for name, t in adam.state().items()}, adam.steps)
    for tensors, optimiser in ((w, adam), (again, resumed)):
        optimiser.step(tensors, {"w": -g["w"]}, rates)
    torch.testing.assert_close(again, w, rtol=0, atol=0)
