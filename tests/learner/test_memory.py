"""The device's bytes: a budget is kept, the cost says them first, and no saving is told."""

import re

import pytest
import torch
from torch import nn

from pmeta import device
from pmeta.learner import Learner
from pmeta.method.meta_gradient import AnyTask
from tests.helpers import nets


def made(method: str = "pmeta", **settings: object) -> Learner:
    torch.manual_seed(0)
    block = (nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.GroupNorm(2, 8), nn.ReLU())
    more = (nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4))
    model = nn.Sequential(*block, *more, nn.Flatten(), nn.Linear(32, 3))
    return Learner(model, torch.zeros(1, 1, 8, 8), method, inner_steps=2, **settings)  # type: ignore[arg-type]


def tasks(n: int = 4) -> list[AnyTask]:
    x, y = torch.randn(3, 1, 8, 8, generator=nets.generator()), torch.arange(3)
    return [(x, y, x, y)] * n


@pytest.mark.parametrize("budget", ["10kB", 10_000, "70%"])
def test_a_budget_is_what_the_file_takes(
    budget: str | int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    learner = made(memory_budget=budget)
    learner.meta_train(tasks(), meta_batch=1, progress=False, freeze_at=0.5)
    path = tmp_path_factory.mktemp("model") / "model.pmeta"
    learner.export(path)
    most = 10_000 if budget != "70%" else int(0.7 * learner.maml_arena_bytes)
    assert device.load(path).arena_bytes == learner.arena_bytes <= most
    assert learner.meta.updates().any()
    assert learner.advice == ""
    assert made("maml").arena_bytes == learner.maml_arena_bytes


def test_a_budget_takes_the_place_of_the_penalty() -> None:
    assert made(memory_budget="70%")._penalty({}) == {"lam": 0.0}
    assert made()._penalty({"lam": 0.5}) == {"lam": 0.5}


def test_what_no_budget_can_be() -> None:
    message = r"^memory budget of 100 bytes is too small to update any layer: \d alone takes [\d,]+"
    with pytest.raises(ValueError, match=message):
        made(memory_budget="100B")
    with pytest.raises(ValueError, match=r"^a memory budget is a size such as 1MB, .* got 'much'"):
        made(memory_budget="much")
    message = r"^a memory budget is met by dropping layers, which MAML does not: use pmeta-lr or "
    with pytest.raises(ValueError, match=message):
        made("maml", memory_budget="10kB")


def test_where_nothing_is_saved_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    learner = made()
    learner.meta_train(tasks(2), progress=True, freeze_below=0.0, lam=0.0)
    said = "no step size is at zero, so that every layer is updated as in MAML: give the learner"
    assert said in capsys.readouterr().err.replace("\n", " ")
    assert str(learner.cost(3)).endswith(learner.advice)
    assert learner.advice.startswith(said)
    assert made("maml").advice == ""


def test_the_cost_says_the_bytes_of_the_device_first() -> None:
    learner = made(memory_budget="70%")
    learner.meta_train(tasks(), meta_batch=1, progress=False, freeze_at=0.5)
    cost = learner.cost(samples=3)
    first, second, third = str(cost).split("\n")
    share = f"{learner.arena_bytes / learner.maml_arena_bytes:.0%}"
    assert first == (
        f"{learner.arena_bytes:,} bytes on the device to adapt ({share} of MAML's "
        f"{learner.maml_arena_bytes:,})"
    )
    assert re.fullmatch(r"\d of 8 step sizes are above zero", second)
    assert third.startswith(f"in the paper's accounting {cost.memory_mb:.3f} MB")
    elsewhere = made(for_device=False).cost(samples=3)
    assert str(elsewhere).startswith("not for the device\n")


def test_what_the_device_cannot_run_is_said_at_once() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3), nn.Tanh(), nn.Flatten(), nn.GELU(),
        nn.Linear(64, 3), nn.Softmax(1),
    )  # fmt: skip
    message = (
        r"(?s)^the device cannot run this model:\n- it calls tanh \(tanh, tanh_1\), gelu \(gelu\), "
        r"softmax \(softmax\); the device runs .*, view\.\nReplace these, or train it for "
        r"elsewhere with for_device=False\.$"
    )
    with pytest.raises(ValueError, match=message):
        Learner(model, torch.zeros(1, 1, 8, 8))
    assert Learner(model, torch.zeros(1, 1, 8, 8), for_device=False).for_device is False
