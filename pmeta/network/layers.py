"""What a layer is in any nn.Module (Fig. 2): x_{l-1}, y_l, and the weight gradient from x_{l-1} and g(y_l)."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from pmeta.cost.adaptation import Op
from pmeta.fast.conv_c import ConvShape
from pmeta.fast.norm_pool import norm_pool
from pmeta.fast.pool_first import PoolFirst
from pmeta.fast.second_order import Conv, ConvWeightGrad, Gate, normalise

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


@dataclass(frozen=True)
class Layer:
    """A weight layer: conv, fc, norm, or "param", a parameter that stands alone (a policy's log-std)."""

    name: str
    kind: str
    c_in: int
    """Channels of x_{l-1}, the length of gamma_fw."""
    c_out: int
    """Channels of y_l, the length of gamma_bw."""
    params: tuple[str, ...]
    """Names of the weight and, if there is one, of the bias."""
    module: Any = None
    conv: ConvShape | None = None


class Record(NamedTuple):
    """What the tape holds of a layer."""

    x: Tensor
    """x_{l-1}; of a norm layer its normalized version (Sec. 3.5.2)."""
    y: Tensor
    v: Tensor | None = None
    """Where x and y are held at the places alone that a max-pool chose: the channel means of all of x. (B, C)"""
    share: float = 1.0
    """The share of such places."""

    @property
    def seen(self) -> Tensor:
        """What the forward attention looks at: x, or its channel means."""
        return self.x if self.v is None else self.v

    def detached(self) -> "Record":
        return Record(
            self.x.detach(), self.y, None if self.v is None else self.v.detach(), self.share
        )


class Tape(dict[str, Record]):
    """x_{l-1} and y_l of the layers that were asked for, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()


class Kept(NamedTuple):
    """Layers that give the same in every run, as those before the first layer that is updated, and what they gave."""

    names: frozenset[str]
    outputs: dict[str, Tensor]


Edit = Callable[[Layer, Tensor], Tensor]


def unchanged(layer: Layer, tensor: Tensor) -> Tensor:
    """The edit that is none."""
    return tensor


@dataclass(frozen=True)
class Network:
    """A model taken in: its weight layers in the order they run, and the operations of one forward pass."""

    model: nn.Module
    layers: tuple[Layer, ...]
    ops: tuple[Op, ...]

    @cached_property
    def head(self) -> Layer:
        """The output layer: the last weight layer that runs."""
        return [layer for layer in self.layers if layer.kind != "param"][-1]

    def index(self, name: str) -> int:
        """The column of a layer in alpha.

        Raises ValueError with the names there are when there is no such layer."""
        names = [layer.name for layer in self.layers]
        if name not in names:
            raise ValueError(
                f"layers are named as in the model, got {name!r}: the names are {', '.join(names)}."
            )
        return names.index(name)

    @cached_property
    def mixes_samples(self) -> bool:
        """Whether the output of a sample depends on the others of its batch, as with batch norm."""
        return any(isinstance(m, BATCH_NORMS) for m in self.model.modules())

    def weights(self) -> dict[str, Tensor]:
        """The model's own weights, detached."""
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    @cached_property
    def pooled(self) -> frozenset[str]:
        """The group norms whose output goes through a 2x2 max-pool and nowhere else, but for a ReLU on the way."""
        group_norms = {
            layer.name for layer in self.layers if isinstance(layer.module, nn.GroupNorm)
        }
        return frozenset(
            op.name
            for i, op in enumerate(self.ops)
            if op.name in group_norms and _is_pooled(self.ops, i)
        )

    def run(
        self,
        w: dict[str, Tensor],
        x: Tensor,
        taped: Collection[Layer] = (),
        edit_x: Edit = unchanged,
        edit_y: Edit = unchanged,
        pool_first: bool = False,
        kept: Kept | None = None,
    ) -> tuple[Any, Tape]:
        """The forward pass with the weights `w`, and the tape of the layers in `taped`.

        Every y_l on the tape requires a gradient: where no weight below needs one, the backward pass ends there. Of these
        layers, `edit_x` may change the input (norm: the normalized input) and `edit_y` the output on its way.
        `pool_first` has the norms in `pooled` computed at the places alone that their max-pool chooses, unless their input is
        edited: the same in half the time. The layers in `kept` are computed in the first run that has it, and not again."""
        tape = Tape()
        mode = PoolFirst() if pool_first and self.pooled else None
        if mode and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        kept = kept or Kept(frozenset(), {})
        with (
            _taping(self, tape, {layer.name for layer in taped}, edit_x, edit_y, mode, kept),
            mode or nullcontext(),
        ):
            output = functional_call(self.model, w, (x,))
        return output, tape


def _is_pooled(ops: tuple[Op, ...], i: int) -> bool:
    readers = [j for j, op in enumerate(ops) if i in op.inputs]
    if len(readers) != 1 or len(ops[i].x) != 3:
        return False
    reader = ops[readers[0]]
    return (
        _is_pooled(ops, readers[0])
        if reader.kind == "relu"
        else reader.kind == "maxpool" and not reader.kernel
    )


def _forward(layer: Layer, x: Tensor, edit_x: Edit, gate: Gate) -> Record:
    """One layer; `functional_call` has put the weights in its module."""
    m = layer.module
    if layer.kind == "conv":
        x = edit_x(layer, x)
        y = Conv.apply(x, m.weight, layer.conv, gate)
        return Record(x, y if m.bias is None else y + _channels(m.bias, y))
    if layer.kind == "fc":
        x = edit_x(layer, x)
        return Record(x, F.linear(x, m.weight, m.bias))
    x = edit_x(layer, _normalised(m, x))
    return Record(x, _affine(m, x))


def _affine(m: Any, x_hat: Tensor) -> Tensor:
    weight = _channels(m.weight, x_hat)
    return (
        x_hat * weight if m.bias is None else torch.addcmul(_channels(m.bias, x_hat), x_hat, weight)
    )


def _normalised(m: nn.Module, x: Tensor) -> Tensor:
    if isinstance(m, nn.GroupNorm):
        return normalise(x, m.num_groups, m.eps)
    assert isinstance(m, BATCH_NORMS)
    by_channel = x.transpose(0, 1)  # the batch statistics of a channel: one group of one "sample"
    return normalise(by_channel[None], x.shape[1], m.eps)[0].transpose(0, 1)


def _norm_pool(layer: Layer, x: Tensor) -> Record:
    """A group norm at the places alone that the 2x2 max-pool behind it chooses."""
    m = layer.module
    x_hat, v = norm_pool(x, m.weight, m.num_groups, m.eps)
    return Record(x_hat, _affine(m, x_hat), v, x_hat[0, 0].numel() / x[0, 0].numel())


@contextmanager
def _taping(
    net: Network,
    tape: Tape,
    taped: set[str],
    edit_x: Edit,
    edit_y: Edit,
    mode: PoolFirst | None,
    kept: Kept,
) -> Iterator[None]:
    """Let the modules of the layers run our way, and those named in `taped` write on the tape."""

    def taping(layer: Layer) -> Callable[[Tensor], Tensor]:
        is_taped = layer.name in taped

        def compute(x: Tensor, pooled: bool = False) -> Tensor:
            if layer.name in kept.outputs:
                return kept.outputs[layer.name]
            record = (
                _norm_pool(layer, x)
                if pooled
                else _forward(layer, x, edit_x if is_taped else unchanged, tape.gate)
            )
            if layer.name in kept.names:
                kept.outputs[layer.name] = record.y
            if not is_taped:
                return record.y
            record.y.requires_grad_()
            tape[layer.name] = record
            return edit_y(layer, record.y)

        in_full = layer.name not in net.pooled or (is_taped and edit_x is not unchanged)
        return compute if mode is None or in_full else partial(mode.hold, compute)

    modules = [layer for layer in net.layers if layer.kind != "param"]
    for layer in modules:
        layer.module.forward = taping(layer)
    try:
        yield
    finally:
        for layer in modules:
            del layer.module.forward


def _channels(t: Tensor, like: Tensor) -> Tensor:  # (C,) -> (C, 1, ...)
    return t.reshape(-1, *[1] * (like.dim() - 2))


def channel_means(layer: Layer, tensor: Tensor) -> Tensor:
    """v[b, c], the mean over space (fc: over the rows of the sample; of a plain vector the value itself). (B, C)"""
    if tensor.dim() == 2:
        return tensor
    rows = (
        tensor.flatten(1, -2).transpose(1, 2) if layer.kind == "fc" else tensor.flatten(2)
    )  # (B, C, places)
    return rows.sum(2) / rows.shape[2]  # the gradient of a mean would be divided at every place


def scale(layer: Layer, tensor: Tensor, gamma: Tensor | None) -> Tensor:
    """gamma * tensor, a factor for each channel: gamma is (1, C), or (B, C) with a row for each sample; None is 1."""
    if gamma is None:
        return tensor
    ones = [1] * (tensor.dim() - 2)
    shape = (len(gamma), *ones, gamma.shape[1]) if layer.kind == "fc" else (*gamma.shape, *ones)
    return tensor * gamma.reshape(shape)


def weight_gradients(
    layer: Layer, x: Tensor, g_y: Tensor, gamma_fw: Tensor | None, gamma_bw: Tensor | None
) -> list[Tensor]:
    """gamma * g(w_l), and gamma_bw * g(b_l) if there is a bias, from x_{l-1} and g(y_l) (Eqs. 12 and 13).

    Scores (1, C) that all samples share multiply the weight gradient. With a row for each sample, (B, C), they multiply x and
    g(y): the ordinary weight gradient of those is the sum over samples of gamma_bw[f] gamma_fw[c] g(w)[f, c]. None is 1.
    """
    if layer.kind == "norm":
        by_sample = scale(layer, scale(layer, _sum_space(g_y * x), gamma_fw), gamma_bw)  # (B, C)
        return [by_sample.sum(0), scale(layer, _sum_space(g_y), gamma_bw).sum(0)][
            : len(layer.params)
        ]
    shared = all(gamma is None or len(gamma) == 1 for gamma in (gamma_fw, gamma_bw))
    if not shared:
        x, g_y = scale(layer, x, gamma_fw), scale(layer, g_y, gamma_bw)
    if layer.kind == "fc":
        rows = g_y.flatten(0, -2)  # (B * rows, C_out)
        g_w, g_b = rows.T @ x.flatten(0, -2), rows.sum(0)
    else:
        size = layer.module.weight.detach().to(x)  # only its size is used
        g_w, g_b = ConvWeightGrad.apply(g_y, x, size, layer.conv), _sum_space(g_y).sum(0)
    if shared:
        g_w, g_b = (
            _scale_weights(layer, g_w, gamma_fw, gamma_bw),
            scale(layer, g_b[None], gamma_bw)[0],
        )
    return [g_w, g_b][: len(layer.params)]


def _scale_weights(
    layer: Layer, g_w: Tensor, gamma_fw: Tensor | None, gamma_bw: Tensor | None
) -> Tensor:
    """gamma_bw[f] * gamma_fw[c] * g(w)[f, c, ...] (Eqs. 12 and 13); of a grouped conv, c counts within the group of f."""
    ones = [1] * (g_w.dim() - 2)
    if gamma_fw is not None:
        groups = layer.conv.groups if layer.conv else 1
        fw = gamma_fw.reshape(groups, -1).repeat_interleave(
            layer.c_out // groups, 0
        )  # (C_out or 1, C_in / groups)
        g_w = g_w * fw.reshape(*fw.shape, *ones)
    return g_w if gamma_bw is None else g_w * gamma_bw.reshape(-1, 1, *ones)


def _sum_space(t: Tensor) -> Tensor:  # (B, C, *space) -> (B, C)
    return t.flatten(2).sum(2) if t.dim() > 2 else t
