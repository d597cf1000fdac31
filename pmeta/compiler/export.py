"""From a meta-trained model to model.pmeta: programs for every step, planned to the byte before any data is seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

import numpy as np
import torch
from torch import Tensor

from pmeta.compiler.fuse import split
from pmeta.compiler.ir import Model, Score
from pmeta.compiler.memory_plan import place
from pmeta.compiler.read_model import Node, read_graph
from pmeta.compiler.tiling import assemble, lay_out, macs, peak
from pmeta.device import format as flatfile
from pmeta.device.format import FILE_SPACE, INPUT_SPACE, Constants
from pmeta.method.attention import has_scores
from pmeta.method.learned import Meta
from pmeta.method.methods import Method
from pmeta.network.layers import Layer, Network


@dataclass(frozen=True)
class Exported:
    """A file, and what it was planned to."""

    data: bytes
    arena_bytes: int
    infer_bytes: int
    state_bytes: int
    input_bytes: int
    peaks: tuple[tuple[str, int], ...]
    """For inference and for each step: the layer at which the arena is fullest, and its bytes."""
    macs: tuple[int, ...]
    """Multiplications and additions a sample: inference, then each step."""
    batch: int | None
    """Samples that share their attention scores; None: the whole support set."""
    alone: tuple[str, ...]
    """Parameters that belong to no layer and that steps update: the engine leaves them to the caller."""


def export(
    net: Network,
    meta: Meta,
    method: Method,
    input_shape: Sequence[int],
    *,
    input_type: str = "float32",
    scale: Sequence[float] | None = None,
    shift: Sequence[float] | None = None,
    classes: Sequence[str] = (),
    batch: int | None = 1,
) -> Exported:
    """Compile a network with its step sizes and attention for the device.

    `input_shape` is that of a sample without the batch. With `input_type` "uint8" the device reads raw pixels and makes them
    `pixel * scale[c] + shift[c]`; scale is 1/255 and shift 0 unless given. Attention scores are those of micro-batches of
    `batch` samples (None: the whole support set), as in `InnerLoop`; any number above 1 takes the same memory.
    """
    channels = input_shape[0] if len(input_shape) > 1 else 1
    scale, shift = scale or [1 / 255] * channels, shift or [0.0] * channels
    _check(method, input_type, channels, scale, shift, batch)
    example = torch.zeros(1, *input_shape)
    nodes = read_graph(net.model.eval(), example)
    stages, root = split(nodes)
    updates = {k: frozenset(_live(net, meta, k)) for k in range(len(meta.alpha))}
    ever = frozenset().union(*updates.values())
    constants, copies, address, state = _weights(net, meta, nodes, ever)
    scores = _scores(net, meta, method, ever, constants)
    convert = input_type == "uint8" and any(-1 in n.inputs and n.kind != "conv" for n in nodes)
    model = Model(
        nodes, stages, root, address, scores, INPUT_SPACE, tuple(input_shape), batch != 1, convert
    )

    masks = [frozenset[str](), *dict.fromkeys(updates.values())]
    programs = [lay_out(model, live) for live in masks]
    arenas = [place(p.buffers, p.end, state) for p in programs]
    raws, instrs, geoms = assemble(
        model, programs, arenas, state, {layer.name: i for i, layer in enumerate(net.layers)}
    )
    header = {
        "arena_bytes": max(arenas),
        "infer_bytes": arenas[0],
        "state_bytes": state,
        "input_type": flatfile.INPUT_TYPES.index(input_type),
        "input_channels": channels,
        "input_plane": prod(input_shape) // channels,
        "outputs": prod(nodes[-1].shape),
        "rows": prod(nodes[-1].shape[:-1]),
        "steps": len(meta.alpha),
        "layers": len(net.layers),
        "batch": batch or 0,
    }
    factors = np.array([scale, shift], "f4")
    alpha = (meta.alpha.detach() * meta.updates()).numpy()
    steps = [masks[1:].index(updates[k]) + 1 for k in updates]
    data = flatfile.write(
        header,
        constants,
        factors,
        alpha,
        steps,
        raws,
        instrs,
        geoms,
        copies,
        _facts(net, meta, method, input_shape, classes, nodes, ever),
    )
    check_size(len(data), max(arenas))
    peaks = tuple(peak(programs[i], arenas[i]) for i in (0, *steps))
    work = tuple(macs(programs[i], model) for i in (0, *steps))
    size = prod(input_shape) * (1 if input_type == "uint8" else 4)
    return Exported(
        data, max(arenas), arenas[0], state, size, peaks, work, batch, _alone(net, meta)
    )


def _check(
    method: Method,
    input_type: str,
    channels: int,
    scale: Sequence[float],
    shift: Sequence[float],
    batch: int | None,
) -> None:
    if batch is not None and not 1 <= batch < 1 << 32:
        raise ValueError(
            f"a micro-batch has at least 1 sample and fewer than 2^32, got batch={batch}: give None for the whole support set."
        )
    if (method.sparse_fw, method.sparse_bw) != ("w", "w"):
        raise ValueError(
            "the device runs a dense forward and backward pass: sparse_fw='x' and sparse_bw='y' are ablations."
        )
    if input_type not in flatfile.INPUT_TYPES:
        raise ValueError(
            f"input_type must be one of {', '.join(flatfile.INPUT_TYPES)}, got {input_type!r}."
        )
    if input_type == "uint8" and (len(scale), len(shift)) != (channels, channels):
        raise ValueError(
            f"samples of {channels} channels take {channels} numbers of scale and shift, got {len(scale)}, {len(shift)}."
        )


def check_size(file: int, arena: int) -> None:
    """Offsets in the file have thirty bits."""
    if max(file, arena) >= 1 << 30:
        raise ValueError(
            f"file and arena stay below 1 GiB each, got {file:,} and {arena:,} bytes: update fewer layers."
        )


def _live(net: Network, meta: Meta, k: int) -> list[str]:
    """Layers that step k updates. Parameters that stand alone are the caller's, who computes their gradients."""
    on = meta.updates()[k].tolist()
    return [
        layer.name for layer, up in zip(net.layers, on, strict=True) if up and layer.kind != "param"
    ]


