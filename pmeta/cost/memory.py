"""Peak dynamic memory of adapting a network (App. A, Eqs. 16 and 17). Plain Python.

The dense figures of the paper's Tables 1 to 3 come out of a walk over the forward pass, not out of
Eq. 16 taken literally, whose sum and max count one buffer twice. Two accountings share the walk:
"paper" gives the paper's figures, "exact" adds what a device needs and the paper leaves out. All
memory is in words of 4 bytes.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pmeta.cost.ops import (
    Op,
    Ratio,
    attended,
    below,
    channels,
    check_batch,
    check_layers,
    layer_names,
    m,
    ratio_of_layers,
    reached,
    weight_words,
)


def stored_words(
    ops: Sequence[Op],
    update: Collection[str],
    mu_fw: Ratio = 1.0,
    accounting: str = "paper",
    attention: bool = False,
) -> list[float]:
    """Words a sample that each op keeps from the forward for the backward pass (Eq. 17, and the
    bits of Eq. 16).

    Attention keeps its C_I + C_O scores for each updated layer but the output layer, as the
    appendix bounds it.
    """
    exact = accounting == "exact"
    hit = reached(ops, update)
    ratios = ratio_of_layers(ops, mu_fw)
    with_scores = attended(ops, update) if attention else set()
    kept = []
    for i, op in enumerate(ops):
        if not op.name:
            words = _kept(ops, i, hit, exact) if hit[i] else 0.0
        elif op.kind == "norm" and exact and below(op, hit):
            # its input gradient reads the DENSE normalized input, and 1/std
            words = float(m(op.x) + op.groups)
        else:
            words = ratios[op.name] * m(op.x) if op.name in update else 0.0  # Eq. 17
        kept.append(words + (sum(channels(op)) if op.name in with_scores else 0))
    return kept


def _kept(ops: Sequence[Op], i: int, hit: Sequence[bool], exact: bool) -> float:
    """What an op without weights stores: a ReLU one bit an element (T = 32), a max-pool two an
    output (T = 16).

    A product stores each factor whose fellow needs a gradient."""
    op = ops[i]
    if op.kind == "mul":
        pairs = zip(op.inputs, reversed(op.inputs), strict=True) if len(op.inputs) == 2 else ()
        return float(sum(_words(ops, other) for t, other in pairs if t >= 0 and hit[t]))
    if op.kind == "other":
        return float(m(op.x) * len(op.inputs))
    bits = {"relu": 1, "maxpool": 2}.get(op.kind, 0)
    if not exact:
        return m(op.y) * bits / 32
    if op.kind == "maxpool" and op.kernel:
        bits = max(2, (math.prod(op.kernel) - 1).bit_length())
    return float(math.ceil(m(op.y) * bits / 32))


def _words(ops: Sequence[Op], t: int) -> int:
    """Words of a tensor, before it was expanded if it was."""
    if t < 0:
        return m(ops[0].x)
    expanded = ops[t].kind == "view" and m(ops[t].y) > m(ops[t].x)
    return m(ops[t].x if expanded else ops[t].y)


@dataclass(frozen=True)
class Moment:
    """What lives in memory while one op runs, in words a sample."""

    op: int
    stored: float
    """kept for the backward pass, this op's own part included"""
    working: float
    """inputs and outputs (backward: their gradients) and scratch"""


def forward_walk(
    ops: Sequence[Op],
    update: Collection[str] = (),
    mu_fw: Ratio = 1.0,
    accounting: str = "paper",
    attention: bool = False,
) -> list[Moment]:
    """The liveness walk over the forward pass.

    - An updated conv, norm or fc stores its own input (norm: the normalized one), mu_fw of its
      channels.
    - What is not stored of an input without later readers shares memory with the output: max{m(x),
      m(y)}. For fc the appendix says m(x) + m(y), but 0.08 MB (inference) and 0.09 MB (ANIL) in
      Tables 1 and 3 come out shared.
    - A tensor with a later reader, as the input of a residual block, is held beside.
    - An add works in two buffers. The paper gives the second one back after the activation and
      pooling behind the add.
    """
    exact = accounting == "exact"
    stored = stored_words(ops, update, mu_fw, accounting, attention)
    ratios = ratio_of_layers(ops, mu_fw)
    last = _last_readers(ops)
    # words of each tensor
    unstored = {-1: float(m(ops[0].x))} | {i: float(m(op.y)) for i, op in enumerate(ops)}
    two_buffers: dict[int, float] = {}
    total, moments = 0.0, []
    for i, op in enumerate(ops):
        total += stored[i]
        if op.kind in ("conv", "fc") and op.name in update:
            source = op.inputs[0]
            unstored[source] = min(unstored[source], (1 - ratios[op.name]) * m(op.x))
        held = sum(unstored[t] for t in range(-1, i) if last[t] > i)
        read = sorted((unstored[t] for t in set(op.inputs) if last[t] == i), reverse=True) or [0.0]
        own = _shared(op, read[0], m(op.y), op.x, exact) + sum(read[1:])
        if not op.name:
            own = max(own, two_buffers.get(op.inputs[0], 0.0))
            two_buffers[i] = own if op.kind == "add" else two_buffers.get(op.inputs[0], 0.0)
        moments.append(Moment(i, total, held + own))
    return moments


