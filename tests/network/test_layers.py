"""Layers and the tape: our forward pass is the model's own, our weight gradients are autograd's."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from pmeta.network.backbones import FourConv, MLPPolicy, ResNet12
from pmeta.network.layers import Layer, Network, channel_means, scale, weight_gradients
from pmeta.network.take_in import take_in
from tests.helpers.nets import Residual, Separable, Signal, batch_norm, generator, network

NETS: dict[str, Callable[[], tuple[Network, tuple[int, ...]]]] = {
    "residual": lambda: (network(Residual(), (2, 6, 6)), (2, 6, 6)),
    "separable": lambda: (network(Separable(), (2, 8, 8)), (2, 8, 8)),
    "signal": lambda: (network(Signal(), (2, 9)), (2, 9)),
    "batch norm": lambda: (
        network(Separable(4, batch_norm), (2, 8, 8), batch_norm=True),
        (2, 8, 8),
    ),
    "4Conv": lambda: (network(FourConv(3, (3, 16, 16), 8, 4), (3, 16, 16)), (3, 16, 16)),
    "ResNet12": lambda: (network(ResNet12(3, (3, 8, 8), (8, 8)), (3, 8, 8)), (3, 8, 8)),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def plain(net: Network, w: dict[str, Tensor], x: Tensor) -> Tensor:
    return functional_call(net.model, w, (x,))


@pytest.mark.parametrize("name", NETS)
def test_the_forward_pass_is_the_models_own(name: str) -> None:
    net, shape = NETS[name]()
    x, w = draw(4, *shape), {name: t + 0.1 for name, t in net.weights().items()}
    torch.testing.assert_close(net.run(w, x)[0], plain(net, w, x), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", NETS)
def test_weight_gradients_are_those_of_autograd(name: str) -> None:
    """g(w_l) from x_{l-1} and g(y_l), for every kind of layer."""
    net, shape = NETS[name]()
    x, u = draw(4, *shape), draw(4, 3, seed=1)
    w = {name: t.requires_grad_() for name, t in net.weights().items()}
    expected = dict(
        zip(w, torch.autograd.grad((plain(net, w, x) * u).sum(), list(w.values())), strict=True)
    )
    output, tape = net.run(w, x, net.layers)
    g_y = torch.autograd.grad((output * u).sum(), [tape[layer.name].y for layer in net.layers])
    for layer, g in zip(net.layers, g_y, strict=True):
        ours = weight_gradients(layer, tape[layer.name].x, g, None, None)
        torch.testing.assert_close(ours, [expected[n] for n in layer.params], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", [name for name in NETS if name != "batch norm"])
def test_scores_multiply_the_gradient_of_each_sample(name: str) -> None:
    """gamma_bw[f] gamma_fw[c] g(w)[f, c] sample by sample (Eqs. 12 and 13), a bias by gamma_bw alone; shared and by rows."""
    net, shape = NETS[name]()
    w, x, u = net.weights(), draw(3, *shape), draw(3, 3, seed=1)
    output, tape = net.run(w, x, net.layers)
    g_y = torch.autograd.grad((output * u).sum(), [tape[layer.name].y for layer in net.layers])
    for layer, g in zip(net.layers, g_y, strict=True):
        fw, bw = draw(3, layer.c_in, seed=2), draw(3, layer.c_out, seed=3)
        stored = tape[layer.name].x.detach()
        rows = [by_hand(layer, stored[[b]], g[[b]], fw[b], bw[b]) for b in range(3)]
        expected = [torch.stack(parts).sum(0) for parts in zip(*rows, strict=True)]
        torch.testing.assert_close(
            weight_gradients(layer, stored, g, fw, bw), expected, rtol=1e-9, atol=1e-11
        )
        shared = by_hand(layer, stored, g, fw[0], bw[0])
        torch.testing.assert_close(
            weight_gradients(layer, stored, g, fw[:1], bw[:1]), shared, rtol=1e-9, atol=1e-11
        )
        fw_only = by_hand(layer, stored, g, fw[0], torch.ones(layer.c_out))
        torch.testing.assert_close(
            weight_gradients(layer, stored, g, fw[:1], None), fw_only, rtol=1e-9, atol=1e-11
        )


def by_hand(layer: Layer, x: Tensor, g_y: Tensor, fw: Tensor, bw: Tensor) -> list[Tensor]:
    """The dense gradient, then factor by factor in plain loops."""
    parts = [g.detach().clone() for g in weight_gradients(layer, x, g_y, None, None)]
    g_w = parts[0]
    if layer.kind == "norm":
        parts[0] = g_w * fw * bw
    else:
        groups = layer.conv.groups if layer.conv else 1
        for f in range(layer.c_out):
            first = (
                f // (layer.c_out // groups) * (layer.c_in // groups)
            )  # the first input channel of the group of f
            for c in range(g_w.shape[1]):
                g_w[f, c] *= bw[f] * fw[first + c]
    return [parts[0], *[g_b * bw for g_b in parts[1:]]]


def test_mixed_scores() -> None:
    """Rows for each sample on one side, shared or none on the other."""
    layer = network(Residual(), (2, 6, 6)).layers[2]
    x, g = draw(3, 4, 6, 6), draw(3, 6, 6, 6, seed=1)
    fw, bw = draw(3, 4, seed=2), draw(1, 6, seed=3)
    expected = weight_gradients(layer, x, g, fw, bw.expand(3, 6))
    torch.testing.assert_close(
        weight_gradients(layer, x, g, fw, bw), expected, rtol=1e-12, atol=1e-12
    )
    expected = weight_gradients(layer, x, g, fw, torch.ones(3, 6, dtype=torch.float64))
    torch.testing.assert_close(
        weight_gradients(layer, x, g, fw, None), expected, rtol=1e-12, atol=1e-12
    )


def test_scores_that_miss_each_other() -> None:
    """Of a norm (as of a depthwise conv) both scores are of the same channels: if none survives both, none is updated."""
    net = network(Residual(), (2, 6, 6))
    norm, x, g = net.layers[1], draw(2, 4, 6, 6), draw(2, 4, 6, 6, seed=1)
    fw, bw = torch.tensor([[2.0, 2, 0, 0]]).double(), torch.tensor([[0.0, 0, 2, 2]]).double()
    weight, bias = weight_gradients(norm, x, g, fw, bw)
    assert not weight.any()
    assert bias.ne(0).tolist() == [False, False, True, True]


def test_the_tape_holds_what_was_asked_for() -> None:
    """x_{l-1} and y_l; of a norm the normalized input (Sec. 3.5.2)."""
    net, shape = NETS["residual"]()
    w, x = net.weights(), draw(2, *shape)
    _, tape = net.run(w, x, net.layers[:2])
    assert list(tape) == ["conv1", "norm1"]
    assert torch.equal(tape["conv1"].x, x)
    expected = nn.functional.group_norm(tape["conv1"].y, 2)
    torch.testing.assert_close(tape["norm1"].x, expected, rtol=1e-11, atol=1e-12)
    assert net.run(w, x)[1] == {}


def test_nothing_below_the_tape_is_in_the_graph() -> None:
    """With weights that need no gradient the lowest layer on the tape is where the graph begins."""
    net, shape = NETS["residual"]()
    output, tape = net.run(net.weights(), draw(2, *shape), net.layers[3:])
    assert tape["norm2"].y.is_leaf
    assert tape["norm2"].y.requires_grad
    assert not tape["norm2"].x.requires_grad
    assert tape["skip"].y.is_leaf
    assert not tape["fc"].y.is_leaf
    assert output.requires_grad
    assert not net.run(net.weights(), draw(2, *shape))[0].requires_grad


def test_edits_touch_the_taped_layers_alone() -> None:
    net, shape = NETS["residual"]()
    w, x = net.weights(), draw(2, *shape)
    seen: list[tuple[str, str, tuple[int, ...]]] = []

    def edit(side: str) -> Callable[[Layer, Tensor], Tensor]:
        def noted(layer: Layer, t: Tensor) -> Tensor:
            seen.append((side, layer.name, tuple(t.shape)))
            return 2 * t

        return noted

    _, tape = net.run(w, x, [net.layers[1]], edit("x"), edit("y"))
    assert seen == [("x", "norm1", (2, 4, 6, 6)), ("y", "norm1", (2, 4, 6, 6))]
    _, plain_tape = net.run(w, x, [net.layers[1]])
    torch.testing.assert_close(tape["norm1"].x, 2 * plain_tape["norm1"].x)


def test_modules_get_their_own_forward_back() -> None:
    net, shape = NETS["separable"]()
    forwards = {name: m.forward for name, m in net.model.named_modules()}
    x, w = draw(2, *shape), net.weights()
    before = plain(net, w, x)
    net.run(w, x)
    with pytest.raises(RuntimeError):
        net.run(w, draw(2, 5, 8, 8))  # five channels for two
    assert {name: m.forward for name, m in net.model.named_modules()} == forwards
    assert not any("forward" in vars(m) for m in net.model.modules())
    assert torch.equal(plain(net, w, x), before)


def test_the_model_keeps_its_weights() -> None:
    net, shape = NETS["separable"]()
    before = {name: t.clone() for name, t in net.model.state_dict().items()}
    w = {name: (t + 1).requires_grad_() for name, t in net.weights().items()}
    output, _ = net.run(w, draw(2, *shape), net.layers)
    output.sum().backward()
    assert all(torch.equal(t, before[name]) for name, t in net.model.state_dict().items())
    assert all(p.grad is None for p in net.model.parameters())


def test_another_dtype_than_the_models() -> None:
    """The weights passed in decide, not those in the module."""
    net = take_in(Separable(), torch.zeros(1, 2, 8, 8))  # float32
    w = {name: t.double() for name, t in net.weights().items()}
    output, tape = net.run(w, draw(2, 2, 8, 8), net.layers)
    g_y = torch.autograd.grad(output.sum(), [tape[layer.name].y for layer in net.layers])
    for layer, g in zip(net.layers, g_y, strict=True):
        assert {t.dtype for t in weight_gradients(layer, tape[layer.name].x, g, None, None)} == {
            torch.float64
        }


def test_channel_means() -> None:
    conv, fc = (
        network(Residual(), (2, 6, 6)).layers[0],
        network(MLPPolicy(4, 2), (7, 4), extra=("log_std",)).layers[0],
    )
    maps, rows, vectors = draw(3, 2, 5, 6), draw(3, 7, 4), draw(3, 4)
    torch.testing.assert_close(channel_means(conv, maps), maps.mean((2, 3)))
    torch.testing.assert_close(channel_means(fc, rows), rows.mean(1))
    assert torch.equal(channel_means(fc, vectors), vectors)
    torch.testing.assert_close(channel_means(fc, rows.unflatten(1, (7, 1))), rows.mean(1))


def test_scale() -> None:
    conv, fc = (
        network(Residual(), (2, 6, 6)).layers[0],
        network(MLPPolicy(4, 2), (7, 4), extra=("log_std",)).layers[0],
    )
    maps, rows, gamma = draw(3, 4, 5, 6), draw(3, 7, 4), draw(3, 4, seed=1)
    assert torch.equal(scale(conv, maps, gamma), maps * gamma[:, :, None, None])
    assert torch.equal(scale(fc, rows, gamma), rows * gamma[:, None, :])
    assert torch.equal(scale(fc, rows, gamma[:1]), rows * gamma[0])
    assert scale(fc, rows, None) is rows
