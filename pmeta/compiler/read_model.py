"""A model as the device runs it: the operations of one forward pass, from any nn.Module."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pmeta.device.model_file import Geom

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Node:
    """One operation on one sample.

    Its value is known by its place in the list of nodes; -1 is the network's input."""

    kind: str
    """conv, fc, norm, layer_norm, act, curve, maxpool, avgpool, add, mul, cat or view."""
    inputs: tuple[int, ...]
    shape: Shape
    """Of the output, without the batch."""
    name: str = ""
    """The layer that it is, as in the model; "" for operations without weights."""
    weight: str = field(default="", compare=False)
    """The name of its weight, "" if there is none."""
    bias: str = field(default="", compare=False)
    geom: Geom | None = None
    groups: int = 1
    """Of a layer norm: rows, each of which it takes by itself."""
    factors: int = 0
    """Of a mul: numbers of its second input, which may be fewer than those of the first."""
    eps: float = 0.0
    act: str = "relu"
    slope: float = 0.0
    count_pad: bool = True

    @property
    def params(self) -> list[str]:
        return [name for name in (self.weight, self.bias) if name]


def root_of(nodes: Sequence[Node], value: int) -> int:
    """The value that this one is a view of; itself, if of none."""
    while value >= 0 and nodes[value].kind == "view":
        value = nodes[value].inputs[0]
    return value


def read_graph(model: nn.Module, example: Tensor) -> list[Node]:
    """The operations of `model` on one sample of `example`, in the order they run.

    The last one is the output.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> [n.kind for n in read_graph(model, torch.zeros(1, 4))]
    ['fc', 'act', 'fc']
    """
    exported = torch.export.export(model, (example[:1],))
    reader = _Reader(exported.graph_signature)
    for node in exported.graph.nodes:
        reader.read(node)
    return reader.nodes


def unreadable(model: nn.Module, example: Tensor) -> list[str]:
    """All that the device cannot run of a model, one line each; [] if there is nothing."""
    try:
        exported = torch.export.export(model, (example[:1],))
    except Exception as error:  # torch names no class for what it cannot follow
        return [f"torch.export cannot follow the model: {str(error).splitlines()[0]}"]
    reader = _Reader(exported.graph_signature)
    refusals = []
    for node in exported.graph.nodes:
        try:
            reader.read(node)
        except ValueError as error:
            refusals.append(str(error))
            reader.pass_over(node)
    return refusals


class _Call(NamedTuple):
    """One call of an operation."""

    at: str
    """Where, for messages."""
    args: Any
    """All arguments by the names in PyTorch's schema."""
    source: Any
    """The first of them."""
    x: Shape
    """Of the first argument, without the batch."""
    y: Shape


