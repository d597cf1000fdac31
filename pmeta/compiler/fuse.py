"""Stages of a forward pass: a conv or fc layer and the cheap operations behind it, which run channel by channel.

Output channels of a conv and groups of a group norm do not depend on each other. A stage can therefore run a few channels at a
time, and only its last output has to exist in full: this takes the arena below the largest activation of the network.
"""

from dataclasses import dataclass, field
from math import prod

from pmeta.compiler.read_model import Node

TAIL = ("norm", "act", "maxpool", "avgpool", "add")


@dataclass
class Stage:
    """`head` (None: a copy of `source`), then the operations of `tail`, by index into the list of nodes."""

    head: int | None
    source: int
    """The value that it reads; -1 is the network's input."""
    shape: tuple[int, ...]
    """Of the value it makes so far."""
    value: int
    tail: list[int] = field(default_factory=list)
    others: dict[int, int] = field(default_factory=dict)
    """For each add of the tail, the value that is added."""

    def reads(self) -> set[int]:
        return {self.source, *self.others.values()}


def split(nodes: list[Node]) -> tuple[list[Stage], list[int]]:
    """The stages in the order they run, and for each value the one that it is a view of (itself, if of none)."""
    root = list(range(len(nodes)))
    for i, node in enumerate(nodes):
        if node.kind == "view":
            root[i] = root[node.inputs[0]] if node.inputs[0] >= 0 else -1
    readers = [
        sum(_root(root, v) == i for n in nodes if n.kind != "view" for v in n.inputs)
        for i in range(len(nodes))
    ]
    stages: list[Stage] = []
    for i, node in enumerate(nodes):
        if node.kind in ("conv", "fc"):
            stages.append(Stage(i, _root(root, node.inputs[0]), node.shape, i))
        elif node.kind in TAIL:
            _append(stages, nodes, root, readers, i)
    return stages, root


def _root(root: list[int], value: int) -> int:
    return value if value < 0 else root[value]


def _append(
    stages: list[Stage], nodes: list[Node], root: list[int], readers: list[int], i: int
) -> None:
    """Put operation i behind the stage that makes its input, or begin a new stage with it."""
    node = nodes[i]
    values = [_root(root, v) for v in node.inputs]
    making = [next((s for s, stage in enumerate(stages) if stage.value == v), -1) for v in values]
    at = max(making)  # the stage that runs last: the other input of an add is there by then
    own = making.index(at)
    fits = (
        at >= 0
        and readers[values[own]] == 1
        and _fits(stages[at], nodes, node, nodes[node.inputs[own]].shape)
    )
    if not fits:
        source = max(values)
        stages.append(Stage(None, source, _input_shape(nodes, node, source), i))
        at = len(stages) - 1
    stage = stages[at]
    if node.kind == "add":
        (left, right) = values
        mine = stage.source if not fits else stage.value
        stage.others[i] = right if left == mine else left
    stage.tail.append(i)
    stage.value, stage.shape = i, node.shape


def _input_shape(nodes: list[Node], node: Node, source: int) -> tuple[int, ...]:
    if node.geom is not None:
        return (node.geom.c_in, node.geom.h, node.geom.w)
    return node.shape


def _fits(stage: Stage, nodes: list[Node], node: Node, shape: tuple[int, ...]) -> bool:
    if node.kind in ("act", "add"):
        return prod(node.shape) == prod(stage.shape)
    one_norm = node.kind != "norm" or all(nodes[t].kind != "norm" for t in stage.tail)
    return (
        one_norm
        and prod(shape) == prod(stage.shape)
        and shape[0] == stage.shape[0]
        and _is_image(stage, nodes)
    )


def _is_image(stage: Stage, nodes: list[Node]) -> bool:
    """Channels come first; not so in the rows of an fc layer that sees many rows."""
    return (
        stage.head is None or nodes[stage.head].kind == "conv" or len(nodes[stage.head].shape) == 1
    )
