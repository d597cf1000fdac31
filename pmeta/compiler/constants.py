"""The numbers of a model that go into the file: weights, and what gives the scores of channels."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np
import torch
from torch import Tensor

from pmeta.compiler.ir import GammaSource, PackedWeight
from pmeta.compiler.packing import FLAGS, LEAST, pack, pack_attention
from pmeta.compiler.read_model import Node
from pmeta.device.instructions import NONE
from pmeta.device.model_file import FILE_SPACE, Constants
from pmeta.method.attention import has_scores
from pmeta.method.learned import Meta
from pmeta.method.methods import Method
from pmeta.network.layers import Layer, Network


@dataclass
class Stored:
    """What lies where."""

    constants: Constants = field(default_factory=Constants)
    copies: list[tuple[int, int, int]] = field(default_factory=list)
    """(offset in the file, offset in the arena, bytes) of weights that some step updates."""
    address: dict[str, int] = field(default_factory=dict)
    gammas: dict[tuple[str, str], GammaSource] = field(default_factory=dict)
    packed: dict[str, PackedWeight] = field(default_factory=dict)
    state_bytes: int = 0
    """The first bytes of the arena."""


def store(
    net: Network,
    meta: Meta,
    method: Method,
    nodes: Sequence[Node],
    ever: frozenset[str],
    constants: str = "float32",
) -> Stored:
    """Put everything into the file. `ever`: the layers that some step updates.

    Weights of other layers and the modules of attention are stored as `constants`."""
    stored = Stored()
    numbers = numbers_of(net, meta)
    for node in nodes:
        for name in node.params:
            w = numbers[name].detach().numpy()
            if FLAGS[constants] and node.name not in ever and _packs(node, name, w):
                _store_packed(stored, name, w.reshape(len(w), -1), constants)
                continue
            at = stored.constants.add(name, w)
            stored.address[name] = FILE_SPACE + at
            if node.name in ever:
                stored.copies.append((at, stored.state_bytes, w.nbytes))
                stored.address[name] = stored.state_bytes
                stored.state_bytes += w.nbytes
    stored.state_bytes = -(-stored.state_bytes // 16) * 16
    for layer in net.layers:
        if method.scores != "none" and layer.name in ever and has_scores(net, layer):
            for side in ("fw", "bw"):
                gamma = _gamma(layer, side, meta, method, stored.constants, constants)
                if gamma is not None:
                    stored.gammas[layer.name, side] = gamma
    return stored


def _packs(node: Node, name: str, w: np.ndarray) -> bool:
    """Matrices with rows that are long enough; what a channel has one of stays float32."""
    return node.kind in ("conv", "fc") and name == node.weight and w[0].size >= LEAST


def _store_packed(stored: Stored, name: str, w: np.ndarray, kind: str) -> None:
    packed, scale = pack(w, kind), NONE
    stored.address[name] = FILE_SPACE + stored.constants.add_bytes(name, packed.data)
    if packed.scale.size:
        scale = FILE_SPACE + stored.constants.add(f"{name}.scale", packed.scale)
    stored.packed[name] = PackedWeight(FLAGS[kind], scale)


def numbers_of(net: Network, meta: Meta) -> dict[str, Tensor]:
    """Everything that the model reads, by name: a head from prototypes is blank until then."""
    own = dict(net.model.named_parameters())
    blank = {name: torch.zeros_like(own[name]) for name in net.head.params if meta.head}
    return {**dict(net.model.named_buffers()), **meta.w, **blank}


def _gamma(
    layer: Layer, side: str, meta: Meta, method: Method, constants: Constants, kind: str
) -> GammaSource | None:
    name, c = f"{layer.name}.{side}", layer.c_in if side == "fw" else layer.c_out
    if method.scores == "static":
        gamma = meta.attention[f"{name}.alpha"].detach().numpy()
        at = FILE_SPACE + constants.add(f"{name}.alpha", gamma)
        return GammaSource("static", at, c, kept=max(1, int((gamma != 0).sum())))
    rho = method.clip_ratio_fw if side == "fw" else method.clip_ratio_bw
    if rho is None:
        return None
    module = [meta.attention[f"{name}.{key}"].detach().numpy() for key in ("W1", "b1", "W2", "b2")]
    flag = FLAGS[kind] if c >= LEAST else ""
    if flag:
        at = constants.add_bytes(name, pack_attention(module, kind))
    else:
        at = constants.add(name, np.concatenate([tensor.ravel() for tensor in module]))
    threshold = rho - 1e-6 if rho > 0 else 0.0
    kept = max(1, c - ceil(c * threshold))  # mu_fw <= 1 - rho
    return GammaSource("module", FILE_SPACE + at, c, threshold, kept, flag)
