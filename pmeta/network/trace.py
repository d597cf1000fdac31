"""One forward pass of any nn.Module as the operations that the cost model counts (App. A)."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pmeta.cost.ops import Op

# What the gradient of an operation keeps: a bit an element, two bits a window, nothing, of a
# product its factors, or (any other) its input or its output.
NAMES = {
    "relu": "relu relu_ leaky_relu leaky_relu_ hardtanh hardtanh_ threshold hardsigmoid "
    "hardsigmoid_",
    "maxpool": "max_pool2d_with_indices max_pool1d max_pool2d "
    "adaptive_max_pool2d adaptive_max_pool1d",
    "pool": "avg_pool2d avg_pool1d _adaptive_avg_pool2d adaptive_avg_pool2d adaptive_avg_pool1d "
    "mean",
    "add": "add add_",
    "mul": "mul mul_",
    "view": "view _unsafe_view reshape flatten clone permute transpose t squeeze unsqueeze expand "
    "cat stack split split_with_sizes unbind slice select constant_pad_nd",
}
READS = ("_local_scalar_dense", "equal", "allclose")
"""What bool(x), x.item(), torch.equal and their like call."""
KINDS = {name: kind for kind, names in NAMES.items() for name in names.split()}


def trace(
    model: nn.Module, example: Tensor, layers: dict[nn.Module, str]
) -> tuple[tuple[Op, ...], list[str]]:
    """The operations of a forward pass, and the names of `layers` in the order they ran.

    Raises ValueError when a layer runs twice, when its weights are used elsewhere, when its input
    has no batch axis, or when something writes over its input or output in place."""
    x = example[:1]
    tracer = _TracingMode(x, layers)
    handles = [m.register_forward_pre_hook(tracer.enter) for m in layers]
    handles += [m.register_forward_hook(tracer.leave) for m in layers]
    try:
        with torch.no_grad(), tracer:
            model(x)
    finally:
        for handle in handles:
            handle.remove()
    tracer.check_untouched()
    return _relu_first(tracer.ops), tracer.order


class _Tracer:
    def __init__(self, example: Tensor, layers: dict[nn.Module, str]):
        super().__init__()
        self.layers = layers
        self.owned = {
            id(p): f"{name}.{n}"
            for m, name in layers.items()
            for n, p in m.named_parameters(recurse=False)
        }
        self.ops: list[Op] = []
        self.order: list[str] = []
        self.made_by = {id(example): -1}
        self.held: list[Tensor] = [example]  # keeps the ids valid
        self.watched: list[tuple[str, Tensor, int]] = []
        self.inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.inside:
            return out
        tensors = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor)]
        self._refuse_owned(tensors)
        made = [y for y in tree_leaves(out) if isinstance(y, Tensor)]
        known = [a for a in tensors if id(a) in self.made_by]
        name = func.overloadpacket.__name__
        if known and name in READS:
            raise ValueError(
                "a forward pass takes the same path for all samples, but this one reads a number "
                "that depends on its input, as `if x.sum() > 0` does: choose with torch.where."
            )
        if known and made:
            kind = KINDS.get(name, "other")
            window = _window(name, args) if kind == "maxpool" else ()
            self._append(
                Op(kind, *_shapes(known[0], made[0]), self._sources(known), kernel=window), *made
            )
        return out

    def _refuse_owned(self, tensors: list[Tensor]) -> None:
        for name in (self.owned[id(t)] for t in tensors if id(t) in self.owned):
            raise ValueError(
                f"a weight works in its layer alone, but {name!r} is also used outside it, where "
                "its gradient would be missed: call the layer itself, or give that place a layer "
                "of its own."
            )

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        name = self.layers[module]
        if name in self.order:
            raise ValueError(
                f"a layer runs once in a forward pass, {name!r} runs twice: give each place its "
                "own layer."
            )
        if len(args) != 1:
            raise ValueError(
                f"a layer is called with its input alone and by position, {name!r} is not: call it "
                "as layer(x)."
            )
        x = args[0]
        if len(x) != 1:
            raise ValueError(
                f"the first axis of a layer's input is the batch, but one sample reaches {name!r} "
                f"as {tuple(x.shape)}: keep the batch axis in front and do not fold other axes "
                "into it."
            )
        self.order.append(name)
        self.watched.append((name, x, x._version))
        self.inside = True

    def leave(self, module: nn.Module, args: tuple[Any, ...], y: Tensor) -> None:
        self.inside = False
        name, (x,) = self.layers[module], args
        self.watched.append((name, y, y._version))
        self._append(_layer_op(name, module, x, y, self._sources([x])), y)

    def check_untouched(self) -> None:
        for name, tensor, version in self.watched:
            if tensor._version != version:
                raise ValueError(
                    f"an in-place operation writes over the input or output of layer {name!r}, so "
                    "that its gradient would be taken at the wrong place: use inplace=False (and "
                    "y = y + x, not y += x) next to that layer."
                )

    def _sources(self, tensors: list[Tensor]) -> tuple[int, ...]:
        return tuple(self.made_by.get(id(t), -1) for t in tensors)

    def _append(self, op: Op, *made: Tensor) -> None:
        self.made_by.update({id(y): len(self.ops) for y in made})
        self.held.extend(made)
        self.ops.append(op)


class _TracingMode(_Tracer, TorchDispatchMode):
    """In a class of its own: torch would import its compiler for a mode that defines
    __torch_dispatch__ itself."""


def _window(name: str, args: Any) -> tuple[int, ...]:
    """The window of a max-pool where it is not 2x2; an adaptive one has the largest that gives its
    output."""
    size = tuple(args[1])
    if name.startswith("adaptive"):
        size = tuple(-(-n // s) for n, s in zip(args[0].shape[-len(size) :], size, strict=True))
    return () if size == (2, 2) else size


def _shapes(x: Tensor, y: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(x.shape[1:]), tuple(y.shape[1:])


def _layer_op(name: str, module: Any, x: Tensor, y: Tensor, inputs: tuple[int, ...]) -> Op:
    kind = {nn.Conv1d: "conv", nn.Conv2d: "conv", nn.Linear: "fc"}.get(type(module), "norm")
    groups = getattr(module, "num_groups" if kind == "norm" else "groups", 1)
    if isinstance(module, nn.LayerNorm):
        groups = math.prod(x.shape[1:-1])  # every row by itself
    span = zip(module.kernel_size, module.dilation, strict=True) if kind == "conv" else ()
    kernel = tuple(d * (k - 1) + 1 for k, d in span)
    bias = 0 if module.bias is None else module.bias.numel()
    return Op(kind, *_shapes(x, y), inputs, name, module.weight.numel(), bias, kernel, groups)


def _relu_first(ops: list[Op]) -> tuple[Op, ...]:
    """Max-pooling and a rising function commute; whichever way the model has them, they are counted
    as the paper does."""
    ops = list(ops)
    for i in range(1, len(ops)):
        pool, relu = ops[i - 1], ops[i]
        alone = sum(i - 1 in op.inputs for op in ops) == 1
        if (pool.kind, relu.kind, relu.inputs) == ("maxpool", "relu", (i - 1,)) and alone:
            ops[i - 1] = Op("relu", pool.x, pool.x, pool.inputs)
            ops[i] = replace(pool, inputs=(i - 1,))
    return tuple(ops)
