"""The record of a computation: all that PyTorch's dispatcher and our own kernels compute.

Tensors are told apart by where they lie in memory, so that a tensor and what autograd saves of it
are one. Sizes, settings and every choice that Python makes are part of the record.
"""

import operator
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_flatten, tree_map_only

P = ParamSpec("P")
R = TypeVar("R")
aten = torch.ops.aten


class NotReplayableError(RuntimeError):
    """Python saw a value of a tensor, or a size that depends on values, on which what comes next
    may depend."""


def kernel(f: Callable[P, R]) -> Callable[P, R]:
    """Make f, which computes new tensors out of PyTorch's sight, one operation of a record."""

    @wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        recorder = _get_current_dispatch_mode()
        if not isinstance(recorder, Recorder):
            return f(*args, **kwargs)
        result: R = recorder.note(f, args, kwargs)
        return result

    return call


class Recorder(TorchDispatchMode):
    """While this is on, operations are computed and noted in `graph`, whose inputs are first
    `inputs`, then `constants`."""

    def __init__(self, inputs: Sequence[Tensor]):
        super().__init__()
        self.graph = fx.Graph()
        self.constants: list[Tensor] = []
        self.changed: set[int] = set()
        """Memories that an operation in place writes to, by number."""
        self.memory: dict[fx.Node, int] = {}
        """The number of the memory in which a node's tensor lies."""
        self.layout: dict[fx.Node, Hashable] = {}
        # by address of the memory, then by layout
        self._views: dict[int, dict[Hashable, fx.Node]] = {}
        self._last_input: fx.Node | None = None
        self._is_inside = False
        for t in inputs:
            self._add_input(t)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.note(func, args, kwargs or {})

    def note(self, f: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """f(*args, **kwargs), noted."""
        if self._is_inside:
            return f(*args, **kwargs)
        if _depends_on_values(f, args):
            raise NotReplayableError(f"{f} shows values")
        if f is aten.lift_fresh.default:  # a constant made by Python
            self._forget(args[0])
        given = {address(t) for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)}
        noted_args, noted_kwargs = tree_map_only(Tensor, self.node, (args, kwargs))
        written = _written(f, args, kwargs)
        self.changed.update(self.memory[self.node(t)] for t in written)
        self._is_inside = True
        try:
            result = f(*args, **kwargs)
        finally:
            self._is_inside = False
        results = [result] if isinstance(result, Tensor) or result is None else list(result)
        for t in results:
            if isinstance(t, Tensor) and address(t) not in given:
                self._forget(t)
        if not written and all(self._known(t) for t in results if isinstance(t, Tensor)):
            return result  # a view that there is already
        call = self.graph.call_function(f, noted_args, noted_kwargs)
        for i, t in enumerate(results):
            if isinstance(t, Tensor) and not self._known(t):
                self._name(
                    t,
                    call if t is result else self.graph.call_function(operator.getitem, (call, i)),
                )
        return result

    def node(self, t: Tensor) -> fx.Node:
        """The node of a tensor; one that is not known is a constant."""
        return self._known(t) or self._add_constant(t)

    def _known(self, t: Tensor) -> fx.Node | None:
        return self._views.get(address(t), {}).get(_layout(t))

    def _name(self, t: Tensor, node: fx.Node) -> None:
        views = self._views.setdefault(address(t), {})
        self.memory[node] = self.memory[next(iter(views.values()))] if views else len(self.memory)
        views[_layout(t)] = node
        self.layout[node] = t.shape, t.stride(), t.dtype

    def _forget(self, t: Tensor) -> None:
        """Its memory is new: what lay at the same address before is gone."""
        self._views.pop(address(t), None)

    def _add_constant(self, t: Tensor) -> fx.Node:
        self.constants.append(t)
        return self._add_input(t)

    def _add_input(self, t: Tensor) -> fx.Node:
        before = (
            self.graph.inserting_after(self._last_input)
            if self._last_input
            else self.graph.inserting_before()
        )
        with before:
            node = self._last_input = self.graph.placeholder(f"input_{len(self.memory)}")
        self._name(t, node)
        return node


def address(t: Tensor) -> int:
    return t.untyped_storage().data_ptr()


def _layout(t: Tensor) -> Hashable:
    return t.storage_offset(), t.shape, t.stride(), t.dtype


def _depends_on_values(f: Any, args: Any) -> bool:
    """Whether an operation gives a value to Python, or a tensor of a size that depends on
    values."""
    if not isinstance(f, OpOverload):
        return False
    if f is aten.index.Tensor:  # has the tag for the sake of masks
        return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    return torch.Tag.data_dependent_output in f.tags or torch.Tag.dynamic_output_shape in f.tags


def _written(f: Any, args: Any, kwargs: Any) -> list[Tensor]:
    if not isinstance(f, OpOverload) or not f._schema.is_mutable:
        return []
    given = {**dict(zip((s.name for s in f._schema.arguments), args, strict=False)), **kwargs}
    written = [
        given[s.name]
        for s in f._schema.arguments
        if s.alias_info and s.alias_info.is_write and s.name in given
    ]
    return [t for t in tree_flatten(written)[0] if isinstance(t, Tensor)]
