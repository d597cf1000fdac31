"""What a user would try instead of meta-training: prototypes, and fine-tuning of an ordinary
classifier."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pmeta.data.tasks import Task
from pmeta.network.layers import Network, Weights
from pmeta.network.tape import forward
from pmeta.sensors.evaluate import balanced_accuracy, scored

RATES = (0.01, 0.03, 0.1, 0.3)
"""Step sizes of fine-tuning to choose from."""
STEPS = (10, 20)
"""Numbers of steps to choose from."""


def prototypes(net: Network, w: Weights, task: Task) -> float:
    """The class whose mean embedding is nearest, embeddings scaled to length 1 (Snell et al.
    2017)."""
    support, query = (_embedding(net, w, x) for x in (task.support_x, task.query_x))
    there = task.support_y.unique()
    means = torch.stack([support[task.support_y == c].mean(0) for c in there])  # (classes, D)
    nearest = torch.cdist(query, means).argmin(1)
    return balanced_accuracy(there[nearest].numpy(), task.query_y.numpy())


def fine_tuned(
    net: Network, w: Weights, task: Task, rate: float, last_layer: bool, most: int
) -> dict[int, float]:
    """Gradient descent on the whole support set, of the last layer or of all: the accuracy by the
    number of steps, of `STEPS` up to `most`."""
    own = {f"{net.head.name}.weight", f"{net.head.name}.bias"}
    moving = [name for name in w if not last_layer or name in own]
    w, found = dict(w), {}
    for done in range(1, most + 1):
        leaves = {name: w[name].detach().requires_grad_() for name in moving}
        output, _ = forward(net, {**w, **leaves}, task.support_x)
        loss = F.cross_entropy(output, task.support_y)
        g = torch.autograd.grad(loss, list(leaves.values()))
        w |= {name: t.detach() - rate * d for (name, t), d in zip(leaves.items(), g, strict=True)}
        if done in STEPS:
            found[done] = scored(net, w, task)
    return found


def _embedding(net: Network, w: Weights, x: Tensor) -> Tensor:
    """What the last layer reads. (n, D)"""
    seen: list[Tensor] = []
    head = net.model.get_submodule(net.head.name)
    handle = head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    try:
        with torch.no_grad():
            torch.func.functional_call(net.model, w, (x,))
    finally:
        handle.remove()
    return F.normalize(seen[0])
