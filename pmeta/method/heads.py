"""A head for any number of classes: the meta-trained outputs, repeated cyclically."""

from collections.abc import Sequence

from torch import Tensor

from pmeta.method.inner import Loss, cross_entropy

WEIGHTS = ("w/fc.weight", "w/fc.bias")
"""Of the head, in the checkpoint of either backbone for images."""


def repeated(
    tensors: dict[str, Tensor], classes: int, names: Sequence[str] = WEIGHTS
) -> dict[str, Tensor]:
    """A checkpoint whose head has `classes` outputs: the meta-trained ones, again and again.

    >>> import torch
    >>> w, b = torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([0.0, 1.0])
    >>> new = repeated({"w/fc.weight": w, "w/fc.bias": b}, 3)
    >>> new["w/fc.weight"].tolist(), new["w/fc.bias"].tolist()
    ([[1.0, 2.0], [3.0, 6.0], [1.0, 2.0]], [0.0, 1.0, 0.0])
    """
    if not 1 <= classes <= 65535:
        raise ValueError(f"--classes must be from 1 to 65535, got {classes}.")
    found = {name: tensors[name] for name in names if name in tensors}
    return {
        **tensors,
        **{name: w[[i % len(w) for i in range(classes)]] for name, w in found.items()},
    }


def among(classes: int) -> Loss:
    """The loss of classification where the first outputs alone are classes.

    >>> import torch
    >>> among(2)(torch.tensor([[1.0, 1.0, 9.0]]), torch.tensor([0]))  # ln 2
    tensor([0.6931])
    """
    return lambda logits, y: cross_entropy(logits[:, :classes], y)
