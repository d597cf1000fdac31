"""A head from prototypes (Proto-MAML, Triantafillou et al. 2020): where the inner steps begin."""

import math

import torch
from torch import Tensor

from pmeta.network.layers import Network, Weights

LOG_SCALE = "log_scale"


def init_scale(net: Network, scale: float = 10.0) -> Weights:
    """ln s at the start of meta-training: `scale` over the length of an embedding.

    With 10, embeddings of unit variance give scores that differ by a few units. Embeddings that
    tell the support samples apart by more leave inner steps nothing to do: a smaller scale gives
    their loss a gradient again."""
    return {LOG_SCALE: torch.tensor(math.log(scale / net.head.c_in))}


# (n, D), (n,) -> (classes, D), (classes,)
def prototype_head(x: Tensor, y: Tensor, classes: int, log_scale: Tensor) -> tuple[Tensor, Tensor]:
    """Weight 2 s c_k and bias -s |c_k|^2, c_k the mean embedding of class k.

    Up to |x|^2, which all classes share, the scores are -s |x - c_k|^2.

    >>> x, y = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 1])
    >>> w, b = prototype_head(x, y, 2, torch.tensor(0.0))
    >>> w.tolist(), b.tolist()
    ([[4.0, 0.0], [0.0, 2.0]], [-4.0, -1.0])
    """
    member = (y[:, None] == torch.arange(classes, device=y.device)).to(x)  # (n, classes)
    c = member.T @ x / member.sum(0)[:, None]
    s = log_scale.exp()
    return 2 * s * c, -s * c.square().sum(1)


def count_classes(y: Tensor) -> int:
    """How many classes a support set has; raises ValueError unless each has a sample."""
    labels = y.unique().tolist()
    if labels != list(range(len(labels))):
        raise ValueError(
            "a head from prototypes needs a sample of every class from 0 on, got the labels "
            f"{labels[:20]}: number the classes without gaps."
        )
    return len(labels)
