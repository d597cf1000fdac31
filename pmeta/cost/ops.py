"""A network as the cost model sees it (App. A): its operations and their shapes. Plain Python."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

WORD = 4  # bytes
MB = 10**6  # bytes, as the paper counts

Ratio = float | Mapping[str, float]
"""mu_fw or mu_bw: a number for all layers but the output layer, which stays dense (Sec. 4.1), or
one a layer name."""


@dataclass(frozen=True)
class Op:
    """One operation of the forward pass, shapes for ONE sample (an image, or an episode of T
    observations)."""

    kind: str
    """conv | norm | fc | relu | maxpool | pool (average, global) | add | mul | view | other
    (its gradient needs its input or output, as those of SiLU, hardswish and sigmoid)"""
    x: tuple[int, ...]
    """input shape: conv, norm and the rest (C, *space); fc (*rows, C), e.g. (800,), or (200, 20)
    for an episode"""
    y: tuple[int, ...]
    """output shape, likewise"""
    inputs: tuple[int, ...]
    """index in the list of the ops that made the inputs; -1 is the network's input"""
    name: str = ""
    """weight layers (conv, norm, fc): the layer's name as in the module; "" otherwise"""
    weight: int = 0
    """words of the weight"""
    bias: int = 0
    """words of the bias"""
    kernel: tuple[int, ...] = ()
    """conv: kernel size (dilated: its span); max-pool: its window where that is not 2x2"""
    groups: int = 1
    """conv: groups; norm: number of groups"""


def m(shape: tuple[int, ...]) -> int:
    """Words of a tensor."""
    return math.prod(shape)


def channels(op: Op) -> tuple[int, int]:
    """C_I and C_O of a layer."""
    if op.kind == "norm":
        return op.weight, op.weight  # of a layer norm they are the last axis
    return (op.x[-1], op.y[-1]) if op.kind == "fc" else (op.x[0], op.y[0])


def layer_names(ops: Sequence[Op]) -> list[str]:
    """The weight layers in execution order; the last one is the output layer."""
    return [op.name for op in ops if op.name]


def input_words(ops: Sequence[Op]) -> dict[str, int]:
    """m(x_{l-1}) of every layer: the words a sample that updating this layer alone stores (Eqs. 5
    and 9)."""
    return {op.name: m(op.x) for op in ops if op.name}


def weight_words(ops: Sequence[Op], names: Collection[str] | None = None) -> int:
    """Sum of m(w_l), biases included, over the layers named (None: all)."""
    return sum(op.weight + op.bias for op in ops if op.name and (names is None or op.name in names))


def ratio_of_layers(ops: Sequence[Op], mu: Ratio) -> dict[str, float]:
    """One ratio for every layer name, from a number or from some names (the others are dense)."""
    names = layer_names(ops)
    if isinstance(mu, Mapping):
        check_layers(names, mu)
        ratios = {name: mu.get(name, 1.0) for name in names}
    else:
        ratios = dict.fromkeys(names, mu) | dict.fromkeys(names[-1:], 1.0)
    for name, ratio in ratios.items():
        if not 0 <= ratio <= 1:
            raise ValueError(
                f"a ratio mu must be in [0, 1], got {ratio} for {name}: give surviving channels / "
                "channels."
            )
    return ratios


def attended(ops: Sequence[Op], update: Collection[str]) -> set[str]:
    """The layers whose attention runs: the updated ones, without the output layer (Sec. 4.1)."""
    return set(layer_names(ops)[:-1]) & set(update)


def reached(ops: Sequence[Op], update: Collection[str]) -> list[bool]:
    """Which ops the backward pass reaches: updated layers and all that reads from them (l >= l_min,
    branch by branch)."""
    hit: list[bool] = []
    for op in ops:
        hit.append(bool(op.name and op.name in update) or below(op, hit))
    return hit


def below(op: Op, hit: Sequence[bool]) -> bool:
    """Whether an updated layer lies below op, so that op must pass a gradient down to its input."""
    return any(hit[t] for t in op.inputs if t >= 0)


def check_layers(names: Sequence[str], given: Iterable[str]) -> None:
    """Raise ValueError for a name in `given` that is no layer."""
    for name in given:
        if name not in names:
            raise ValueError(
                f"layers are named as in the network, got {name!r}: the names are "
                f"{', '.join(names)}."
            )


def check_batch(batch: int, samples: int) -> None:
    """Raise ValueError unless 1 <= batch <= samples."""
    if samples < 1:
        raise ValueError(f"a support set has at least 1 sample, got {samples}.")
    if not 1 <= batch <= samples:
        raise ValueError(
            f"a batch has from 1 to all {samples} samples of the support set, got {batch}."
        )