class _Reader:
    def __init__(self, signature: Any):
        self.params = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self.inputs = signature.user_inputs
        self.nodes: list[Node] = []
        self.values: dict[str, int] = {}
        self.expanded: dict[str, Shape] = {}
        """What a tensor was before it was expanded, without the batch."""

    def read(self, node: Any) -> None:
        if node.op == "placeholder" and node.name in self.inputs:
            self.values[node.name] = -1
        elif node.op == "call_function":
            self._call(node)
        elif node.op == "output":
            self._end([a.name for a in node.args[0] if a.name not in self.params])

    def pass_over(self, node: Any) -> None:
        """Go on behind a call that cannot be read, as if it gave a value."""
        values = [a.name for a in node.all_input_nodes if a.name in self.values]
        inputs = tuple(self.values[name] for name in values)
        shape = getattr(node.meta.get("val"), "shape", (1,))
        self.values[node.name] = len(self.nodes)
        self.nodes.append(Node("unknown", inputs, tuple(shape)[1:]))

    def _end(self, outputs: list[str]) -> None:
        last = len(self.nodes) - 1
        if len(outputs) != 1 or self.values[outputs[0]] != last:
            raise ValueError(
                f"a model for the device gives one output, its last operation, got {len(outputs)}."
            )
        inputs = [v for n in self.nodes if n.kind != "view" for v in n.inputs]
        read = {root_of(self.nodes, v) for v in (*inputs, last)}
        unread = [n for i, n in enumerate(self.nodes) if n.kind != "view" and i not in read]
        if unread:
            raise ValueError(
                f"the device runs what the output depends on, but nothing reads "
                f"{unread[0].name or unread[0].kind}: leave it out, or, if it works in place on a "
                f"view, let it give a new tensor."
            )

    def _call(self, node: Any) -> None:
        name = getattr(node.target, "__name__", str(node.target)).split(".")[0]
        if name in SAME:
            self.values[node.name] = self.values[_arguments(node)[0][1].name]
            return
        if name in EXPAND:
            source = _arguments(node)[0][1]
            self.values[node.name] = self.values[source.name]
            self.expanded[node.name] = tuple(source.meta["val"].shape[1:])
            return
        if name not in READERS:
            raise ValueError(
                f"the device runs {', '.join(sorted(READERS))}, but the model calls {name} "
                f"({node.name}): replace it with one of these."
            )
        arguments = _arguments(node)
        source = arguments[0][1]
        source = source[0] if isinstance(source, list | tuple) else source
        x, y = tuple(source.meta["val"].shape), tuple(node.meta["val"].shape)
        if not y or y[0] != 1:
            raise ValueError(
                f"the first axis is the batch, and {name} ({node.name}) makes {y} of one sample "
                f"{x}: keep it, as flatten(1) does."
            )
        args = SimpleNamespace(**dict(arguments))
        new = READERS[name](self, _Call(node.name, args, source, x[1:], y[1:]))
        if name.endswith("_"):  # in place: whoever reads its input from now on reads its output
            self._refuse_views_of(self.values[source.name], node.name)
            self.values[source.name] = len(self.nodes)
        self.values[node.name] = len(self.nodes)
        self.nodes.append(new)

    def _refuse_views_of(self, value: int, at: str) -> None:
        root = root_of(self.nodes, value)
        views = [i for i, n in enumerate(self.nodes) if n.kind == "view"]
        if any(root_of(self.nodes, i) == root for i in views):
            raise ValueError(
                f"{at} writes in place on what is read in another shape as well: use inplace=False "
                f"there."
            )

    def value(self, arg: Any, does: str = "adds") -> int:
        if not hasattr(arg, "name") or arg.name not in self.values:
            raise ValueError(f"the device {does} the outputs of two operations, got {arg}.")
        if arg.name in self.expanded and does != "multiplies":
            raise ValueError(
                f"the device expands a tensor only to multiply with it, got {arg}: leave expand "
                f"out."
            )
        return self.values[arg.name]

    def shape(self, arg: Any) -> Shape:
        """Of a value, without the batch and before it was expanded."""
        return self.expanded.get(arg.name) or tuple(arg.meta["val"].shape[1:])

    def node(self, kind: str, call: _Call, **settings: Any) -> Node:
        """An operation on the first argument of a call."""
        return Node(kind, (self.value(call.source),), call.y, **settings)

    def layer(self, kind: str, call: _Call, **settings: Any) -> Node:
        """An operation with a weight and a bias."""
        given = (call.args.weight, call.args.bias)
        weight, bias = (self.params[a.name] if a is not None else "" for a in given)
        name = (weight or bias).rpartition(".")[0]
        return self.node(kind, call, name=name, weight=weight, bias=bias, **settings)


def _arguments(node: Any) -> list[tuple[str, Any]]:
    """Names and values in the order of the schema, defaults filled in."""
    schema = node.target._schema.arguments
    given = {argument.name: value for argument, value in zip(schema, node.args, strict=False)}
    return [(a.name, {**node.kwargs, **given}.get(a.name, a.default_value)) for a in schema]


