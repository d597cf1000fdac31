"""Changing a trained model into one of plain layers that computes the same: batch norms folded."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pmeta.network.layers import BATCH_NORMS

PLAIN = (nn.Conv1d, nn.Conv2d, nn.Linear)
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@dataclass
class Watched:
    """What one forward pass showed of the layers and norms of a model, by name."""

    x: dict[str, Tensor] = field(default_factory=dict)
    y: dict[str, Tensor] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    reads: Counter[int] = field(default_factory=Counter)
    """How many operations read a tensor, by its id."""


class _Reads:
    def __init__(self, run: Watched):
        super().__init__()
        self.run = run
        self.held: list[Any] = []  # keeps the ids valid

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = {id(a) for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor)}
        self.run.reads.update(tensors)
        self.held.append((args, out))
        return out


class _ReadsMode(_Reads, TorchDispatchMode):
    """In a class of its own: torch would import its compiler for a mode that defines
    __torch_dispatch__ itself."""


def watch(model: nn.Module, probe: Tensor) -> tuple[Watched, Tensor]:
    """Run a model on `probe`, and see what its layers read and give."""
    run = Watched()
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, (*PLAIN, *BATCH_NORMS)):

            def hook(_: nn.Module, args: tuple[Any, ...], y: Tensor, name: str = name) -> None:
                run.x[name], run.y[name] = args[0], y
                run.calls[name] += 1

            handles.append(module.register_forward_hook(hook))
    try:
        with torch.no_grad(), _ReadsMode(run):
            output = model(probe)
    finally:
        for handle in handles:
            handle.remove()
    return run, output


def plain_convs(model: nn.Module, run: Watched) -> None:
    """Replace convs of a class of their own, as those with TensorFlow's padding, by nn.Conv2d.

    Only where that gives what they gave. Padding of one pixel more behind than before becomes a
    kernel with zeros before its first row and column."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Conv2d) and type(module) is not nn.Conv2d and run.calls[name] == 1:
            conv = _plain(module, run.x[name], run.y[name])
            if conv is not None:
                _replace(model, name, conv)


def _plain(m: nn.Conv2d, x: Tensor, y: Tensor) -> nn.Conv2d | None:
    pads = []
    for side in range(2):
        span = (y.shape[side + 2] - 1) * m.stride[side] + m.dilation[side] * (
            m.kernel_size[side] - 1
        )
        total = max(span + 1 - x.shape[side + 2], 0)
        pads.append((total // 2, total - total // 2))  # before, behind
    (top, bottom), (left, right) = pads
    more = (bottom - top, right - left)
    if any(more) and tuple(m.dilation) != (1, 1):
        return None
    kernel = (m.kernel_size[0] + more[0], m.kernel_size[1] + more[1])
    channels, stride = (m.in_channels, m.out_channels), (m.stride[0], m.stride[1])
    dilation, padding = (m.dilation[0], m.dilation[1]), (bottom, right)
    conv = nn.Conv2d(
        *channels, kernel, stride, padding, dilation, m.groups, bias=m.bias is not None
    )
    with torch.no_grad():
        conv.weight.copy_(F.pad(m.weight, (more[1], 0, more[0], 0)))
        if m.bias is not None and conv.bias is not None:
            conv.bias.copy_(m.bias)
        same = conv.to(x.dtype)(x)
    return conv if same.shape == y.shape and torch.allclose(same, y, rtol=1e-4, atol=1e-5) else None


def fold_batch_norms(model: nn.Module, run: Watched) -> list[str]:
    """Fold every batch norm into the layer before it, and name those that cannot be.

    One that stands behind something else becomes a conv of one pixel, channel by channel."""
    makers = {id(y): name for name, y in run.y.items()}
    left = []
    modules = dict(model.named_modules())
    for name, norm in modules.items():
        if not isinstance(norm, BATCH_NORMS):
            continue
        if norm.running_mean is None:
            left.append(f"batch norm {name!r} has no running statistics to fold")
            continue
        if run.calls[name] != 1:
            left.append(f"batch norm {name!r} runs {run.calls[name]} times in a forward pass")
            continue
        maker = makers.get(id(run.x[name]), "")
        alone = run.calls[maker] == 1 and run.reads[id(run.x[name])] == 1
        if type(modules.get(maker)) in PLAIN and alone:
            _replace(model, maker, _folded(modules[maker], norm))
            _replace(model, name, nn.Identity())
        elif run.x[name].dim() > 2:
            _replace(model, name, _as_conv(norm, run.x[name].dim()))
        else:
            left.append(f"batch norm {name!r} stands behind no linear layer that it alone reads")
    return left


def _scale_shift(norm: Any) -> tuple[Tensor, Tensor]:
    """Batch norm in evaluation is x * scale + shift, in float64. (C), (C)"""
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.double()
    shift = -norm.running_mean.double() * scale
    return scale, shift if norm.bias is None else shift + norm.bias.double()


def _folded(layer: Any, norm: nn.Module) -> nn.Module:
    scale, shift = _scale_shift(norm)
    with torch.no_grad():
        bias = shift if layer.bias is None else layer.bias.double() * scale + shift
        by_filter = scale.reshape(-1, *[1] * (layer.weight.dim() - 1))
        layer.weight.copy_(layer.weight.double() * by_filter)
        layer.bias = nn.Parameter(bias.to(layer.weight.dtype))
    return layer


def _as_conv(norm: Any, dims: int) -> nn.Module:
    kind = nn.Conv2d if dims == 4 else nn.Conv1d
    conv = kind(norm.num_features, norm.num_features, 1, groups=norm.num_features)
    scale, shift = _scale_shift(norm)
    with torch.no_grad():
        conv.weight.copy_(scale.reshape(conv.weight.shape))
        assert conv.bias is not None
        conv.bias.copy_(shift)
    return conv


def no_dropout(model: nn.Module) -> None:
    """Put nothing in the place of every dropout."""
    for name, module in list(model.named_modules()):
        if isinstance(module, DROPOUTS):
            _replace(model, name, nn.Identity())


def not_in_place(model: nn.Module) -> None:
    """Have activations give a new tensor."""
    for module in model.modules():
        if getattr(module, "inplace", False) is True:
            module.__dict__["inplace"] = False


def _replace(model: nn.Module, name: str, new: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, new)
