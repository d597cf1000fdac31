"""An ordinary classifier of all people's windows: where meta-training starts."""

import numpy as np
import torch
import torch.nn.functional as F

from pmeta.base.errors import DivergedError
from pmeta.data.tasks import random_order
from pmeta.kinds.recordings.sets import WindowSet
from pmeta.method.adam import Adam, cosine
from pmeta.network.layers import Network, Weights
from pmeta.network.tape import forward

BATCH = 64
DECAY = 0.02
"""Weight decay of AdamW, times the step size."""


def train_pooled(
    net: Network,
    w: Weights,
    windows: WindowSet,
    epochs: int,
    lr: float,
    seed: int,
) -> Weights:
    """The weights after some passes over all windows, each class with the same weight in the loss,
    by AdamW along a cosine."""
    y = torch.from_numpy(windows.y)
    n_classes = len(windows.windowing.labels)
    balance = 1 / torch.bincount(y, minlength=n_classes).clamp(min=1).float()
    balance = balance * len(balance) / balance.sum()
    w = {name: t.detach().clone().requires_grad_() for name, t in w.items()}
    adam = Adam(w)
    random = np.random.Philox(key=np.array([seed, 2**40], dtype=np.uint64))
    per_epoch = -(-len(y) // BATCH)
    for t in range(1, epochs * per_epoch + 1):
        if t % per_epoch == 1 or per_epoch == 1:
            order = random_order(random, len(y))
        at = ((t - 1) % per_epoch) * BATCH
        rows = order[at : at + BATCH]
        output, _ = forward(net, w, torch.from_numpy(windows.x[rows]))
        loss = F.cross_entropy(output, y[rows], weight=balance)
        if not loss.isfinite():
            raise DivergedError(
                f"the loss of the first classifier is {loss.item()} after {t - 1} updates: lower "
                f"--pooled-lr, which is {lr:g}."
            )
        g = torch.autograd.grad(loss, list(w.values()))
        rates = dict.fromkeys(w, lr * cosine(t, epochs * per_epoch))
        adam.step(w, dict(zip(w, g, strict=True)), rates, DECAY)
    return {name: t.detach() for name, t in w.items()}
