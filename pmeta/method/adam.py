"""Adam, which weights, step sizes, attention and the first classifiers are trained by."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor


class Adam:
    """Adam (Kingma & Ba 2015) with the moments of named tensors.

    That of torch.optim imports the compiler, which takes as long as torch itself."""

    def __init__(self, tensors: Mapping[str, Tensor]):
        self.steps = 0
        self.moments = {
            name: (torch.zeros_like(t), torch.zeros_like(t)) for name, t in tensors.items()
        }

    @torch.no_grad()
    def step(
        self,
        tensors: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        rates: Mapping[str, float],
        weight_decay: float = 0.0,
    ) -> None:
        """Move the tensors, in place.

        `weight_decay` makes it AdamW (Loshchilov & Hutter 2019): norms and biases, which have one
        axis, do not decay."""
        self.steps += 1
        for name, tensor in tensors.items():
            rate, g, (first, second) = rates[name], gradients[name], self.moments[name]
            if weight_decay and tensor.dim() > 1:
                tensor.mul_(1 - rate * weight_decay)
            first.lerp_(g, 0.1)
            second.mul_(0.999).addcmul_(g, g, value=0.001)
            deviation = second.sqrt() / math.sqrt(1 - 0.999**self.steps) + 1e-8
            tensor.addcdiv_(first, deviation, value=-rate / (1 - 0.9**self.steps))

    def state(self) -> dict[str, Tensor]:
        """The moments as named tensors."""
        first = {f"adam/first/{name}": m for name, (m, _) in self.moments.items()}
        second = {f"adam/second/{name}": v for name, (_, v) in self.moments.items()}
        return {**first, **second}

    def load(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Take up the training where `state` was taken, after so many steps."""
        self.steps = steps
        for name, (first, second) in self.moments.items():
            first.copy_(state[f"adam/first/{name}"])
            second.copy_(state[f"adam/second/{name}"])


def cosine(done: float, total: float) -> float:
    """The share of the highest rate, from 1 to 0 along half a cosine (Loshchilov & Hutter 2017).

    >>> [round(cosine(done, 3), 2) for done in range(4)]
    [1.0, 0.75, 0.25, 0.0]
    """
    return 0.5 * (1 + math.cos(math.pi * done / total))
