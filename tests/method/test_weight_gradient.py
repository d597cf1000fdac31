"""Our weight gradients are autograd's, and scores multiply them sample by sample."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from pmeta.method.weight_gradient import channel_means, scale, weight_gradients
from pmeta.network.backbones import MLPPolicy
from pmeta.network.layers import Layer
from pmeta.network.take_in import take_in
from pmeta.network.tape import forward
from tests.helpers.nets import NETS, Residual, Separable, draw, network


@pytest.mark.parametrize("name", NETS)
def test_weight_gradients_are_those_of_autograd(name: str) -> None:
    """g(w_l) from x_{l-1} and g(y_l), for every kind of layer."""
    net, shape = NETS[name]()
    x, u = draw(4, *shape), draw(4, 3, seed=1)
    w = {name: t.requires_grad_() for name, t in net.weights().items()}
    expected = dict(
        zip(
            w,
            torch.autograd.grad((functional_call(net.model, w, (x,)) * u).sum(), list(w.values())),
            strict=True,
        )
    )
    output, tape = forward(net, w, x, net.layers)
    g_y = torch.autograd.grad((output * u).sum(), [tape[layer.name].y for layer in net.layers])
    for layer, g in zip(net.layers, g_y, strict=True):
        ours = weight_gradients(layer, tape[layer.name].x, g, None, None)
        torch.testing.assert_close(ours, [expected[n] for n in layer.params], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", [name for name in NETS if name != "batch norm"])
def test_scores_multiply_the_gradient_of_each_sample(name: str) -> None:
    """gamma_bw[f] gamma_fw[c] g(w)[f, c] sample by sample (Eqs. 12 and 13), a bias by gamma_bw
    alone; shared and by rows."""
    net, shape = NETS[name]()
    w, x, u = net.weights(), draw(3, *shape), draw(3, 3, seed=1)
    output, tape = forward(net, w, x, net.layers)
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
    """Of a norm (as of a depthwise conv) both scores are of the same channels: if none survives
    both, none is updated."""
    net = network(Residual(), (2, 6, 6))
    norm, x, g = net.layers[1], draw(2, 4, 6, 6), draw(2, 4, 6, 6, seed=1)
    fw, bw = torch.tensor([[2.0, 2, 0, 0]]).double(), torch.tensor([[0.0, 0, 2, 2]]).double()
    weight, bias = weight_gradients(norm, x, g, fw, bw)
    assert not weight.any()
    assert bias.ne(0).tolist() == [False, False, True, True]


def test_another_dtype_than_the_models() -> None:
    """The weights passed in decide, not those in the module."""
    net = take_in(Separable(), torch.zeros(1, 2, 8, 8))  # float32
    w = {name: t.double() for name, t in net.weights().items()}
    output, tape = forward(net, w, draw(2, 2, 8, 8), net.layers)
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
