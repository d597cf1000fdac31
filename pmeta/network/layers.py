"""What a layer is in any nn.Module (Fig. 2), and a network of such layers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from pmeta.base.conv_shape import ConvShape
from pmeta.cost.ops import Op

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
Weights = dict[str, Tensor]
"""Tensors by the names of the model's parameters."""


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout and its like off, as on the device."""
    training = {m: m.training for m in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for m, was in training.items():
            m.training = was


@dataclass(frozen=True)
class Layer:
    """A weight layer: conv, fc, norm, or "param", a parameter that stands alone (a log-std)."""

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
    scored: bool = True
    """Whether backward attention can score its channels: its g(y) has channel means."""

    @property
    def reads_rows(self) -> bool:
        """Whether channels are the last axis, as in fc and layer norm."""
        return self.kind == "fc" or isinstance(self.module, nn.LayerNorm)


@dataclass(frozen=True)
class Network:
    """A model taken in: its weight layers in the order they run, and the operations of a forward
    pass."""

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

    def weights(self) -> Weights:
        """The model's own weights, detached."""
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    @cached_property
    def pooled(self) -> frozenset[str]:
        """The group and batch norms whose output goes through a 2x2 max-pool and nowhere else.

        A ReLU may stand between them."""
        return self._pooled((nn.GroupNorm, nn.BatchNorm2d))

    @cached_property
    def channels_last(self) -> bool:
        """Whether a norm or conv is pooled: PyTorch pools ten times as fast with channels last."""
        return bool(self.pooled or self._pooled((nn.Conv2d,)))

    def _pooled(self, kinds: tuple[type[nn.Module], ...]) -> frozenset[str]:
        names = {layer.name for layer in self.layers if isinstance(layer.module, kinds)}
        at = [i for i, op in enumerate(self.ops) if op.name in names and _is_pooled(self.ops, i)]
        return frozenset(self.ops[i].name for i in at)


def _is_pooled(ops: tuple[Op, ...], i: int) -> bool:
    readers = [j for j, op in enumerate(ops) if i in op.inputs]
    if len(readers) != 1 or len(ops[i].x) != 3:
        return False
    reader = ops[readers[0]]
    if reader.kind == "relu":
        return _is_pooled(ops, readers[0])
    return reader.kind == "maxpool" and not reader.kernel
