"""The forward pass with weights from outside, and its tape: x_{l-1} and y_l of layers (Fig. 2)."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from pmeta.fast.affine import Affine
from pmeta.fast.norm_pool import norm_pool
from pmeta.fast.pool_first import waiting
from pmeta.fast.second_order import Conv, Gate, group_normalise
from pmeta.network.layers import BATCH_NORMS, Layer, Network, Weights


class Record(NamedTuple):
    """What the tape holds of a layer."""

    x: Tensor
    """x_{l-1}; of a norm layer its normalized version (Sec. 3.5.2)."""
    y: Tensor
    v: Tensor | None = None
    """Where x and y are held only where a max-pool chose: the channel means of all of x. (B, C)"""
    share: float = 1.0
    """The share of such places."""

    @property
    def seen(self) -> Tensor:
        """What the forward attention looks at: x, or its channel means."""
        return self.x if self.v is None else self.v

    def detached(self) -> "Record":
        v = None if self.v is None else self.v.detach()
        return self._replace(x=self.x.detach(), v=v)


class Tape(dict[str, Record]):
    """x_{l-1} and y_l of the layers that were asked for, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()


class Kept(NamedTuple):
    """Layers that give the same in every run, and what they gave."""

    names: frozenset[str]
    """Such as those before the first layer that is updated."""
    outputs: dict[str, Tensor]


Edit = Callable[[Layer, Tensor], Tensor]


def unchanged(layer: Layer, tensor: Tensor) -> Tensor:
    """The edit that is none."""
    return tensor


class Edits(NamedTuple):
    """What happens to the input and to the output of a taped layer on their way."""

    x: Edit = unchanged
    """Of a norm layer: of its normalized input."""
    y: Edit = unchanged


NO_EDITS = Edits()


def forward(
    net: Network,
    w: Weights,
    x: Tensor,
    taped: Collection[Layer] = (),
    edits: Edits = NO_EDITS,
    pool_first: bool = False,
    kept: Kept | None = None,
) -> tuple[Any, Tape]:
    """The forward pass with the weights `w`, and the tape of the layers in `taped`.

    Every y_l on the tape requires a gradient: where no weight below needs one, the backward pass
    ends there. `pool_first` has the norms in `net.pooled` computed only where their max-pool
    chooses, unless their input is edited: the same in half the time. The layers in `kept` are
    computed in the first pass that has it, and not again."""
    if pool_first and net.channels_last and x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    names = frozenset(layer.name for layer in taped)
    one = _Pass(net, names, edits, pool_first, kept or Kept(frozenset(), {}))
    with one.in_place_of_the_modules():
        output = functional_call(net.model, w, (x,))
    return output, one.tape


@dataclass(frozen=True)
class _Pass:
    """One forward pass, in which our own computation of a layer takes the place of its module's."""

    net: Network
    taped: frozenset[str]
    edits: Edits
    pool_first: bool
    kept: Kept
    tape: Tape = field(default_factory=Tape)

    @contextmanager
    def in_place_of_the_modules(self) -> Iterator[None]:
        """Have the modules of the layers call `output`, for the time of this pass.

        A hook comes after the module's own computation, so that every layer is computed twice: a
        quarter more time on 4Conv. Subclasses of the modules are as fast as this, but would stay in
        the user's model."""
        modules = [layer for layer in self.net.layers if layer.kind != "param"]
        for layer in modules:
            layer.module.forward = self._forward_of(layer)
        try:
            yield
        finally:
            for layer in modules:
                del layer.module.forward

    def _forward_of(self, layer: Layer) -> Callable[[Tensor], Tensor]:
        output = partial(self.output, layer)
        edited = self.edits.x is not unchanged or isinstance(layer.module, BATCH_NORMS)
        needed = edited and layer.name in self.taped  # in full
        if not self.pool_first or layer.name not in self.net.pooled or needed:
            return output
        return lambda x: waiting(x, partial(output, x))

    def output(self, layer: Layer, x: Tensor, pooled: bool = False) -> Tensor:
        """What the module of a layer gives for its input x, and a record of it on the tape.

        `pooled` is for a norm: a 2x2 max-pool reads its output, only what it chooses is wanted."""
        if layer.name in self.kept.outputs:
            return self.kept.outputs[layer.name]
        is_taped = layer.name in self.taped
        edit_x = self.edits.x if is_taped else unchanged
        if pooled:
            record = pooled_norm(layer, x, self.tape.gate)
        else:
            record = computed(layer, x, edit_x, self.tape.gate)
        if layer.name in self.kept.names:
            self.kept.outputs[layer.name] = record.y
        if not is_taped:
            return record.y
        record.y.requires_grad_()
        self.tape[layer.name] = record
        return self.edits.y(layer, record.y)


