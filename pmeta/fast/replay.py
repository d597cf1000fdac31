"""A computation on tensors, recorded once and replayed: the same operations in less time.

What is recorded is all that PyTorch's dispatcher and our own kernels compute. Tensors are told
apart by where they lie in memory, so that a tensor and what autograd saves of it are one. Sizes,
settings and every choice that Python makes are part of the record.
"""

import operator
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

Compute = Callable[..., Sequence[Tensor]]
P = ParamSpec("P")
R = TypeVar("R")
AFTER = 20
"""So many calls alike show that a record will pay."""
CHANGED = (
    "what a task computes has changed since it was recorded: the last tasks may have been "
    "computed as before the change, and from now on nothing is replayed. Train with replay=False "
    "if the loss or the model depends on numbers of Python."
)

aten = torch.ops.aten
BOUND = {
    aten.add.Tensor: torch.add,
    aten.addcmul.default: torch.addcmul,
    aten.addmm.default: torch.addmm,
    aten.div.Scalar: torch.div,
    aten.div.Tensor: torch.div,
    aten.ge.Tensor: torch.ge,
    aten.mean.dim: torch.mean,
    aten.mm.default: torch.mm,
    aten.mul.Scalar: torch.mul,
    aten.mul.Tensor: torch.mul,
    aten.neg.default: torch.neg,
    aten.pow.Tensor_Scalar: torch.pow,
    aten.relu.default: torch.relu,
    aten.sub.Tensor: torch.sub,
    aten.sum.default: torch.sum,
    aten.sum.dim_IntList: torch.sum,
    aten.t.default: torch.t,
    aten.unsqueeze.default: torch.unsqueeze,
}
"""The same by PyTorch's Python bindings, which take half the time to call."""
TENSOR_METHODS = {aten.view.default: "view", aten.expand.default: "expand"}
"""Those that are bound as methods only."""


class NotReplayableError(RuntimeError):
    """Python saw a value of a tensor, or a size that depends on values, on which what comes next
    may depend."""


def kernel(f: Callable[P, R]) -> Callable[P, R]:
    """Make f, which computes new tensors out of PyTorch's sight, one operation of a record."""

    @wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if Recorder.at_work is None:
            return f(*args, **kwargs)
        result: R = Recorder.at_work.note(f, args, kwargs)
        return result

    return call


class Recorder(TorchDispatchMode):
    """While this is on, operations are computed and noted in `graph`, whose inputs are first
    `inputs`, then `constants`."""

    at_work: ClassVar["Recorder | None"] = None

    def __init__(self, inputs: Sequence[Tensor]):
        super().__init__()
        self.graph = fx.Graph()
        self.constants: list[Tensor] = []
        self.changed: set[int] = set()
        """Memories that an operation in place writes to, by number."""
        self.memory: dict[fx.Node, int] = {}
        """The number of the memory in which a node's tensor lies."""
        self.layout: dict[fx.Node, Hashable] = {}
        self._views: dict[
            int, dict[Hashable, fx.Node]
        ] = {}  # by address of the memory, then by layout
        self._last_input: fx.Node | None = None
        self._is_inside = False
        for t in inputs:
            self._add_input(t)

    def __enter__(self) -> "Recorder":
        Recorder.at_work = self
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        Recorder.at_work = None
        super().__exit__(*error)

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
        given = {_address(t) for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)}
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
            if isinstance(t, Tensor) and _address(t) not in given:
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
        return self._views.get(_address(t), {}).get(_layout(t))

    def _name(self, t: Tensor, node: fx.Node) -> None:
        views = self._views.setdefault(_address(t), {})
        self.memory[node] = self.memory[next(iter(views.values()))] if views else len(self.memory)
        views[_layout(t)] = node
        self.layout[node] = t.shape, t.stride(), t.dtype

    def _forget(self, t: Tensor) -> None:
        """Its memory is new: what lay at the same address before is gone."""
        self._views.pop(_address(t), None)

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


def _address(t: Tensor) -> int:
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


def _is_random(f: Any) -> bool:
    return isinstance(f, OpOverload) and torch.Tag.nondeterministic_seeded in f.tags


