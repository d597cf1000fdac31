"""Embeddings whose channels all have the same spread, so that no few of them decide distances."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from pmeta.data.tasks import ImageSet, normalise
from pmeta.network.layers import Network, Weights

LAST_NORMS = {"4conv": ("norm4",), "resnet12": ("block4.norm3", "block4.shortcut_norm")}
"""Behind these comes only what commutes with a positive factor for each channel."""
IMAGES, CHUNK = 320, 16


@torch.no_grad()
def equalised(net: Network, w: Weights, images: ImageSet, backbone: str) -> Weights:
    """The same network, each channel of its embedding divided by its deviation over `images`.

    Classifiers learn features that are rare and strong: a few channels then outweigh all others in
    a distance. The factors become part of the last norm."""
    names = [f"{norm}.{side}" for norm in LAST_NORMS[backbone] for side in ("weight", "bias")]
    rows = np.concatenate(
        [np.arange(s, s + n) for s, n in zip(images.starts, images.counts, strict=True)]
    )
    rows = rows[:: max(1, len(rows) // IMAGES)]
    parts = (images.images[rows[i : i + CHUNK]] for i in range(0, len(rows), CHUNK))
    embedded = torch.cat([embedding(net, w, normalise(p).to(w[names[0]])) for p in parts])
    by_channel = embedded.reshape(len(rows), len(w[names[0]]), -1)
    deviation = by_channel.std((0, 2), correction=0)
    silent = deviation < 1e-6 * deviation.max()
    factor = torch.where(silent, 1.0, deviation).reciprocal()
    return {name: t * factor if name in names else t for name, t in w.items()}


def embedding(net: Network, w: Weights, x: Tensor) -> Tensor:
    """What the body gives to the head, before any norm of embeddings."""
    found: list[Tensor] = []
    reader: nn.Module = getattr(net.model, "norm5", net.head.module)
    hook = reader.register_forward_pre_hook(lambda _, args: found.append(args[0]))
    functional_call(net.model, w, (x,))
    hook.remove()
    return found[0]
