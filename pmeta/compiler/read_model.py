"""A model as the device runs it: the operations of one forward pass with all their numbers, from any nn.Module."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Geom(NamedTuple):
    """A convolution or a pooling window, the words of the file in their order. 1-D layers have h = kh = 1."""

    c_in: int
    h: int
    w: int
    c_out: int
    ho: int
    wo: int
    kh: int
    kw: int
    sh: int
    sw: int
    ph: int
    pw: int
    dh: int
    dw: int
    groups: int


@dataclass(frozen=True)
class Node:
    """One operation on one sample. Its value is known by its index in the list; -1 is the network's input."""

    kind: str
    """conv, fc, norm, act, maxpool, avgpool, add or view."""
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    """Of the output, without the batch."""
    name: str = ""
    """The layer that it is, as in the model; "" for operations without weights."""
    geom: Geom | None = None
    groups: int = 1
    eps: float = 0.0
    act: str = "relu"
    slope: float = 0.0
    count_pad: bool = True
    params: tuple[str, ...] = field(default=(), compare=False)
    """Names of the weight and the bias, "" for one that is not there."""


def read_graph(model: nn.Module, example: Tensor) -> list[Node]:
    """The operations of `model` on one sample of `example`, in the order they run; the last one is the output.

    >>> [n.kind for n in read_graph(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(1, 4))]
    ['fc', 'act', 'fc']
    """
    exported = torch.export.export(model, (example[:1],))
    params = {
        **exported.graph_signature.inputs_to_parameters,
        **exported.graph_signature.inputs_to_buffers,
    }
    reader = _Reader(params, exported.graph_signature.user_inputs)
    for node in exported.graph.nodes:
        reader.read(node)
    return reader.nodes


class _Reader:
    def __init__(self, params: dict[str, str], inputs: Collection[Any]):
        self.params = params
        self.inputs = inputs
        self.nodes: list[Node] = []
        self.values: dict[str, int] = {}

    def read(self, node: Any) -> None:
        if node.op == "placeholder" and node.name in self.inputs:
            self.values[node.name] = -1
        elif node.op == "call_function":
            self._call(node)
        elif node.op == "output":
            self._end([a.name for a in node.args[0] if a.name not in self.params])

    def _end(self, outputs: list[str]) -> None:
        if len(outputs) != 1 or self.values[outputs[0]] != len(self.nodes) - 1:
            raise ValueError(
                f"a model for the device gives one output, its last operation, got {len(outputs)}."
            )
        read = {self._root(v) for n in self.nodes if n.kind != "view" for v in n.inputs} | {
            self._root(len(self.nodes) - 1)
        }
        unread = [n for i, n in enumerate(self.nodes) if n.kind != "view" and i not in read]
        if unread:
            raise ValueError(
                f"the device runs what the output depends on, but nothing reads {unread[0].name or unread[0].kind}: leave it "
                f"out, or, if it works in place on a view, let it give a new tensor."
            )

    def _root(self, value: int) -> int:
        """The value that this one is a view of; itself, if of none."""
        while value >= 0 and self.nodes[value].kind == "view":
            value = self.nodes[value].inputs[0]
        return value

    def _call(self, node: Any) -> None:
        name = (
            node.target.__name__.split(".")[0]
            if hasattr(node.target, "__name__")
            else str(node.target)
        )
        args = _all_arguments(node) if name in SAME or name in READERS else []
        if name in SAME:
            self.values[node.name] = self.values[args[0].name]
            return
        if name not in READERS:
            raise ValueError(
                f"the device runs {', '.join(sorted(READERS))}, but the model calls {name} ({node.name}): replace it with "
                f"one of these."
            )
        x, y = args[0].meta["val"].shape, node.meta["val"].shape
        if not len(y) or y[0] != 1:
            raise ValueError(
                f"the first axis is the batch, and {name} ({node.name}) makes {tuple(y)} of one sample {tuple(x)}: keep it, as "
                f"flatten(1) does."
            )
        new = READERS[name](self, node.name, args, tuple(x[1:]), tuple(y[1:]))
        if name.endswith("_"):  # in place: whoever reads its input from now on reads its output
            self._refuse_views_of(self.values[args[0].name], node.name)
            self.values[args[0].name] = len(self.nodes)
        self.values[node.name] = len(self.nodes)
        self.nodes.append(new)

    def _refuse_views_of(self, value: int, at: str) -> None:
        if any(
            n.kind == "view" and self._root(i) == self._root(value)
            for i, n in enumerate(self.nodes)
        ):
            raise ValueError(
                f"{at} writes in place on what is read in another shape as well: use inplace=False there."
            )

    def value(self, arg: Any) -> int:
        if not hasattr(arg, "name") or arg.name not in self.values:
            raise ValueError(f"the device adds the outputs of two operations, got {arg}.")
        return self.values[arg.name]

    def named(self, weight: Any, bias: Any) -> tuple[str, tuple[str, str]]:
        """The layer's name, and the names of its weight and bias."""
        names = tuple(self.params[a.name] if a is not None else "" for a in (weight, bias))
        return next((n.rpartition(".")[0] for n in names if n), ""), names  # type: ignore[return-value]