def backward_walk(
    ops: Sequence[Op],
    update: Collection[str],
    mu_fw: Ratio = 1.0,
    attention: bool = False,
) -> list[Moment]:
    """The walk from the loss down to the first updated layer, in the exact accounting.

    g(y) and g(x) share memory as y and x do, beside all that the ops below have stored; a gradient
    that gathers from several readers is held from the first of them on.
    """
    stored = stored_words(ops, update, mu_fw, "exact", attention)
    hit = reached(ops, update)
    last = _last_readers(ops)
    total, moments = sum(stored), []
    for i, op in reversed(list(enumerate(ops))):
        if not hit[i]:
            continue
        held = sum(m(ops[t].y) for t in range(i) if hit[t] and last[t] > i)
        begun = sorted(
            (m(ops[t].y) for t in set(op.inputs) if t >= 0 and hit[t] and last[t] == i),
            reverse=True,
        ) or [0]
        own = _shared(op, m(op.y), begun[0], op.y, exact=True) + sum(begun[1:])
        moments.append(Moment(i, total, held + own))
        total -= stored[i]
    return moments


def _last_readers(ops: Sequence[Op]) -> dict[int, int]:
    """Index of the last op that reads each tensor; an output of the network is read after the last
    op."""
    last = dict.fromkeys(range(-1, len(ops)), len(ops))
    return last | {t: i for i, op in enumerate(ops) for t in op.inputs}


def _shared(op: Op, source: float, target: int, shape: tuple[int, ...], exact: bool) -> float:
    """Words of a source (of this shape) that its target overwrites, or of both side by side where
    that is less.

    To overwrite its source a kernel keeps the rows that it still reads; norm always keeps mean and
    1/std of each group.
    """
    if not exact:
        return max(source, target)
    if op.kind == "norm":
        return max(source, target) + 2 * op.groups
    rows = {
        "conv": shape[0] * op.kernel[0] * m(shape[2:]) if op.kernel else 0,
        "fc": shape[-1],
    }.get(op.kind, 0)
    return min(max(source, target) + rows, source + target)


def peak_words(
    ops: Sequence[Op],
    update: Collection[str],
    batch: int = 1,
    samples: int = 1,
    mu_fw: Ratio = 1.0,
    accounting: str = "paper",
    attention: bool = False,
    kept_words: int = 0,
) -> float:
    """Peak dynamic memory of one adaptation step in words (Eq. 16, walked), the layers of `update`
    having alpha > 0.

    `batch` samples at a time go through the network, of `samples` in all. `kept_words` is data that
    lies in memory all along, as the episodes of RL (exact accounting only).

    >>> from pmeta.cost.networks import four_conv
    >>> ops = four_conv()
    >>> round(peak_words(ops, layer_names(ops), samples=25) * 4 / 10**6, 2)  # MAML, Table 2
    2.06
    """
    check_layers(layer_names(ops), update)
    check_batch(batch, samples)
    if accounting not in ("paper", "exact"):
        raise ValueError(f"accounting must be 'paper' or 'exact', got {accounting!r}.")
    moments = forward_walk(ops, update, mu_fw, accounting, attention)
    if accounting == "exact":
        moments += backward_walk(ops, update, mu_fw, attention)
    peak = max(moment.stored + moment.working for moment in moments)
    accumulators = weight_words(ops, update) if batch < samples else 0
    return peak * batch + accumulators + (kept_words if accounting == "exact" else 0)  # Eq. 16