def _geom(
    call: _Call, kernel: Any, stride: Any, padding: Any, dilation: Any = (1,), groups: int = 1
) -> Geom:
    x, y = call.x, call.y
    flat = len(x) == 2  # (C, W)

    def pair(setting: Any, height: int = 1) -> tuple[int, int]:
        """(height, width) of a setting; `height` is that of a 1-D layer."""
        first, last = setting[0], setting[-1]
        return (height if flat and len(setting) == 1 else first), last

    (h, w), (ho, wo) = (z[1:] if len(z) == 3 else (1, z[1]) for z in (x, y))
    window = (*pair(kernel), *pair(stride), *pair(padding, height=0), *pair(dilation))
    if max(x[0], y[0]) > 65535 or max(h, w, ho, wo) > 32767:
        raise ValueError(
            f"the device takes images of up to 65535 channels and 32767 pixels a side, "
            f"got {x} to {y}."
        )
    return Geom(x[0], h, w, y[0], ho, wo, *window, groups)


def _conv(r: _Reader, call: _Call) -> Node:
    a = call.args
    kernel = list(a.weight.meta["val"].shape[2:])
    padding = a.padding
    if isinstance(padding, str):
        dilation = a.dilation if len(a.dilation) > 1 else a.dilation * len(kernel)
        span = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        padding = [0 if padding == "valid" else s // 2 for s in span]
    geom = _geom(call, kernel, a.stride, padding, a.dilation, a.groups)
    if geom.longest > 255:
        raise ValueError(
            f"kernel, stride, padding and dilation of a conv are at most 255 for the device, "
            f"got {geom} ({call.at})."
        )
    return r.layer("conv", call, geom=geom)


def _linear(r: _Reader, call: _Call) -> Node:
    rows = prod(call.y[:-1])
    if rows > 65535:
        raise ValueError(
            f"a linear layer takes up to 65535 rows on the device, got {rows} ({call.at})."
        )
    return r.layer("fc", call)


def _group_norm(r: _Reader, call: _Call) -> Node:
    return r.layer("norm", call, groups=call.args.num_groups, eps=call.args.eps)


def _layer_norm(r: _Reader, call: _Call) -> Node:
    if len(call.args.normalized_shape) != 1:
        raise ValueError(
            f"the device runs layer norm over the last axis, got {call.args.normalized_shape} "
            f"({call.at}): use GroupNorm(1, channels) on images."
        )
    rows = prod(call.y[:-1])
    if max(rows, call.y[-1]) > 65535:
        raise ValueError(
            f"layer norm takes up to 65535 rows and channels on the device, got {call.y} "
            f"({call.at})."
        )
    return r.layer("layer_norm", call, groups=rows, eps=call.args.eps)


def _activation(kind: str, act: str) -> Callable[[_Reader, _Call], Node]:
    return lambda r, call: r.node(kind, call, act=act)


def _leaky_relu(r: _Reader, call: _Call) -> Node:
    return r.node("act", call, act="leaky", slope=call.args.negative_slope)


def _hardtanh(r: _Reader, call: _Call) -> Node:
    low, high = call.args.min_val, call.args.max_val
    if (low, high) != (0, 6):
        raise ValueError(
            f"the device knows hardtanh from 0 to 6 (ReLU6) alone, got {low} to {high} ({call.at})."
        )
    return r.node("act", call, act="relu6")


def _max_pool(r: _Reader, call: _Call) -> Node:
    a = call.args
    geom = _geom(call, a.kernel_size, a.stride or a.kernel_size, a.padding, a.dilation)
    if geom.kh * geom.kw > 256:
        raise ValueError(
            f"a max-pooling window holds at most 256 pixels, got {geom.kh}x{geom.kw} ({call.at})."
        )
    return r.node("maxpool", call, geom=geom)


def _avg_pool(r: _Reader, call: _Call) -> Node:
    a = call.args
    if getattr(a, "divisor_override", None):
        raise ValueError(
            f"the device takes the mean of a window, got divisor_override ({call.at}): leave it "
            f"out."
        )
    geom = _geom(call, a.kernel_size, a.stride or a.kernel_size, a.padding)
    return r.node("avgpool", call, geom=geom, count_pad=bool(a.count_include_pad))


def _adaptive_pool(r: _Reader, call: _Call) -> Node:
    sides = list(zip(call.x[1:], call.y[1:], strict=True))
    if any(i % o for i, o in sides):
        raise ValueError(
            f"adaptive pooling needs output sides that divide the input's, got {call.x[1:]} to "
            f"{call.y[1:]} ({call.at})."
        )
    window = [i // o for i, o in sides]
    return r.node("avgpool", call, geom=_geom(call, window, window, [0]))


def _mean(r: _Reader, call: _Call) -> Node:
    x, given = call.x, getattr(call.args, "dim", None)
    axes = sorted(d % (len(x) + 1) for d in given or [])
    if axes != list(range(2, len(x) + 1)) or len(x) < 2:
        raise ValueError(
            f"the device takes the mean over all of space (global pooling), got axes {given} of "
            f"{x} ({call.at})."
        )
    window = x[1:]
    pooled = call._replace(y=(x[0], *[1] * len(window)))
    return r.node("avgpool", call, geom=_geom(pooled, window, window, [0]))


def _add(r: _Reader, call: _Call) -> Node:
    values, other = (r.value(call.source), r.value(call.args.other)), call.args.other
    shape = tuple(other.meta["val"].shape[1:])
    if call.args.alpha != 1 or shape != call.x or call.x != call.y:
        raise ValueError(
            f"the device adds two tensors of the same shape, got {call.x} and {shape} ({call.at})."
        )
    return Node("add", values, call.y)


def _mul(r: _Reader, call: _Call) -> Node:
    """x times s, of the same shape or with ones for the last axes of x, as a factor a channel."""
    given = (call.source, call.args.other)
    values = [r.value(arg, "multiplies") for arg in given]
    shapes = [r.shape(arg) for arg in given]
    if prod(shapes[0]) < prod(shapes[1]):
        values, shapes = values[::-1], shapes[::-1]
    x, s = shapes
    led = next((n for n in range(len(x) + 1) if s == (*x[:n], *[1] * (len(x) - n))), None)
    if led is None or x != call.y:
        raise ValueError(
            f"the device multiplies tensors of the same shape, or a tensor with a factor for each "
            f"channel, got {shapes[0]} and {shapes[1]} ({call.at})."
        )
    return Node("mul", tuple(values), call.y, factors=prod(s))


def _cat(r: _Reader, call: _Call) -> Node:
    values = tuple(r.value(arg, "concatenates") for arg in call.args.tensors)
    axis = call.args.dim % (len(call.y) + 1)
    if axis != 1:
        raise ValueError(f"the device concatenates channels, axis 1, got axis {axis} ({call.at}).")
    return Node("cat", values, call.y)


def _view(r: _Reader, call: _Call) -> Node:
    if prod(call.x) != prod(call.y):
        raise ValueError(
            f"the device looks at one sample in another shape, got {call.x} as {call.y} "
            f"({call.at}): keep the batch axis apart."
        )
    return r.node("view", call)


EXPAND = {"expand", "expand_as"}
SAME = {"dropout", "alias", "contiguous", "clone", "feature_dropout"}
READERS: dict[str, Callable[[_Reader, _Call], Node]] = {
    **dict.fromkeys(("conv1d", "conv2d"), _conv),
    "linear": _linear,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    **dict.fromkeys(("relu", "relu_"), _activation("act", "relu")),
    **dict.fromkeys(("leaky_relu", "leaky_relu_"), _leaky_relu),
    **dict.fromkeys(("relu6", "relu6_"), _activation("act", "relu6")),
    **dict.fromkeys(("hardsigmoid", "hardsigmoid_"), _activation("act", "hardsigmoid")),
    **dict.fromkeys(("sigmoid", "sigmoid_"), _activation("curve", "sigmoid")),
    **dict.fromkeys(("silu", "silu_"), _activation("curve", "silu")),
    **dict.fromkeys(("hardswish", "hardswish_"), _activation("curve", "hardswish")),
    **dict.fromkeys(("hardtanh", "hardtanh_"), _hardtanh),
    **dict.fromkeys(("max_pool1d", "max_pool2d"), _max_pool),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), _avg_pool),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d"), _adaptive_pool),
    "mean": _mean,
    **dict.fromkeys(("add", "add_"), _add),
    **dict.fromkeys(("mul", "mul_"), _mul),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    **dict.fromkeys(("view", "reshape", "flatten", "squeeze", "unsqueeze", "_unsafe_view"), _view),
}