def _all_arguments(node: Any) -> list[Any]:
    """Positional arguments in the order of the schema, defaults filled in."""
    schema = node.target._schema.arguments
    given = list(node.args) + [None] * (len(schema) - len(node.args))
    for i, argument in enumerate(schema):
        if i >= len(node.args):
            given[i] = node.kwargs.get(argument.name, argument.default_value)
    return given


def _two(values: Any, fallback: tuple[int, int] | None = None, pad: int = 1) -> tuple[int, int]:
    """(height, width) of a 1-D or 2-D setting; `pad` stands for the height of a 1-D one."""
    values = list(values) if isinstance(values, list | tuple) else [values]
    if not values and fallback is not None:
        return fallback
    return (pad, values[0]) if len(values) == 1 else (values[0], values[1])


def _geom(
    x: tuple[int, ...],
    y: tuple[int, ...],
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int = 1,
) -> Geom:
    one_d = len(x) == 2  # (C, W)
    k = _two(kernel if len(kernel) > 1 or one_d else [kernel[0]] * 2)
    s, p, d = ([v[0]] * 2 if len(v) == 1 and not one_d else v for v in (stride, padding, dilation))
    (h, w), (ho, wo) = (z[1:] if len(z) == 3 else (1, z[1]) for z in (x, y))
    geom = Geom(
        x[0], h, w, y[0], ho, wo, *k, *_two(s, fallback=k), *_two(p, pad=0), *_two(d), groups
    )
    if max(x[0], y[0]) > 65535 or max(h, w, ho, wo) > 32767:
        raise ValueError(
            f"the device takes images of up to 65535 channels and 32767 pixels a side, got {x} to {y}."
        )
    return geom


