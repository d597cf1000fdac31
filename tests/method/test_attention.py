"""Sparse meta attention: Alg. 1 by hand and by its promises, the straight-through gradient."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from pmeta.cost.bound import max_survivors
from pmeta.method.attention import (
    Gammas,
    clip,
    has_scores,
    init_attention,
    scores,
    sparsify,
    unit_rms,
)
from pmeta.method.methods import METHODS, Method
from tests.helpers.nets import Residual, generator, meta_of, network

# Alg. 1


def clipped(pi: list[float], rho: float) -> list[float]:
    return clip(torch.tensor([pi], dtype=torch.float64), rho)[0].tolist()


@pytest.mark.parametrize(
    ("pi", "rho", "gamma"),
    [
        ([0.125, 0.5, 0.125, 0.25], 0.0, [0.5, 2, 0.5, 1]),  # if rho = 0, do nothing
        (
            [0.125, 0.5, 0.125, 0.25],
            0.1,
            [0, 8 / 3.5, 2 / 3.5, 4 / 3.5],
        ),  # 1/8 >= 0.1: of the equal ones goes the first
        ([0.125, 0.5, 0.125, 0.25], 0.25, [0, 8 / 3, 0, 4 / 3]),  # 1/8 + 1/8 >= 1/4
        ([0.125, 0.5, 0.125, 0.25], 0.26, [0, 4, 0, 0]),  # and so 1/4 goes too
        ([0.25, 0.25, 0.25, 0.25], 0.5, [0, 0, 2, 2]),
        ([0.5, 0.25, 0.25], 0.3, [3, 0, 0]),
    ],
)
def test_by_hand(pi: list[float], rho: float, gamma: list[float]) -> None:
    assert clipped(pi, rho) == pytest.approx(gamma, rel=1e-14)


@pytest.mark.parametrize(
    ("pi", "gamma"),
    [
        ([0.05, 0.9, 0.05], [0, 3, 0]),  # 0.1 < 0.3, so as printed all three go: 0 / 0
        ([0.0, 1.0, 0.0], [0, 3, 0]),
        ([1.0], [1]),  # one channel
        ([0.25, 0.75], [0, 2]),
    ],
)
def test_where_the_printed_algorithm_divides_zero_by_zero(
    pi: list[float], gamma: list[float]
) -> None:
    """One channel holds more than 1 - rho: it stays."""
    assert clipped(pi, 0.3) == pytest.approx(gamma)


@pytest.mark.parametrize("n", [10, 25, 29, 64])
def test_rounding_does_not_decide(n: int) -> None:
    """c of n equal scores reach c / n in exact arithmetic; their sum in float32 falls short of it
    for n = 25, c = 5."""
    for c in range(1, n):
        gamma = clip(torch.full((1, n), 1 / n), c / n)
        assert int((gamma == 0).sum()) == c


def test_rows_are_clipped_each_on_its_own() -> None:
    pi = torch.tensor([[0.1, 0.2, 0.7], [0.7, 0.2, 0.1]])
    assert torch.equal(clip(pi, 0.3), torch.cat([clip(pi[:1], 0.3), clip(pi[1:], 0.3)]))


logits = st.lists(st.floats(-12, 12, width=32), min_size=1, max_size=40)
ratios = st.floats(0, 1, exclude_max=True)


def softmax(z: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor([z], dtype=dtype).softmax(-1)


@settings(max_examples=200)
@given(z=logits, rho=ratios, dtype=st.sampled_from([torch.float32, torch.float64]))
@example(z=[0.0] * 10, rho=0.3, dtype=torch.float32)
@example(z=[100.0, 0.0, 0.0], rho=0.999, dtype=torch.float32)
def test_promises(z: list[float], rho: float, dtype: torch.dtype) -> None:
    """Never all zero, mean 1, at most floor((1 - rho) C) survivors (but one), the order of scores
    kept."""
    pi = softmax(z, dtype)
    gamma = clip(pi, rho)
    survivors = int((gamma > 0).sum())
    assert gamma.dtype == dtype
    assert (gamma >= 0).all()
    assert gamma.mean().item() == pytest.approx(1, rel=1e-5 if dtype == torch.float32 else 1e-12)
    assert (
        1 <= survivors <= max(1, math.floor((1 - rho + 1e-6) * len(z)))
    )  # 1e-6 is Alg. 1's tolerance
    assert survivors <= max_survivors(len(z), rho)  # what the cost model promises
    if rho > 0 and len(z) > 1:
        assert survivors < len(z)
    kept, dropped = pi[gamma > 0], pi[gamma == 0]
    if len(dropped) and (pi > 0).all():
        assert kept.min() >= dropped.max()
        assert len(kept) == 1 or dropped.sum() >= rho - 2e-6


@settings(max_examples=100)
@given(z=logits, rho=ratios, seed=st.integers(0, 1000))
def test_permuting_channels_permutes_scores(z: list[float], rho: float, seed: int) -> None:
    pi = softmax(z)
    assume(len(set(pi[0].tolist())) == len(z))  # among equal scores the first one goes
    sums = pi.sort().values.cumsum(-1)
    assume(((sums - (rho - 1e-6)).abs() > 1e-12).all())  # sums in another order round differently
    order = torch.randperm(len(z), generator=generator(seed))
    torch.testing.assert_close(clip(pi[:, order], rho), clip(pi, rho)[:, order], rtol=1e-12, atol=0)


def test_straight_through() -> None:
    """Forward the clipped value, backward C times the identity."""
    pi = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64, requires_grad=True)
    u = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    gamma = sparsify(pi, 0.3)
    assert torch.equal(gamma.detach(), clip(pi.detach(), 0.3))
    assert torch.equal(torch.autograd.grad((gamma * u).sum(), pi)[0], 4 * u)


def test_straight_through_is_exact_without_clipping() -> None:
    z = torch.randn(2, 5, generator=generator(), dtype=torch.float64, requires_grad=True)
    u = torch.randn(2, 5, generator=generator(1), dtype=torch.float64)
    g = [torch.autograd.grad((f(z.softmax(-1), 0.0) * u).sum(), z)[0] for f in (sparsify, clip)]
    torch.testing.assert_close(g[0], g[1], rtol=1e-12, atol=1e-14)


# The module h


def module(c: int, **given: Any) -> dict[str, Tensor]:
    parts: dict[str, Any] = {
        "W1": torch.eye(c),
        "b1": torch.zeros(c),
        "W2": torch.eye(c),
        "b2": torch.zeros(c),
        **given,
    }
    return {key: torch.as_tensor(value, dtype=torch.float64) for key, value in parts.items()}


def test_scores_by_hand() -> None:
    """z = W2 relu(W1 v + b1) + b2 for v = (1, 2): W1 v + b1 = (3 - 1, -1), so z = (0 * 2 + 5, 3 * 2
    - 1) = (5, 5)."""
    h = module(2, W1=[[1, 1], [1, -1]], b1=[-1, 0], W2=[[0, 7], [3, 7]], b2=[5, -1])
    assert scores(h, torch.tensor([[1.0, 2.0]], dtype=torch.float64), 0.0, None).tolist() == [
        [1, 1]
    ]
    h["b2"] = torch.tensor([5 + math.log(3), -1], dtype=torch.float64)
    gamma = scores(h, torch.tensor([[1.0, 2.0]], dtype=torch.float64), 0.0, None)
    assert gamma[0].tolist() == pytest.approx([1.5, 0.5])  # 2 * softmax = 2 * (3/4, 1/4)


def test_the_mean_over_samples_comes_after_the_module() -> None:
    """relu(v) of (ln 9, 0) and (-ln 9, 0) is (ln 9, 0) and (0, 0), mean (ln 3, 0); the mean of v
    would be (0, 0)."""
    v = torch.tensor([[math.log(9), 0], [-math.log(9), 0]], dtype=torch.float64)
    assert scores(module(2), v, 0.0, None)[0].tolist() == pytest.approx([1.5, 0.5])


@pytest.mark.parametrize(("batch", "rows"), [(1, 5), (2, 3), (3, 2), (5, 1), (9, 1), (None, 1)])
def test_a_row_for_each_micro_batch(batch: int | None, rows: int) -> None:
    v = torch.randn(5, 3, generator=generator(), dtype=torch.float64)
    gamma = scores(module(3), v, 0.3, batch)
    parts = [scores(module(3), part, 0.3, None) for part in v.split(batch or 5)]
    assert gamma.shape == (rows, 3)
    torch.testing.assert_close(gamma, torch.cat(parts), rtol=1e-14, atol=0)


def test_unit_rms() -> None:
    v = torch.tensor([[3.0, -4.0], [0.0, 0.0]], dtype=torch.float64)
    expected = [[3 / math.sqrt(12.5), -4 / math.sqrt(12.5)], [0, 0]]
    assert unit_rms(v).tolist() == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize("size", [1e-8, 1e-6, 1e-3, 1.0, 1e3])
def test_unit_rms_forgets_the_size(size: float) -> None:
    """The gradients of early layers are 1e-6 and less, in float32: an eps that outweighs their
    squares would silence them."""
    v = torch.randn(3, 8, generator=generator())
    torch.testing.assert_close(
        unit_rms(size * v), unit_rms(v), rtol=1e-3 if size < 1e-7 else 1e-5, atol=0
    )


# Scores in a network

ATTENTION = Method("attention", scores="attention", clip_ratio_fw=0.3, clip_ratio_bw=0.0)


def gammas(method: Method = ATTENTION, batch: int | None = None) -> Gammas:
    net = network(Residual(), (2, 6, 6))
    return Gammas(net, method, meta_of(net, method).attention, batch)


def tensor(*shape: int) -> Tensor:
    return torch.randn(shape, generator=generator(), dtype=torch.float64)


def layer_scores(g: Gammas, name: str, side: str, t: Tensor) -> Tensor | None:
    return g(g.net.layers[g.net.index(name)], side, t)


def test_forward_means_are_raw_and_backward_means_are_not() -> None:
    g = gammas()
    t = tensor(5, 4, 6, 6)
    for side, rho, prepare in (("fw", 0.3, lambda v: v), ("bw", 0.0, unit_rms)):
        small = layer_scores(g, "norm1", side, t)
        h = {key: g.params[f"norm1.{side}.{key}"] for key in ("W1", "b1", "W2", "b2")}
        v: Callable[[Tensor], Tensor] = prepare
        assert small is not None
        torch.testing.assert_close(
            small, scores(h, v(t.mean((2, 3))), rho, None), rtol=1e-12, atol=0
        )
        large = layer_scores(g, "norm1", side, 1e4 * t)
        assert large is not None
        assert torch.allclose(small, large) == (side == "bw")


def test_micro_batches_give_a_row_for_each_sample() -> None:
    gamma = layer_scores(gammas(batch=2), "conv2", "fw", tensor(5, 4, 6, 6))
    assert gamma is not None
    assert gamma.shape == (5, 4)
    assert torch.equal(gamma[0], gamma[1])
    assert torch.equal(gamma[2], gamma[3])
    assert len({tuple(row) for row in gamma.tolist()}) == 3


def test_nothing_where_there_is_no_attention() -> None:
    head, x = "head", tensor(5, 5)
    assert layer_scores(gammas(), head, "fw", x) is None
    assert layer_scores(gammas(METHODS["maml"]), "fc", "fw", x) is None
    fw_off = gammas(replace(ATTENTION, clip_ratio_fw=None))
    assert layer_scores(fw_off, "fc", "fw", x) is None
    assert layer_scores(fw_off, "fc", "bw", x) is not None
    net = fw_off.net
    assert [has_scores(net, layer) for layer in net.layers] == [True] * 6 + [False]


def test_static_factors() -> None:
    g = gammas(Method("static", scores="static"))
    gamma = layer_scores(g, "fc", "bw", tensor(5, 5))
    assert gamma is not None
    assert torch.equal(gamma, g.params["fc.bw.alpha"][None])
    assert layer_scores(g, "head", "bw", tensor(5, 3)) is None


def test_attention_starts_near_one_and_without_ties() -> None:
    net = network(Residual(), (2, 6, 6))
    params = init_attention(list(net.layers[:-1]), generator())
    for name in ("conv2.fw", "conv2.bw"):
        h = {key: params[f"{name}.{key}"] for key in ("W1", "b1", "W2", "b2")}
        c = len(h["b2"])
        gamma = scores(h, torch.randn(3, c, generator=generator(1)), 0.0, None)
        assert (gamma - 1).abs().max() < 0.05
        assert len(set(gamma[0].tolist())) == c
        assert h["W1"].abs().max() <= c**-0.5
        assert not h["W2"].any()
        assert not h["b1"].any()


@pytest.mark.parametrize("batch", [None, 1, 2])
def test_everything_follows_the_tensors_device(batch: int | None) -> None:
    """On tensors without data that claim to be on a GPU; one made on the CPU among them raises."""
    with FakeTensorMode():
        h = {key: torch.empty(t.shape, device="cuda") for key, t in module(4).items()}
        assert scores(h, torch.empty(5, 4, device="cuda"), 0.3, batch).device.type == "cuda"
