"""A head for any number of classes: its rows all start from the mean of the meta-trained ones."""

from torch import Tensor

from pmeta.inner import Loss, cross_entropy

WEIGHTS = ("w/fc.weight", "w/fc.bias")
"""Of the head, in the checkpoint of either backbone for images."""


def alike(tensors: dict[str, Tensor], classes: int) -> dict[str, Tensor]:
    """A checkpoint whose head has `classes` outputs, all the same.

    Which class of a task gets which label is chance, so nothing is known that would make outputs different. (UnicornMAML, Ye
    and Chao 2022, meta-trains so; here it is done once, behind the training.)

    >>> import torch
    >>> new = alike({"w/fc.weight": torch.tensor([[1.0, 2.0], [3.0, 6.0]]), "w/fc.bias": torch.tensor([0.0, 1.0])}, 3)
    >>> new["w/fc.weight"].tolist(), new["w/fc.bias"].tolist()
    ([[2.0, 4.0], [2.0, 4.0], [2.0, 4.0]], [0.5, 0.5, 0.5])
    """
    if not 1 <= classes <= 65535:
        raise ValueError(f"--classes must be from 1 to 65535, got {classes}.")
    found = {name: tensors[name] for name in WEIGHTS if name in tensors}
    return {**tensors, **{name: w.mean(0, keepdim=True).repeat(classes, *[1] * (w.dim() - 1)) for name, w in found.items()}}


def among(classes: int) -> Loss:
    """The loss of classification where the first outputs alone are classes.

    >>> import torch
    >>> among(2)(torch.tensor([[1.0, 1.0, 9.0]]), torch.tensor([0]))  # ln 2: the third output is no class
    tensor([0.6931])
    """
    return lambda logits, y: cross_entropy(logits[:, :classes], y)