def computed(layer: Layer, x: Tensor, edit_x: Edit, gate: Gate) -> Record:
    """One layer; `functional_call` has put the weights in its module."""
    m = layer.module
    if layer.kind == "conv":
        x = edit_x(layer, x)
        y = Conv.apply(x, m.weight, layer.conv, gate)
        return Record(x, y if m.bias is None else y + _channels(m.bias, y))
    if layer.kind == "fc":
        x = edit_x(layer, x)
        return Record(x, F.linear(x, m.weight, m.bias))
    x_hat = edit_x(layer, _normalised(m, x))
    return Record(x_hat, _affine(m, x_hat))


def pooled_norm(layer: Layer, x: Tensor, gate: Gate) -> Record:
    """A group or batch norm, only where the 2x2 max-pool behind it chooses."""
    m = layer.module
    if isinstance(m, BATCH_NORMS):
        return _pooled_batch_norm(m, x)
    x_hat, v = norm_pool(x, m.weight, m.num_groups, m.eps)
    y = Affine.apply(x_hat, m.weight, m.bias, gate)
    return Record(x_hat, y, v, x_hat[0, 0].numel() / x[0, 0].numel())


def _pooled_batch_norm(m: Any, x: Tensor) -> Record:
    """The batch as one tall image, below each other: a group norm of single channels. No window of
    the pool may reach from one image into the next."""
    b, c, h, w = x.shape
    if h % 2:
        x_hat = _normalised(m, x)
        return Record(x_hat, F.max_pool2d(_affine(m, x_hat), 2))
    tall = x.permute(0, 2, 3, 1).reshape(1, b * h, w, c).permute(0, 3, 1, 2)
    x_hat, _ = norm_pool(tall, m.weight, c, m.eps)
    x_hat = x_hat.permute(0, 2, 3, 1).reshape(b, h // 2, w // 2, c).permute(0, 3, 1, 2)
    return Record(x_hat, _affine(m, x_hat))


def _normalised(m: nn.Module, x: Tensor) -> Tensor:
    if isinstance(m, nn.GroupNorm):
        return group_normalise(x, m.num_groups, m.eps)
    if isinstance(m, nn.LayerNorm):
        return group_normalise(x, prod(x.shape[1:-1]), m.eps)  # each row by itself
    assert isinstance(m, BATCH_NORMS)
    by_channel = x.transpose(0, 1)  # the batch statistics of a channel: one group of one "sample"
    return group_normalise(by_channel[None], x.shape[1], m.eps)[0].transpose(0, 1)


def _affine(m: Any, x_hat: Tensor) -> Tensor:
    last = isinstance(m, nn.LayerNorm)
    weight, bias = (t if last or t is None else _channels(t, x_hat) for t in (m.weight, m.bias))
    return x_hat * weight if bias is None else torch.addcmul(bias, x_hat, weight)


def _channels(t: Tensor, like: Tensor) -> Tensor:  # (C,) -> (C, 1, ...)
    return t.reshape(-1, *[1] * (like.dim() - 2))
