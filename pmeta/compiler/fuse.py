"""Stages of a forward pass: a conv or fc layer and the cheap operations behind it.

Output channels of a conv and groups of a group norm do not depend on each other. A stage can
therefore run a few channels at a time, and only its last output has to exist in full: this takes
the arena below the largest activation of the network.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from pmeta.compiler.read_model import Node, root_of

NORMS = ("norm", "layer_norm")
TAIL = (*NORMS, "act", "curve", "maxpool", "avgpool", "add", "mul", "cat")


@dataclass
class Stage:
    """`head` (None: a copy of `source`), then the operations of `tail`, by number of their node."""

    head: int | None
    source: int
    """The value that it reads; -1 is the network's input."""
    head_shape: tuple[int, ...]
    """Of what the head makes."""
    value: int
    """What it makes so far, the output of its last operation."""
    shape: tuple[int, ...]
    tail: list[int] = field(default_factory=list)
    others: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """For each add, mul and cat of the tail, the other values that it reads."""

    def reads(self) -> set[int]:
        return {self.source, *(value for values in self.others.values() for value in values)}


RISING = ("relu", "leaky", "relu6")
"""Activations that keep the order of numbers: the largest stays the largest."""


@dataclass(frozen=True)
class Tail:
    """The operations of a tail in the order they run, and the shape behind each.

    A max-pool behind a norm may come first: a norm keeps the order of a channel's numbers, or
    turns it around where its weight is negative, so that it is computed only for the winners."""

    order: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    """Before the first operation, and behind each."""
    pools_first: bool = False
    """The second operation is a max-pool that belongs before the first, a norm."""

    @classmethod
    def of(cls, nodes: Sequence[Node], stage: Stage) -> "Tail":
        shapes = (stage.head_shape, *(nodes[t].shape for t in stage.tail))
        return cls(tuple(stage.tail), shapes)

    def pooled_first(self, nodes: Sequence[Node]) -> "Tail | None":
        """The same with the norm behind the max-pool, None if there are no such two."""
        kinds = [nodes[t].kind for t in self.order]
        if "maxpool" not in kinds or kinds[0] != "norm":
            return None
        norm, *acts, pool = self.order[: kinds.index("maxpool") + 1]
        if any(nodes[t].kind != "act" or not _rises(nodes[t]) for t in acts):
            return None
        rest = self.order[len(acts) + 2 :]
        shapes = [self.shapes[0], self.shapes[1], *[nodes[pool].shape] * (len(acts) + 1)]
        shapes += [nodes[t].shape for t in rest]
        return Tail((norm, pool, *acts, *rest), tuple(shapes), pools_first=True)

    def without_norm(self, nodes: Sequence[Node]) -> tuple[int, ...] | None:
        """The max-pool and then the activations of a tail that has nothing else."""
        pools = [t for t in self.order if nodes[t].kind == "maxpool"]
        acts = [t for t in self.order if nodes[t].kind == "act" and _rises(nodes[t])]
        return (*pools, *acts) if len(pools) == 1 == len(self.order) - len(acts) else None


def _rises(node: Node) -> bool:
    return node.act in RISING and node.slope >= 0


def split(nodes: Sequence[Node]) -> list[Stage]:
    """The stages in the order they run."""
    splitter = _Splitter(nodes)
    for i, node in enumerate(nodes):
        if node.kind in ("conv", "fc"):
            source = root_of(nodes, node.inputs[0])
            splitter.stages.append(Stage(i, source, node.shape, i, node.shape))
        elif node.kind in TAIL:
            splitter.append(i)
    return splitter.stages


class _Splitter:
    def __init__(self, nodes: Sequence[Node]):
        self.nodes = nodes
        self.stages: list[Stage] = []
        read = [root_of(nodes, v) for n in nodes if n.kind != "view" for v in n.inputs]
        self.readers = {value: read.count(value) for value in read}

    def append(self, i: int) -> None:
        """Put operation i behind the stage that makes its input, or begin a new stage with it."""
        node = self.nodes[i]
        values = [root_of(self.nodes, v) for v in node.inputs]
        makers = [self._maker(v) for v in values]
        last = max(makers)  # the stage that runs last: the other input of an add is there by then
        own = makers.index(last)
        begins = node.kind in ("mul", "cat")  # they read their first input where it lies
        if last >= 0 and not begins and self._joins(self.stages[last], node, own):
            stage = self.stages[last]
        else:
            g, own = node.geom, 0 if begins else values.index(max(values))
            shape = (g.c_in, g.h, g.w) if g else node.shape
            stage = Stage(None, values[own], shape, i, shape)
            self.stages.append(stage)
        if len(values) > 1:
            stage.others[i] = (*values[:own], *values[own + 1 :])
        stage.tail.append(i)
        stage.value, stage.shape = i, node.shape

    def _maker(self, value: int) -> int:
        """The stage that ends in a value, -1 if there is none."""
        return next((s for s, stage in enumerate(self.stages) if stage.value == value), -1)

    def _joins(self, stage: Stage, node: Node, own: int) -> bool:
        """Whether an operation can run behind a stage that makes its input number `own`."""
        if self.readers[stage.value] != 1 or self.nodes[stage.value].kind == "cat":
            return False
        norms = sum(self.nodes[t].kind in NORMS for t in stage.tail)
        if node.kind == "layer_norm":
            return not norms and prod(node.shape) == prod(stage.shape)
        if node.kind in ("act", "curve", "add"):
            return prod(node.shape) == prod(stage.shape)
        shape = self.nodes[node.inputs[own]].shape
        one_norm = node.kind != "norm" or not norms
        same = prod(shape) == prod(stage.shape) and shape[0] == stage.shape[0]
        return one_norm and same and self._is_image(stage)

    def _is_image(self, stage: Stage) -> bool:
        """Channels come first; not so in the rows of an fc layer that sees many rows."""
        head = self.nodes[stage.head] if stage.head is not None else None
        return head is None or head.kind == "conv" or len(head.shape) == 1
