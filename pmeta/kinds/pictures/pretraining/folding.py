"""Batch norms of a pre-trained network folded into its convs, with the statistics of pictures."""

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from pmeta.data.tasks import ImageSet, normalise
from pmeta.kinds.pictures.pretraining.config import CHUNK
from pmeta.network.layers import Network, Weights

IMAGES = 640


@torch.no_grad()
def folded(plain: Network, w: Weights, images: ImageSet, eps: float = 1e-5) -> Weights:
    """Weights of `plain`, a network without norms whose convs have biases, that gives what the
    network of `w` gives with the statistics of `images` in its batch norms.

    They are taken layer by layer, from pictures as a device sees them, whole and not varied:

        y = gamma (conv(x) - mean) / sqrt(var + eps) + beta
    """
    rows = np.concatenate(
        [np.arange(s, s + n) for s, n in zip(images.starts, images.counts, strict=True)]
    )
    rows = rows[:: max(1, len(rows) // IMAGES)]
    like = next(iter(w.values()))
    parts = [normalise(images.images[rows[i : i + CHUNK]]) for i in range(0, len(rows), CHUNK)]
    batches = [part.to(like).contiguous(memory_format=torch.channels_last) for part in parts]
    convs = [layer.name for layer in plain.layers if layer.kind == "conv"]
    weights = {
        **{name: t.detach().clone() for name, t in plain.weights().items()},
        **{f"{conv}.weight": w[f"{conv}.weight"] for conv in convs},
        **{f"{conv}.bias": torch.zeros_like(w[f"{norm_of(conv)}.bias"]) for conv in convs},
    }
    for conv in convs:
        mean, var = _statistics(plain, weights, conv, batches)
        factor = w[f"{norm_of(conv)}.weight"] * (var + eps).rsqrt()
        weights[f"{conv}.weight"] = weights[f"{conv}.weight"] * factor[:, None, None, None]
        weights[f"{conv}.bias"] = w[f"{norm_of(conv)}.bias"] - mean * factor
    return weights


def norm_of(conv: str) -> str:
    """The norm behind a conv of a backbone.

    >>> norm_of("conv2"), norm_of("block1.conv3"), norm_of("block4.shortcut")
    ('norm2', 'block1.norm3', 'block4.shortcut_norm')
    """
    if conv.endswith("shortcut"):
        return f"{conv}_norm"
    block, dot, name = conv.rpartition(".")
    return block + dot + name.replace("conv", "norm")


def _statistics(
    net: Network, w: Weights, conv: str, batches: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel of what a conv gives."""
    sums: list[Tensor] = []

    def count(module: object, args: object, y: Tensor) -> None:
        y = y.double()
        sums.append(torch.stack([y.mean((0, 2, 3)), y.square().mean((0, 2, 3))]) * len(y))

    hook = net.model.get_submodule(conv).register_forward_hook(count)
    for x in batches:
        functional_call(net.model, w, (x,))
    hook.remove()
    mean, square = torch.stack(sums).sum(0) / sum(len(x) for x in batches)
    like = w[f"{conv}.weight"]
    return mean.to(like), (square - mean.square()).clamp(min=0).to(like)