def _conv(r: _Reader, at: str, a: list[Any], x: tuple[int, ...], y: tuple[int, ...]) -> Node:
    name, params = r.named(a[1], a[2])
    kernel = list(a[1].meta["val"].shape[2:])
    padding = a[4]
    if isinstance(padding, str):
        span = [
            d * (k - 1)
            for d, k in zip(a[5] if len(a[5]) > 1 else a[5] * len(kernel), kernel, strict=True)
        ]
        padding = [0 if padding == "valid" else s // 2 for s in span]
    geom = _geom(x, y, kernel, a[3], padding, a[5], a[6])
    if max(geom[6:14]) > 255:
        raise ValueError(
            f"kernel, stride, padding and dilation of a conv are at most 255 for the device, got {geom} ({at})."
        )
    return Node("conv", (r.value(a[0]),), y, name, geom, params=params)


def _linear(r: _Reader, at: str, a: list[Any], x: tuple[int, ...], y: tuple[int, ...]) -> Node:
    if prod(y[:-1]) > 65535:
        raise ValueError(
            f"a linear layer takes up to 65535 rows on the device, got {prod(y[:-1])} ({at})."
        )
    name, params = r.named(a[1], a[2])
    return Node("fc", (r.value(a[0]),), y, name, params=params)


def _group_norm(r: _Reader, at: str, a: list[Any], x: tuple[int, ...], y: tuple[int, ...]) -> Node:
    name, params = r.named(a[2], a[3])
    return Node("norm", (r.value(a[0]),), y, name, groups=a[1], eps=a[4], params=params)


def _act(kind: str) -> Callable[..., Node]:
    def read(r: _Reader, at: str, a: list[Any], x: tuple[int, ...], y: tuple[int, ...]) -> Node:
        if kind == "relu6" and len(a) == 3 and (a[1], a[2]) != (0, 6):
            raise ValueError(
                f"the device knows hardtanh from 0 to 6 (ReLU6) alone, got {a[1]} to {a[2]} ({at})."
            )
        return Node("act", (r.value(a[0]),), y, act=kind, slope=a[1] if kind == "leaky" else 0.0)

    return read


def _max_pool(r: _Reader, at: str, a: list[Any], x: tuple[int, ...], y: tuple[int, ...]) -> Node:
    if a[5]:
        raise ValueError(
            f"the device pools whole windows, got ceil_mode=True ({at}): pad the image instead."
        )
    geom = _geom(x, y, a[1], a[2] or a[1], a[3], a[4])
    if geom.kh * geom.kw > 256:
        raise ValueError(
            f"a max-pooling window holds at most 256 pixels, got {geom.kh}x{geom.kw} ({at})."
        )
    return Node("maxpool", (r.value(a[0]),), y, geom=geom)


def _avg_pool(r: _Reader, at: str, a: list[Any], x: tuple[int, ...], y: tuple[int, ...]) -> Node:
    if a[4] or (len(a) > 6 and a[6]):
        raise ValueError(
            f"the device pools whole windows, got ceil_mode or divisor_override ({at}): leave them out."
        )
    return Node(
        "avgpool",
        (r.value(a[0]),),
        y,
        geom=_geom(x, y, a[1], a[2] or a[1], a[3], [1]),
        count_pad=bool(a[5]),
    )


def _adaptive_pool(
    r: _Reader, at: str, a: list[Any], x: tuple[int, ...], y: tuple[int, ...]
) -> Node:
    if any(i % o for i, o in zip(x[1:], y[1:], strict=True)):
        raise ValueError(
            f"adaptive pooling needs output sides that divide the input's, got {x[1:]} to {y[1:]} ({at})."
        )
    window = [i // o for i, o in zip(x[1:], y[1:], strict=True)]
    return Node("avgpool", (r.value(a[0]),), y, geom=_geom(x, y, window, window, [0], [1]))


def _mean(r: _Reader, at: str, a: list[Any], x: tuple[int, ...], y: tuple[int, ...]) -> Node:
    axes = sorted(d % (len(x) + 1) for d in a[1] or [])
    if axes != list(range(2, len(x) + 1)) or len(x) < 2:
        raise ValueError(
            f"the device takes the mean over all of space (global pooling), got axes {a[1]} of {x} ({at})."
        )
    window = list(x[1:])
    return Node(
        "avgpool",
        (r.value(a[0]),),
        y,
        geom=_geom(x, (x[0], *[1] * len(window)), window, window, [0], [1]),
    )


def _add(r: _Reader, at: str, a: list[Any], x: tuple[int, ...], y: tuple[int, ...]) -> Node:
    left, right = r.value(a[0]), r.value(a[1])
    if a[2] != 1 or tuple(a[1].meta["val"].shape[1:]) != x or x != y:
        raise ValueError(
            f"the device adds two tensors of the same shape, got {x} and {tuple(a[1].meta['val'].shape[1:])} ({at})."
        )
    return Node("add", (left, right), y)


def _view(r: _Reader, at: str, a: list[Any], x: tuple[int, ...], y: tuple[int, ...]) -> Node:
    if prod(x) != prod(y):
        raise ValueError(
            f"the device looks at one sample in another shape, got {x} as {y} ({at}): keep the batch axis apart."
        )
    return Node("view", (r.value(a[0]),), y)


SAME = {"dropout", "alias", "contiguous", "clone", "feature_dropout"}
READERS: dict[str, Callable[..., Node]] = {
    **dict.fromkeys(("conv1d", "conv2d"), _conv),
    "linear": _linear,
    "group_norm": _group_norm,
    **dict.fromkeys(("relu", "relu_"), _act("relu")),
    **dict.fromkeys(("leaky_relu", "leaky_relu_"), _act("leaky")),
    **dict.fromkeys(("relu6", "hardtanh", "hardtanh_"), _act("relu6")),
    **dict.fromkeys(("max_pool1d", "max_pool2d"), _max_pool),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), _avg_pool),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d"), _adaptive_pool),
    "mean": _mean,
    **dict.fromkeys(("add", "add_"), _add),
    **dict.fromkeys(("view", "reshape", "flatten", "squeeze", "unsqueeze", "_unsafe_view"), _view),
}