def _alone(net: Network, meta: Meta) -> tuple[str, ...]:
    on = meta.updates().any(0).tolist()
    return tuple(
        layer.name for layer, up in zip(net.layers, on, strict=True) if up and layer.kind == "param"
    )


def _weights(
    net: Network, meta: Meta, nodes: list[Node], ever: frozenset[str]
) -> tuple[Constants, list[tuple[int, int, int]], dict[str, int], int]:
    """Weights into the file, and those that some step updates also into the first bytes of the arena."""
    constants, copies, address, state = Constants(), [], {}, 0
    for node in nodes:
        for name in node.params:
            if not name:
                continue
            w = meta.w[name] if name in meta.w else dict(net.model.named_buffers())[name]
            at = constants.add(name, w.detach().numpy())
            address[name] = FILE_SPACE + at
            if node.name in ever:
                copies.append((at, state, w.numel() * 4))
                address[name] = state
                state += w.numel() * 4
    return constants, copies, address, -(-state // 16) * 16


def _scores(
    net: Network, meta: Meta, method: Method, ever: frozenset[str], constants: Constants
) -> dict[tuple[str, str], Score]:
    """Attention modules or static factors of the layers that are ever updated, into the file."""
    scores = {}
    for layer in net.layers:
        if method.scores == "none" or layer.name not in ever or not has_scores(net, layer):
            continue
        for side in ("fw", "bw"):
            score = _score(layer, side, meta, method, constants)
            if score is not None:
                scores[layer.name, side] = score
    return scores


def _score(
    layer: Layer, side: str, meta: Meta, method: Method, constants: Constants
) -> Score | None:
    name, c = f"{layer.name}.{side}", layer.c_in if side == "fw" else layer.c_out
    if method.scores == "static":
        gamma = meta.attention[f"{name}.alpha"].detach().numpy()
        return Score(
            "static",
            FILE_SPACE + constants.add(f"{name}.alpha", gamma),
            c,
            kept=max(1, int((gamma != 0).sum())),
        )
    rho = method.clip_ratio_fw if side == "fw" else method.clip_ratio_bw
    if rho is None:
        return None
    parts = [
        meta.attention[f"{name}.{key}"].detach().numpy().ravel() for key in ("W1", "b1", "W2", "b2")
    ]
    at = constants.add(name, np.concatenate(parts))
    threshold = rho - 1e-6 if rho > 0 else 0.0
    return Score(
        "module", FILE_SPACE + at, c, threshold, kept=max(1, c - ceil(c * threshold))
    )  # mu_fw <= 1 - rho


def _repeats(head: list[Tensor]) -> bool:
    """Whether a head has more outputs than were meta-trained, some of them the same."""
    rows = torch.cat([w.reshape(len(w), -1) for w in head], 1)
    return len(rows.unique(dim=0)) < len(rows)


def _facts(
    net: Network,
    meta: Meta,
    method: Method,
    input_shape: Sequence[int],
    classes: Sequence[str],
    nodes: list[Node],
    ever: frozenset[str],
) -> dict:
    alone = [layer for layer in net.layers if layer.kind == "param"]
    params = [name for node in nodes if node.name in ever for name in node.params if name]
    head = [meta.w[name] for name in nodes[-1].params if name in meta.w]
    return {
        "method": method.title,
        "input_shape": list(input_shape),
        "classes": list(classes),
        "repeated": nodes[-1].kind == "fc" and _repeats(head),
        "layers": [layer.name for layer in net.layers],
        "state": [{"name": name, "shape": list(meta.w[name].shape)} for name in params],
        "alone": {
            layer.name: {
                "value": meta.w[layer.name].tolist(),
                "alpha": meta.alpha[:, net.layers.index(layer)].tolist(),
            }
            for layer in alone
        },
    }