def _apart(inputs: Sequence[Tensor]) -> list[Tensor]:
    """The inputs, each in a memory of its own, by which they are told apart."""
    seen: set[int] = set()
    apart = []
    for t in inputs:
        apart.append(t.clone() if _address(t) in seen else t)
        seen.add(_address(t))
    return apart


def _is_same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


class Replay:
    """compute(*inputs), which `first` is the result of for the inputs it was recorded with."""

    def __init__(self, compute: Compute, inputs: Sequence[Tensor], share: bool = True):
        """Record. `share` has what is computed twice computed once and kept, for more memory."""
        recorder = Recorder(inputs)
        with recorder:
            self.first = compute(*inputs)
        graph = recorder.graph
        graph.output([recorder.node(t) for t in self.first])
        graph.eliminate_dead_code()
        _drop_zeros(graph, recorder)
        if share:
            _share(graph, recorder)
        _bind(graph)
        self.constants = recorder.constants
        self.module = fx.GraphModule(torch.nn.Module(), graph)

    @torch.inference_mode()
    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        result: Sequence[Tensor] = self.module(*inputs, *self.constants)
        return result


def _drop_zeros(graph: fx.Graph, recorder: Recorder) -> None:
    """Leave out sums with zeros, which the second derivative of a ReLU is full of."""
    for node in list(graph.nodes):
        if node.target is not aten.add.Tensor or node.kwargs:
            continue
        zeros = [
            a for a in node.args if isinstance(a, fx.Node) and a.target is aten.zeros_like.default
        ]
        others = [a for a in node.args if a not in zeros]
        if len(zeros) != 1 or not isinstance(others[0], fx.Node):
            continue
        memories = {recorder.memory[n] for n in (node, *node.args)}
        alike = recorder.layout[node] == recorder.layout[others[0]] == recorder.layout[zeros[0]]
        if alike and not memories & recorder.changed:
            node.replace_all_uses_with(others[0])
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _share(graph: fx.Graph, recorder: Recorder) -> None:
    """Let equal operations on equal inputs be one, unless something of theirs is written to or
    random."""
    found: dict[Hashable, fx.Node] = {}
    for node in list(graph.nodes):
        memories = {
            recorder.memory[n] for n in (node, *node.all_input_nodes) if n in recorder.memory
        }
        if node.op != "call_function" or memories & recorder.changed or _is_random(node.target):
            continue
        what = (node.target, node.args, tuple(node.kwargs.items()))
        if what in found:
            node.replace_all_uses_with(found[what])
            graph.erase_node(node)
        else:
            found[what] = node


def _bind(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if node.target in TENSOR_METHODS:
            node.op, node.target = "call_method", TENSOR_METHODS[node.target]
        else:
            node.target = BOUND.get(node.target, node.target)


class Replays:
    """Computations by their key, each recorded when it has come often enough, and checked before it
    is relied on.

    It is checked again now and then, less and less often: what a computation takes from Python (a
    number that it counts, the values of `tolist`) is part of the record, and may change when nobody
    looks."""

    def __init__(self, share: bool = True):
        self.share = share
        self.seen: Counter[Hashable] = Counter()
        self.records: dict[Hashable, Replay | None] = {}

    def run(self, key: Hashable, compute: Compute, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """compute(*inputs); `key` stands for everything but the inputs and their layout on which it
        depends."""
        inputs = _apart(inputs)
        key = (key, *((t.shape, t.stride(), t.dtype, t.device) for t in inputs))
        self.seen[key] += 1
        if self.seen[key] < AFTER:
            return compute(*inputs)
        if key not in self.records:
            return self._record(key, compute, inputs)
        replay = self.records[key]
        if replay is None:
            return compute(*inputs)
        relied_on = self.seen[key] - AFTER - 1
        if relied_on & (relied_on - 1):  # neither none nor a power of two
            return replay(*inputs)
        ours, right = replay(*inputs), compute(*inputs)
        if not all(_is_same(a, b) for a, b in zip(right, ours, strict=True)):
            self.records[key] = None
            if relied_on:
                warnings.warn(CHANGED, stacklevel=2)
        return right

    def _record(
        self, key: Hashable, compute: Compute, inputs: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        try:
            replay = self.records[key] = Replay(compute, inputs, self.share)
        except NotReplayableError:
            self.records[key] = None
            return compute(*inputs)
        first, replay.first = replay.first, ()
        return first
