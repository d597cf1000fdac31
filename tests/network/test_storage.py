"""Inputs that are kept in fewer bytes: what is rounded, to what, and what gradients see of it."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.method.inner import InnerLoop
from pmeta.method.learned import init_meta
from pmeta.method.methods import METHODS
from pmeta.network.backbones import FourConv
from pmeta.network.layers import Network
from pmeta.network.storage import kept_input, rounded
from pmeta.network.take_in import take_in
from pmeta.network.tape import forward

STORES = ("float16", "int8")


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_bytes_divide_the_range_of_each_channel() -> None:
    x = numbers(2, 3, 5, 4) * torch.tensor([1.0, 100.0, 1e-3])[:, None, None]
    step = (x.amax((2, 3), keepdim=True) - x.amin((2, 3), keepdim=True)) / 255
    found = rounded(x, rows=False, store="int8")
    assert ((found - x).abs() <= 0.5001 * step).all()
    assert ((found - x).abs() > 0.2 * step).any()
    places = (found - x.amin((2, 3), keepdim=True)) / step
    torch.testing.assert_close(places, places.round(), atol=1e-3, rtol=0)
    assert float(rounded(x.relu(), rows=False, store="int8").min()) == 0.0
    alone = rounded(x[:1, 1:2], rows=False, store="int8")
    torch.testing.assert_close(alone, found[:1, 1:2])


def test_rows_have_ranges_of_their_own() -> None:
    x = numbers(2, 7, 20)
    x[0, 3] *= 1000
    found = rounded(x, rows=True, store="int8")
    assert float((found - x)[1].abs().max()) < 0.02
    assert float((found - x)[0, 3].abs().max()) > 1


def test_halves_are_those_of_ieee() -> None:
    x = torch.cat([numbers(20), numbers(20) * 1e-6, torch.tensor([7e4, -7e4])])[None]
    want = x.half().float()
    want[0, 40:] = torch.tensor([65504.0, -65504.0])
    assert torch.equal(rounded(x, rows=True, store="float16"), want)


@pytest.mark.parametrize("store", STORES)
def test_few_numbers_stay_as_they_are(store: str) -> None:
    for x, rows in ((numbers(2, 3, 5, 3), False), (numbers(2, 15), True), (numbers(2, 90), False)):
        assert rounded(x, rows, store) is x
    assert not torch.equal(rounded(numbers(2, 16), True, store), numbers(2, 16))
    assert rounded(numbers(2, 90), True, "float32").equal(numbers(2, 90))


@pytest.mark.parametrize("store", STORES)
def test_gradients_pass_straight_through(store: str) -> None:
    x, g = numbers(2, 4, 5, 5).requires_grad_(), numbers(2, 4, 5, 5, seed=1)
    assert torch.equal(torch.autograd.grad(rounded(x, False, store), x, g)[0], g)


def test_the_sample_and_the_input_of_the_head_are_not_rounded() -> None:
    net = take_in(FourConv(image=(3, 28, 28), channels=16, groups=4), torch.zeros(1, 3, 28, 28))
    assert net.first == {"conv1"}
    flat = nn.Sequential(nn.Flatten(), nn.Linear(20, 20), nn.Linear(20, 20), nn.Linear(20, 2))
    own = take_in(flat, torch.zeros(1, 4, 5))
    assert own.first == {"1"}
    x = numbers(1, 16, 7, 7)
    same = {
        layer.name: kept_input(net, layer, x, "int8").equal(x)
        for layer in net.layers
        if layer.kind != "fc"
    }
    assert [name for name, is_same in same.items() if is_same] == ["conv1"]
    row = numbers(1, 20)
    assert [kept_input(own, layer, row, "int8").equal(row) for layer in own.layers] == [1, 0, 1]


def straight(x: Tensor, store: str) -> Tensor:
    return x + (rounded(x, True, store) - x).detach()


@pytest.mark.parametrize("store", STORES)
def test_an_inner_step_and_its_meta_gradient_are_those_by_hand(store: str) -> None:
    """Three fc layers; plain autograd, with the input of the middle one rounded in g(w)."""
    body = (nn.Linear(6, 20, bias=False), nn.ReLU(), nn.Linear(20, 18, bias=False), nn.ReLU())
    model = nn.Sequential(*body, nn.Linear(18, 3, bias=False)).double()
    net = take_in(model, torch.zeros(1, 6, dtype=torch.float64))
    method = replace(METHODS["maml"], store=store)
    meta = init_meta(net, method, 1, 0.3, torch.Generator().manual_seed(0))
    meta = meta.with_parameters({k: t.double() for k, t in meta.parameters().items()})
    x, y, query = numbers(4, 6).double(), torch.tensor([0, 1, 2, 0]), numbers(5, 6, seed=1).double()
    w = {name: t.detach().requires_grad_() for name, t in meta.w.items()}
    loop = InnerLoop(net, method, second_order=True)
    adapted = loop.adapt(replace(meta, w=w), (x, y)).w
    found = torch.autograd.grad(forward(net, adapted, query)[0].square().sum(), [*w.values()])

    w1, w2, w3 = w.values()
    y1 = x @ w1.T
    h1 = y1.relu()
    y2 = h1 @ w2.T
    h2 = y2.relu()
    logits = h2 @ w3.T
    g1, g2, g3 = torch.autograd.grad(
        F.cross_entropy(logits, y), [y1, y2, logits], create_graph=True
    )
    new = [w1 - 0.3 * g1.T @ x, w2 - 0.3 * g2.T @ straight(h1, store), w3 - 0.3 * g3.T @ h2]
    for got, want in zip(adapted.values(), new, strict=True):
        torch.testing.assert_close(got, want)
    output = ((query @ new[0].T).relu() @ new[1].T).relu() @ new[2].T
    for got, want in zip(
        found, torch.autograd.grad(output.square().sum(), [w1, w2, w3]), strict=True
    ):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("store", STORES)
def test_gradients_pass_a_norm_with_its_rounded_input(store: str) -> None:
    """g(x) = r (g - mean(g) - x_hat mean(g x_hat)) with x_hat as it is kept."""
    model = nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(100, 2))
    net = take_in(model, torch.zeros(1, 4, 5, 5))
    x, g = numbers(2, 4, 5, 5).requires_grad_(), numbers(2, 4, 5, 5, seed=1)
    plain, stored = (_through(net, x, g, kind) for kind in ("float32", store))
    groups = x.detach().reshape(2, 2, -1)
    var, mean = torch.var_mean(groups, -1, correction=0, keepdim=True)
    r = (var + 1e-5).rsqrt()
    x_hat = rounded(((groups - mean) * r).reshape(x.shape), False, store).reshape(groups.shape)
    g_hat = g.reshape(groups.shape)
    a, m = (g_hat * x_hat).mean(-1, keepdim=True), g_hat.mean(-1, keepdim=True)
    torch.testing.assert_close(stored, (r * (g_hat - m - x_hat * a)).reshape(x.shape))
    assert not torch.equal(plain, stored)


def _through(net: Network, x: Tensor, g: Tensor, store: str) -> Tensor:
    """The gradient of x behind the norm, for g at its output."""
    w = {name: t.detach() for name, t in net.model.named_parameters()}
    _, tape = forward(net, w, x, [net.layers[0]], store=store)
    return torch.autograd.grad(tape["0"].y, x, g)[0]
