"""A model from its operations: what `read_graph` read, as an nn.Module that reads the same."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.compiler.read_model import Node, Shape

CURVES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardsigmoid": F.hardsigmoid,
    "sigmoid": F.sigmoid,
    "silu": F.silu,
    "hardswish": F.hardswish,
}


class Rebuilt(nn.Module):
    """Layers under their names in the model, and a forward pass that goes through the nodes.

    >>> from pmeta.compiler.read_model import read_graph
    >>> x = torch.zeros(1, 4)
    >>> nodes = read_graph(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), x)
    >>> model = Rebuilt(nodes, (4,))
    >>> read_graph(model, x) == nodes, [name for name, _ in model.named_parameters()]
    (True, ['0.weight', '0.bias', '2.weight', '2.bias'])
    """

    def __init__(self, nodes: Sequence[Node], sample: Shape):
        super().__init__()
        self._nodes = nodes
        for node in nodes:
            if node.params:
                x = nodes[node.inputs[0]].shape if node.inputs[0] >= 0 else sample
                self._put(node.name, _layer(node, x))

    def _put(self, path: str, layer: nn.Module) -> None:
        *folders, name = path.split(".")
        place: nn.Module = self
        for folder in folders:
            if not hasattr(place, folder):
                place.add_module(folder, nn.Module())
            place = place.get_submodule(folder)
        place.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        values = [x]  # value v stands at v + 1
        for node in self._nodes:
            inputs = [values[v + 1] for v in node.inputs]
            if node.params:
                values.append(self.get_submodule(node.name)(*inputs))
            else:
                values.append(RUN[node.kind](node, *inputs))
        return values[-1]


def _layer(node: Node, x: Shape) -> nn.Module:
    bias, kind = bool(node.bias), node.kind
    if kind == "fc":
        return nn.Linear(x[-1], node.shape[-1], bias)
    if kind == "norm":
        return nn.GroupNorm(node.groups, x[0], node.eps)
    if kind == "layer_norm":
        return nn.LayerNorm(x[-1], node.eps, bias=bias)
    g, flat = node.geom, len(node.shape) == 2
    assert g is not None
    assert kind == "conv"
    if flat:
        return nn.Conv1d(g.c_in, g.c_out, g.kw, g.sw, g.pw, g.dw, g.groups, bias)
    window = (g.kh, g.kw), (g.sh, g.sw), (g.ph, g.pw), (g.dh, g.dw)
    return nn.Conv2d(g.c_in, g.c_out, *window, g.groups, bias)


def _act(node: Node, x: Tensor) -> Tensor:
    return F.leaky_relu(x, node.slope) if node.act == "leaky" else CURVES[node.act](x)


def _max_pool(node: Node, x: Tensor) -> Tensor:
    g = node.geom
    assert g is not None
    if len(node.shape) == 2:
        return F.max_pool1d(x, g.kw, g.sw, g.pw, g.dw, _ceil(node))
    window = (g.kh, g.kw), (g.sh, g.sw), (g.ph, g.pw), (g.dh, g.dw)
    return F.max_pool2d(x, *window, _ceil(node))


def _avg_pool(node: Node, x: Tensor) -> Tensor:
    g = node.geom
    assert g is not None
    if len(node.shape) == 1:
        return x.mean(list(range(2, x.dim())))
    if len(node.shape) == 2:
        return F.avg_pool1d(x, g.kw, g.sw, g.pw, _ceil(node), node.count_pad)
    window = (g.kh, g.kw), (g.sh, g.sw), (g.ph, g.pw)
    return F.avg_pool2d(x, *window, _ceil(node), node.count_pad)


def _ceil(node: Node) -> bool:
    """Whether a pooling has a last window that is not full."""
    g = node.geom
    assert g is not None
    floors = (
        (g.h + 2 * g.ph - g.dh * (g.kh - 1) - 1) // g.sh + 1,
        (g.w + 2 * g.pw - g.dw * (g.kw - 1) - 1) // g.sw + 1,
    )
    return floors != (g.ho, g.wo)


RUN: dict[str, Callable[..., Tensor]] = {
    "norm": lambda node, x: F.group_norm(x, node.groups, eps=node.eps),
    "layer_norm": lambda node, x: F.layer_norm(x, x.shape[-1:], eps=node.eps),
    "act": _act,
    "curve": _act,
    "maxpool": _max_pool,
    "avgpool": _avg_pool,
    "add": lambda node, x, y: x + y,
    "mul": lambda node, x, y: x * y,
    "cat": lambda node, *x: torch.cat(x, 1),
    "view": lambda node, x: x.reshape(len(x), *node.shape),
}
"""Operations without weights."""
