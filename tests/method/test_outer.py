"""The outer loop: rates and penalty, freezing, and a state that goes on the same."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pmeta.base.errors import DivergedError
from pmeta.cost.ops import WORD, input_words
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta, init_meta
from pmeta.method.meta_gradient import MetaGradient
from pmeta.method.methods import METHODS, Method
from pmeta.method.outer import Outer, Schedule
from pmeta.method.step_sizes import freeze
from pmeta.network.layers import Network
from pmeta.training.run_folder import Run
from tests.helpers import nets

STATIC = Method("static", learn_alpha=True, scores="static")
SHAPE = (2, 6, 6)


@pytest.fixture(scope="module")
def residual() -> Network:
    return nets.network(nets.Residual(), SHAPE)


def gradients(
    outer: Outer, value: float | Callable[[str], float] = 1.0, tasks: int = 1, skipped: int = 0
) -> MetaGradient:
    """The same gradient for every element of a tensor, times the tasks."""
    of = value if callable(value) else lambda name: value
    filled = {n: torch.full_like(t, tasks * of(n)) for n, t in outer.meta.parameters().items()}
    return MetaGradient(filled, 1.0, 0.5, tasks, skipped)


def outer_of(net: Network, name: str | Method, updates: int = 10, **schedule: float) -> Outer:
    method = METHODS[name] if isinstance(name, str) else name
    return Outer(
        InnerLoop(net, method, second_order=True),
        nets.meta_of(net, method),
        Schedule(updates, **schedule),
    )


def test_each_tensor_has_its_own_rate(residual: Network) -> None:
    for method in (METHODS["pmeta"], STATIC):
        outer = outer_of(
            residual,
            method,
            6,
            lr=1e-3,
            alpha_lr=2e-3,
            attention_lr=3e-3,
            attention_bias_lr=4e-3,
            lam=0.0,
        )
        for cosine in (1, math.sqrt(0.75), 0.5, 0):  # of 0, 30, 60 and 90 degrees
            before = {n: t.detach().clone() for n, t in outer.meta.parameters().items()}
            outer.update(gradients(outer, -1.0))  # always the same: each step is the rate
            for name, t in outer.meta.parameters().items():
                rate = 1e-3 if name.startswith("w/") else 2e-3 if name == "alpha" else 3e-3
                if name.endswith((".b2", ".fw.alpha", ".bw.alpha")):
                    rate = 4e-3
                step = torch.tensor(rate * (0.505 + 0.495 * cosine), dtype=t.dtype)
                assert torch.allclose(t.detach() - before[name], step, rtol=1e-6), name


def test_rates_follow_a_cosine_to_a_hundredth_and_the_penalty_rises() -> None:
    schedule = Schedule(100, lam=0.5, warm_up=0.2)
    assert [schedule.rate(n) for n in (0, 50, 100)] == pytest.approx([1, 0.505, 0.01])
    assert [schedule.penalty(n) for n in (0, 5, 10, 20, 90)] == pytest.approx(
        [0, 0.125, 0.25, 0.5, 0.5]
    )
    assert [Schedule(100, lam=0.5, warm_up=0).penalty(n) for n in (0, 1)] == [0, 0.5]


def test_the_mean_over_tasks_and_the_lasso_reach_the_step_sizes(residual: Network) -> None:
    outer = outer_of(residual, "pmeta", lam=0.25, warm_up=0)
    outer.update(gradients(outer, tasks=2))  # the penalty is still 0
    assert torch.allclose(outer.state()["adam/first/alpha"], torch.tensor(0.1, dtype=torch.float64))
    outer.update(gradients(outer, tasks=4))
    words = input_words(residual.ops)
    kib = torch.tensor(
        [words[layer.name] * WORD / 1024 for layer in residual.layers], dtype=torch.float64
    )
    assert torch.allclose(
        outer.state()["adam/first/alpha"][0], 0.9 * 0.1 + 0.1 * (1 + 0.25 * kib), rtol=1e-6
    )
    assert torch.allclose(
        outer.state()["adam/first/w/fc.weight"], torch.tensor(0.19, dtype=torch.float64)
    )


def test_step_sizes_end_at_exactly_zero_and_can_come_back_until_the_freeze(
    residual: Network,
) -> None:
    for method, names in (
        (METHODS["maml++"], ["alpha"]),
        (STATIC, ["alpha", "attention/conv1.fw.alpha"]),
    ):
        outer = outer_of(residual, method, 400, alpha_lr=0.05, attention_bias_lr=0.1)
        for _ in range(30):
            outer.update(gradients(outer))
        assert all(
            torch.equal(t, torch.zeros_like(t))
            for n, t in outer.meta.parameters().items()
            if n in names
        )
        assert bool((outer.meta.w["fc.weight"] < 0).any())  # weights may well be negative
        for _ in range(60):
            outer.update(gradients(outer, -1.0))
        assert all((t > 0).all() for n, t in outer.meta.parameters().items() if n in names)


@pytest.mark.parametrize("name", ["maml", "anil", "boil"])
def test_methods_that_do_not_learn_alpha_keep_it_to_the_bit(residual: Network, name: str) -> None:
    meta = init_meta(residual, METHODS[name], 2, 0.1, nets.generator())
    outer = Outer(InnerLoop(residual, METHODS[name], second_order=True), meta, Schedule(4))
    for seed in (3, 4):
        outer.update(outer.gradient([nets.task(SHAPE, seed=seed)], [seed], 0))
    assert outer.frozen
    assert torch.equal(outer.meta.alpha.detach(), meta.alpha)
    heads = torch.tensor([layer.name == "head" for layer in residual.layers])
    updates = {"maml": torch.ones_like(heads), "anil": heads, "boil": ~heads}[name].repeat(2, 1)
    assert torch.equal(outer.meta.updates(), updates)
    assert not any(
        torch.equal(outer.meta.w[n].detach(), t) for n, t in meta.w.items()
    )  # all weights are meta-trained


def test_the_freeze_is_for_good(residual: Network) -> None:
    outer = outer_of(residual, "pmeta", 10, freeze_at=0.3, freeze_below=0.5, lam=1.0, warm_up=0)
    with torch.no_grad():
        outer.meta.alpha[0, 2:5], outer.meta.alpha[1, 0] = 0.01, 0.01
    still = gradients(outer, lambda n: 0.0)
    outer.schedule = replace(outer.schedule, lam=0.0)
    for _ in range(2):
        outer.update(still)
    assert not outer.frozen
    assert bool(outer.meta.mask.all())
    outer.update(still)
    assert outer.frozen
    dead = torch.zeros_like(outer.meta.mask)
    dead[0, 2:5], dead[1, 0] = True, True
    assert torch.equal(outer.meta.mask, ~dead)
    outer.schedule = replace(outer.schedule, lam=1.0)
    before = outer.meta.alpha.detach().clone()
    outer.update(still)
    assert torch.equal(outer.meta.alpha.detach(), before)  # the penalty has ended
    for seed in range(3):
        found = outer.gradient([nets.task(SHAPE, seed=seed)], [seed], 0)
        assert not found.gradients["alpha"][dead].any()
        found.gradients["alpha"].fill_(-1.0)
        outer.update(found)
        assert torch.equal(outer.meta.alpha.detach()[dead], torch.zeros(4, dtype=torch.float64))
    assert (outer.meta.alpha > before)[~dead].all()  # the others are trained on


def test_another_choice_of_layers_is_asked_once(residual: Network) -> None:
    asked = []

    def choose(meta: Meta) -> Meta:
        asked.append(meta)
        return freeze(meta, 1e9)  # leaves one

    method = METHODS["pmeta-lr"]
    outer = Outer(
        InnerLoop(residual, method),
        nets.meta_of(residual, method),
        Schedule(4, freeze_at=0.5),
        choose,
    )
    for _ in range(4):
        outer.update(gradients(outer))
    assert len(asked) == 1
    assert int(outer.meta.mask.sum()) == 1


@pytest.mark.parametrize("after", [1, 3])  # before and after the freeze
def test_a_training_goes_on_from_its_state_to_the_bit(
    residual: Network, after: int, tmp_path: Path
) -> None:
    def step(outer: Outer, seed: int) -> None:
        bad = (torch.full((5, *SHAPE), math.nan, dtype=torch.float64), *nets.task(SHAPE)[1:])
        tasks = [bad] if seed == 0 else [nets.task(SHAPE, seed=seed)]
        outer.update(outer.gradient(tasks, range(len(tasks)), 0))

    outers = [outer_of(residual, "pmeta", 6, freeze_at=0.5, freeze_below=1.2) for _ in range(2)]
    for seed in range(after):
        step(outers[0], seed)
    Run(tmp_path).save("last", outers[0].state(), {})
    found = Run(tmp_path).load("last")
    assert found
    outers[1].load(found.tensors)
    for seed in range(after, 6):
        for outer in outers:
            step(outer, seed)
    first, second = (outer.state() for outer in outers)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (outers[0].done, outers[0].adam.steps, outers[0].frozen) == (6, 5, True)
    assert int(outers[1].meta.mask.sum()) < outers[1].meta.mask.numel()


def test_an_update_of_skipped_tasks_alone_changes_nothing(residual: Network) -> None:
    outer = outer_of(residual, "pmeta")
    outer.update(gradients(outer))
    before = outer.state()
    before = {name: t.clone() for name, t in before.items()}
    outer.update(
        MetaGradient(
            {n: torch.zeros_like(t) for n, t in outer.meta.parameters().items()}, 0.0, 0.0, 0, 4
        )
    )
    changed = [name for name, t in outer.state().items() if not torch.equal(t, before[name])]
    assert changed == ["done"]


def test_ten_bad_updates_in_a_row_are_an_error(residual: Network) -> None:
    outer = outer_of(residual, "maml", 100)
    for skipped in [1] * 9 + [0] + [1] * 9:
        outer.update(gradients(outer, skipped=skipped))
        outer.check_finite()
    outer.update(gradients(outer, skipped=1))
    message = (
        "^loss or gradient was not finite in 10 updates in a row, the last of them update 20: "
        r"lower lr or alpha_0\. Kept\.$"
    )
    with pytest.raises(ValueError, match=message):
        outer.check_finite(" Kept.")


def test_a_training_that_learned_nothing_is_an_error(residual: Network) -> None:
    outer = outer_of(residual, "maml", 9)
    for _ in range(8):
        outer.update(gradients(outer, skipped=1)._replace(tasks=0))
        outer.check_finite()
    outer.update(gradients(outer, skipped=1)._replace(tasks=0))
    with pytest.raises(DivergedError, match=r"not finite in any task, so that nothing was learned"):
        outer.check_finite()


def test_numbers_that_overflow_in_the_last_update_are_an_error(residual: Network) -> None:
    outer = outer_of(residual, "maml", 1, lr=1e308)
    outer.update(gradients(outer))
    with pytest.raises(DivergedError, match=r"the last update left numbers that are not finite"):
        outer.check_finite()


@pytest.mark.parametrize("name", ["lr", "lam", "alpha_lr", "freeze_below", "ema"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1])
def test_settings_are_finite_and_not_negative(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"finite and not negative, got {name}={value}: leave it"):
        Schedule(10, **{name: value})


def test_the_average_over_updates_is_what_is_kept_and_resumed(residual: Network) -> None:
    outer, again = (outer_of(residual, "pmeta", 20, ema=0.9, freeze_at=0.2) for _ in range(2))
    name = next(n for n in outer.meta.parameters() if n.startswith("w/"))
    average = outer.meta.parameters()[name].detach().clone()
    for t in range(1, 12):
        outer.update(gradients(outer, -1.0))
        decay = min(0.9, t / (t + 9))
        average += (1 - decay) * (outer.meta.parameters()[name].detach() - average)
        again.load(outer.state())
    for one in (outer, again):
        assert torch.allclose(one.averaged().parameters()[name], average)
        assert not one.averaged().alpha[~one.meta.mask].any()
    assert outer_of(residual, "pmeta").averaged().w[name[2:]].requires_grad  # no average
