"""The tape: our forward pass is the model's own, and holds what was asked for."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from pmeta.network.layers import Layer, Network
from pmeta.network.take_in import take_in
from pmeta.network.tape import Edits, forward
from tests.helpers.nets import NETS, draw


def plain(net: Network, w: dict[str, Tensor], x: Tensor) -> Tensor:
    return functional_call(net.model, w, (x,))


@pytest.mark.parametrize("name", NETS)
def test_the_forward_pass_is_the_models_own(name: str) -> None:
    net, shape = NETS[name]()
    x, w = draw(4, *shape), {name: t + 0.1 for name, t in net.weights().items()}
    torch.testing.assert_close(forward(net, w, x)[0], plain(net, w, x), rtol=1e-11, atol=1e-12)


def test_the_tape_holds_what_was_asked_for() -> None:
    """x_{l-1} and y_l; of a norm the normalized input (Sec. 3.5.2)."""
    net, shape = NETS["residual"]()
    w, x = net.weights(), draw(2, *shape)
    _, tape = forward(net, w, x, net.layers[:2])
    assert list(tape) == ["conv1", "norm1"]
    assert torch.equal(tape["conv1"].x, x)
    expected = nn.functional.group_norm(tape["conv1"].y, 2)
    torch.testing.assert_close(tape["norm1"].x, expected, rtol=1e-11, atol=1e-12)
    assert forward(net, w, x)[1] == {}


def test_nothing_below_the_tape_is_in_the_graph() -> None:
    """With weights that need no gradient the lowest layer on the tape is where the graph begins."""
    net, shape = NETS["residual"]()
    output, tape = forward(net, net.weights(), draw(2, *shape), net.layers[3:])
    assert tape["norm2"].y.is_leaf
    assert tape["norm2"].y.requires_grad
    assert not tape["norm2"].x.requires_grad
    assert tape["skip"].y.is_leaf
    assert not tape["fc"].y.is_leaf
    assert output.requires_grad
    assert not forward(net, net.weights(), draw(2, *shape))[0].requires_grad


def test_edits_touch_the_taped_layers_alone() -> None:
    net, shape = NETS["residual"]()
    w, x = net.weights(), draw(2, *shape)
    seen: list[tuple[str, str, tuple[int, ...]]] = []

    def edit(side: str) -> Callable[[Layer, Tensor], Tensor]:
        def noted(layer: Layer, t: Tensor) -> Tensor:
            seen.append((side, layer.name, tuple(t.shape)))
            return 2 * t

        return noted

    _, tape = forward(net, w, x, [net.layers[1]], Edits(edit("x"), edit("y")))
    assert seen == [("x", "norm1", (2, 4, 6, 6)), ("y", "norm1", (2, 4, 6, 6))]
    _, plain_tape = forward(net, w, x, [net.layers[1]])
    torch.testing.assert_close(tape["norm1"].x, 2 * plain_tape["norm1"].x)


def test_modules_get_their_own_forward_back() -> None:
    net, shape = NETS["separable"]()
    forwards = {name: m.forward for name, m in net.model.named_modules()}
    x, w = draw(2, *shape), net.weights()
    before = plain(net, w, x)
    forward(net, w, x)
    with pytest.raises(RuntimeError):
        forward(net, w, draw(2, 5, 8, 8))  # five channels for two
    assert {name: m.forward for name, m in net.model.named_modules()} == forwards
    assert not any("forward" in vars(m) for m in net.model.modules())
    assert torch.equal(plain(net, w, x), before)


def test_the_model_keeps_its_weights() -> None:
    net, shape = NETS["separable"]()
    before = {name: t.clone() for name, t in net.model.state_dict().items()}
    w = {name: (t + 1).requires_grad_() for name, t in net.weights().items()}
    output, _ = forward(net, w, draw(2, *shape), net.layers)
    output.sum().backward()
    assert all(torch.equal(t, before[name]) for name, t in net.model.state_dict().items())
    assert all(p.grad is None for p in net.model.parameters())


@pytest.mark.parametrize("height", [8, 9])
def test_a_pooled_batch_norm_is_pytorchs(height: int) -> None:
    """Computed first where the pool looks, unless windows would reach into the next image."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * (height // 2) * 4, 3),
    ).double()
    model[1].weight.data = torch.tensor([1.0, -2.0, 0.5, -0.1], dtype=torch.float64)
    x = torch.randn(3, 2, height, 8, dtype=torch.float64)
    net = take_in(model, x[:1], batch_norm=True)
    assert net.pooled == {"1"}
    w = {name: t.requires_grad_() for name, t in net.weights().items()}
    y, _ = forward(net, w, x, pool_first=True)
    expected = functional_call(model, w, (x,))
    torch.testing.assert_close(y, expected)
    ours, theirs = (torch.autograd.grad(o.square().sum(), list(w.values())) for o in (y, expected))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)
