"""Taking in any nn.Module made of conv, fc, group norm and layer norm layers, as it is."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from pmeta.base.conv_shape import ConvShape
from pmeta.network.layers import BATCH_NORMS, Layer, Network, evaluating
from pmeta.network.trace import trace
from pmeta.network.unscored import unscored


def take_in(
    model: nn.Module, example: Tensor, extra: tuple[str, ...] = (), batch_norm: bool = False
) -> Network:
    """Take in a model as it is: find its layers, the order they run in, and what one sample costs.

    `example` is a batch of one input. `extra` names parameters that belong to no conv, fc or norm
    layer and get a step size of their own. `batch_norm` admits batch norm, which adapts badly from
    single samples (Table 5). What cannot be taken in raises ValueError.

    >>> import torch
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> net = take_in(model, torch.zeros(1, 4))
    >>> [layer.name for layer in net.layers]
    ['1', '3']
    """
    if len(example) == 0:
        raise ValueError(
            "example is a batch of at least one input, got none: a zero tensor of the right shape "
            "will do."
        )
    for name, m in model.named_modules():
        _refuse_compiled(name, m)
        _refuse_batch_norm(name, m, batch_norm)
    layers = {
        name: _layer(name, m)
        for name, m in model.named_modules()
        if _has_own_weights(m, name, extra)
    }
    if not layers:
        raise ValueError(
            "a model has at least one Conv1d, Conv2d, Linear or GroupNorm layer, "
            f"{type(model).__name__} has none."
        )
    _refuse_shared(model)
    alone = _alone(model, layers, extra)
    ops, order = trace(model, example, {layer.module: layer.name for layer in layers.values()})
    never = [name for name in layers if name not in order]
    if never:
        raise ValueError(
            f"every layer must run in a forward pass, {', '.join(never)} did not: remove it from "
            "the model."
        )
    net = Network(model, tuple([layers[name] for name in order] + alone), ops)
    if net.mixes_samples:
        return net
    _refuse_mixed_samples(model, example)
    names = unscored(model, example, net.layers)
    return replace(net, layers=tuple(replace(l, scored=l.name not in names) for l in net.layers))


def not_taken_in(model: nn.Module, example: Tensor) -> list[str]:
    """All that stands in the way of taking in a model, one line each; [] if there is nothing."""
    refusals: list[str] = []
    for name, m in model.named_modules():
        for check in (
            lambda name=name, m=m: _refuse_batch_norm(name, m, False),
            lambda name=name, m=m: _has_own_weights(m, name, ()) and _layer(name, m),
        ):
            try:
                check()
            except ValueError as error:
                refusals.append(str(error))
    if refusals:
        return refusals
    try:
        take_in(model, example)
    except ValueError as error:
        refusals.append(str(error))
    return refusals


def _has_own_weights(m: nn.Module, name: str, extra: tuple[str, ...]) -> bool:
    own = [n for n, _ in m.named_parameters(recurse=False)]
    if type(m) in (nn.Conv1d, nn.Conv2d, nn.Linear, nn.GroupNorm, nn.LayerNorm, *BATCH_NORMS):
        return bool(own)
    left = [n for n in (f"{name}.{o}".lstrip(".") for o in own) if n not in extra]
    if left:
        raise ValueError(
            "a model is made of Conv1d, Conv2d, Linear, GroupNorm and LayerNorm layers, but "
            f"{', '.join(left)} belongs to {type(m).__name__}: replace that module, or give the "
            f"parameter a step size of its own with extra=({left[0]!r},)."
        )
    return False


def _alone(model: nn.Module, layers: dict[str, Layer], extra: tuple[str, ...]) -> list[Layer]:
    params = dict(model.named_parameters())
    tied = {name for layer in layers.values() for name in layer.params}
    free = [name for name in params if name not in tied]
    for name in extra:
        if name not in free:
            raise ValueError(
                f"extra names parameters that belong to no layer, got {name!r}: the model has "
                f"{', '.join(free) or 'none'}."
            )
    return [
        Layer(name, "param", params[name].numel(), params[name].numel(), (name,)) for name in extra
    ]


def _refuse_compiled(name: str, m: nn.Module) -> None:
    compiled = hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) is not None
    if compiled or isinstance(m, torch.jit.ScriptModule):
        raise ValueError(
            "a model is taken in as Python runs it: of compiled code our layers cannot take the "
            f"place, and its gradients are those of other weights, got {name or 'a model'!r} from "
            "torch.compile or torch.jit: give the module that was compiled (model._orig_mod)."
        )


def _refuse_mixed_samples(model: nn.Module, example: Tensor) -> None:
    """Compare the output of one sample alone with that of the same in batches of two."""
    two = torch.stack([torch.zeros_like(example[0]), torch.ones_like(example[0])])
    pairs = [two]
    if example.is_floating_point():
        numbers = torch.randn(two.shape, generator=torch.Generator().manual_seed(0)).to(two)
        pairs = [numbers, torch.stack([numbers[0], -10 * numbers[0]])]  # whose sum changes sign
    with torch.no_grad(), evaluating(model):
        alone = tree_leaves(model(pairs[0][:1]))
        compared = [
            ab for pair in pairs for ab in zip(alone, tree_leaves(model(pair)), strict=True)
        ]
    for a, b in compared:
        if isinstance(a, Tensor) and not _is_first_of(a, b):
            raise ValueError(
                "a sample is adapted to alone, so that its output must not depend on the others of "
                f"its batch, but {type(model).__name__} gives it another in a batch of two, or "
                "draws random numbers: take means over the axes of a sample, not over axis 0."
            )


def _is_first_of(alone: Tensor, both: Tensor) -> bool:
    """Whether one sample has the output of the first of two, also where `squeeze` made it a row."""
    row = alone if alone.shape == both.shape[1:] else alone[0]
    first = both[0]
    return row.shape == first.shape and torch.allclose(row, first, 1e-2, 1e-3, equal_nan=True)


def _refuse_batch_norm(name: str, m: nn.Module, admitted: bool) -> None:
    if not isinstance(m, BATCH_NORMS):
        return
    if not admitted:
        raise ValueError(
            "batch norm cannot adapt from single samples, since its statistics change with the "
            f"batch (Sec. 3.5.2), got {name!r}: call pmeta.replace_batch_norm(model), which puts "
            "group norm in its place, before taking the model in."
        )
    if m.track_running_stats:
        raise ValueError(
            "batch norm is taken in without running statistics, which an inner step can neither "
            f"keep nor undo, but {name!r} has them: make it with track_running_stats=False."
        )


def _layer(name: str, m: nn.Module) -> Layer:
    params = tuple(f"{name}.{n}".lstrip(".") for n, _ in m.named_parameters(recurse=False))
    if isinstance(m, nn.Conv1d | nn.Conv2d):
        return Layer(name, "conv", m.in_channels, m.out_channels, params, m, _conv_shape(name, m))
    if isinstance(m, nn.Linear):
        return Layer(name, "fc", m.in_features, m.out_features, params, m)
    if isinstance(m, nn.GroupNorm):
        return Layer(name, "norm", m.num_channels, m.num_channels, params, m)
    if isinstance(m, nn.LayerNorm):
        return _layer_norm(name, m, params)
    assert isinstance(m, BATCH_NORMS)
    return Layer(name, "norm", m.num_features, m.num_features, params, m)


def _layer_norm(name: str, m: nn.LayerNorm, params: tuple[str, ...]) -> Layer:
    if len(m.normalized_shape) != 1:
        raise ValueError(
            f"layer norm is taken in over the last axis, but {name!r} is over "
            f"{m.normalized_shape}: use GroupNorm(1, channels) on images."
        )
    return Layer(name, "norm", *m.normalized_shape * 2, params, m)


def _conv_shape(name: str, m: nn.Conv1d | nn.Conv2d) -> ConvShape:
    padding = m.padding
    if padding == "valid":
        padding = (0,) * len(m.kernel_size)
    if padding == "same":
        spans = [d * (k - 1) for d, k in zip(m.dilation, m.kernel_size, strict=True)]
        padding = "uneven" if any(s % 2 for s in spans) else tuple(s // 2 for s in spans)
    if m.padding_mode != "zeros" or isinstance(padding, str):
        raise ValueError(
            f"a conv is padded with zeros, the same on both sides, but {name!r} has "
            f"padding={m.padding!r} and padding_mode={m.padding_mode!r}: pad with a module of its "
            "own in front of it."
        )
    return ConvShape(m.stride, padding, m.dilation, m.groups)


def _refuse_shared(model: nn.Module) -> None:
    seen: dict[int, str] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        if id(p) in seen:
            raise ValueError(
                f"each parameter belongs to one layer, but {seen[id(p)]} and {name} are the same "
                "tensor: give each its own."
            )
        seen[id(p)] = name


def replace_batch_norm(model: nn.Module, groups: int = 8) -> nn.Module:
    """Put group norm in the place of every batch norm of `model`, weights and biases kept, and
    return the model.

    A norm gets `groups` groups, or as many fewer as divide its channels into groups of at least
    two: normalised one by one, channels have no means left for attention to look at.

    >>> type(replace_batch_norm(nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)))[1]).__name__
    'GroupNorm'
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, BATCH_NORMS):
                channels = child.num_features
                fitting = max(
                    g for g in range(1, max(min(groups, channels // 2), 1) + 1) if channels % g == 0
                )
                norm = nn.GroupNorm(fitting, channels, child.eps, affine=child.affine)
                if child.affine:
                    norm.load_state_dict(
                        {"weight": child.weight.detach(), "bias": child.bias.detach()}
                    )
                setattr(parent, name, norm)
    return model
