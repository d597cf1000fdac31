"""The inner step only where layers live: nothing else is updated, stored or computed again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from pmeta.fast import second_order as autograd
from pmeta.method.inner import InnerLoop, cross_entropy
from pmeta.method.methods import METHODS, Method
from pmeta.network import tape
from pmeta.network.layers import Layer, Network
from pmeta.network.take_in import take_in
from tests.helpers.nets import Pooled, Residual, Separable, changed, meta_of, network, task

ATTENTION = Method("attention", scores="attention", clip_ratio_fw=0.3, clip_ratio_bw=0.1)
SHAPE = (2, 6, 6)


def test_some_layers_at_some_steps() -> None:
    net = network(Residual(), SHAPE)
    meta = meta_of(net, METHODS["maml"], 2)
    mask = torch.zeros_like(meta.mask)
    mask[0, net.index("conv2")] = True
    mask[1, net.index("norm1")] = True
    meta = replace(meta, mask=mask)
    loop, support = InnerLoop(net, METHODS["maml"]), task(SHAPE)[:2]
    first, _ = loop.step(meta, meta.w, 0, support)
    assert changed(meta, first) == {"conv2.weight"}
    assert changed(meta, loop.adapt(meta, support).w) == {
        "conv2.weight",
        "norm1.weight",
        "norm1.bias",
    }


def test_a_step_without_layers_does_nothing() -> None:
    net = network(Residual(), SHAPE)
    meta = meta_of(net, METHODS["maml"], 1)
    meta = replace(meta, mask=torch.zeros_like(meta.mask))
    w, scores = InnerLoop(net, METHODS["maml"]).step(meta, meta.w, 0, task(SHAPE)[:2])
    assert w is meta.w
    assert scores == {}


@pytest.mark.parametrize(
    ("model", "first"),
    [(Residual, "conv2"), (Residual, "head"), (Pooled, "fc"), (Separable, "dilated")],
)
@pytest.mark.parametrize("batch", [None, 1])
def test_layers_below_the_first_updated_one_are_computed_once_and_nothing_else_changes(
    model: type[nn.Module], first: str, batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = (2, 8, 8) if model is Separable else SHAPE
    net = network(model(), shape)
    meta = meta_of(net, METHODS["pmeta"], 3).map(lambda t: t.requires_grad_())
    meta = replace(meta, mask=(torch.arange(len(net.layers)) >= net.index(first)).expand(3, -1))
    loop, support = (
        InnerLoop(net, METHODS["pmeta"], batch=batch, second_order=True),
        task(shape)[:2],
    )
    runs: list[str] = []
    original = tape.computed

    def counting(layer: Layer, *arguments: Any) -> tape.Record:
        runs.append(layer.name)
        return original(layer, *arguments)

    def squares(w: dict[str, Tensor]) -> Tensor:
        return torch.stack([(t**2).sum() for t in w.values()]).sum()

    monkeypatch.setattr(tape, "computed", counting)
    w = meta.w
    for k in range(3):
        w, _ = loop.step(meta, w, k, support)
    every_time, runs[:] = list(runs), []
    once = loop.adapt(meta, support).w
    below = {layer.name for layer in net.layers[: net.index(first)]}
    assert all(
        runs.count(name) * (3 if name in below else 1) == every_time.count(name)
        for name in every_time
    )
    inputs = list(meta.parameters().values())
    gradients = [torch.autograd.grad(squares(v), inputs, materialize_grads=True) for v in (w, once)]
    for a, b in [*zip(w.values(), once.values(), strict=True), *zip(*gradients, strict=True)]:
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


class Convs(nn.Sequential):
    def __init__(self) -> None:
        convs = (nn.Conv2d(2 if i == 0 else 3, 3, 3, padding=1) for i in range(3))
        super().__init__(
            *[m for conv in convs for m in (conv, nn.Tanh())], nn.Flatten(), nn.Linear(3 * 36, 3)
        )


@pytest.mark.parametrize(
    ("lives", "input_gradients", "weight_gradients"),
    [
        ((True, True, True, True), 2, 3),  # all but the first conv pass a gradient down
        (
            (False, True, False, True),
            1,
            1,
        ),  # the backward pass goes through the frozen third conv and ends at the second
        ((False, False, False, True), 0, 0),  # ANIL
        ((True, True, True, False), 2, 3),  # BOIL
    ],
)
@pytest.mark.parametrize("second_order", [False, True])
def test_the_backward_pass_ends_at_the_lowest_live_layer(
    lives: tuple[bool, ...],
    input_gradients: int,
    weight_gradients: int,
    second_order: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Conv gradients counted one by one; in either order each is computed once and none in vain."""
    net = network(Convs(), SHAPE)
    meta = meta_of(net, METHODS["maml"], 1).map(lambda t: t.requires_grad_(second_order))
    meta = replace(meta, mask=torch.tensor([lives]))
    asked: list[str] = []

    def counting(name: str, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def gradient(*args: Any) -> Tensor:
            asked.append(name)
            return original(*args)

        return gradient

    for name in ("_input_gradient", "_weight_gradient"):
        monkeypatch.setattr(autograd, name, counting(name, getattr(autograd, name)))
    InnerLoop(net, METHODS["maml"], second_order=second_order).adapt(meta, task(SHAPE)[:2])
    assert (asked.count("_input_gradient"), asked.count("_weight_gradient")) == (
        input_gradients,
        weight_gradients,
    )


def saved_shapes(net: Network, lives: tuple[bool, ...]) -> set[tuple[int, ...]]:
    """The shapes that autograd keeps in one first-order step, in training as well."""
    meta = meta_of(net, METHODS["maml"], 1).map(lambda t: t.requires_grad_())
    meta = replace(meta, mask=torch.tensor([lives]))
    saved: set[tuple[int, ...]] = set()

    def pack(t: Tensor) -> Tensor:
        saved.add(tuple(t.shape))
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        InnerLoop(net, METHODS["maml"]).adapt(meta, task(SHAPE)[:2])
    return saved


class Shifted(nn.Module):
    """A parameter of no layer in front of the layers, and once more behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.full((4,), 0.1))
        self.fc1, self.fc2 = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.tanh(self.fc1(x + self.shift)) * self.shift)


def test_layers_behind_a_parameter_that_is_updated_are_not_kept_from_step_to_step() -> None:
    torch.manual_seed(0)
    net = take_in(Shifted().double(), torch.zeros(1, 4, dtype=torch.float64), extra=("shift",))
    meta = meta_of(net, METHODS["maml"])
    mask = meta.mask.clone()
    mask[:, net.index("fc1")] = False
    x, y, *_ = task((4,))
    w = {name: t.clone() for name, t in meta.w.items()}
    for k in range(len(meta.alpha)):  # by PyTorch alone
        w = {name: t.detach().requires_grad_() for name, t in w.items()}
        g = torch.autograd.grad(
            cross_entropy(functional_call(net.model, w, (x,)), y).mean(), list(w.values())
        )
        alpha = {
            name: meta.alpha[k, l]
            for l, layer in enumerate(net.layers)
            for name in layer.params
            if layer.name != "fc1"
        }
        w = {name: t - alpha.get(name, 0.0) * d for (name, t), d in zip(w.items(), g, strict=True)}
    adapted = InnerLoop(net, METHODS["maml"]).adapt(replace(meta, mask=mask), (x, y)).w
    assert all(torch.allclose(adapted[name], t, rtol=1e-10) for name, t in w.items())


def test_a_frozen_lower_part_is_not_stored() -> None:
    net = network(Convs(), SHAPE)
    maps = (5, 3, 6, 6)
    assert maps in saved_shapes(net, (True, True, True, True))
    assert maps in saved_shapes(net, (False, False, True, True))
    assert not {s for s in saved_shapes(net, (False, False, False, True)) if len(s) > 2}
