"""Whether a model and its tasks can be worked with, in words that say what to change."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pmeta.method.inner import Loss, cross_entropy, mse

LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "mse": mse}
"""Losses by name."""
PARTS = ("support_x", "support_y", "query_x", "query_y")


def loss_of(loss: str | Loss) -> Loss:
    """A loss by its name, or the function itself."""
    if callable(loss):
        return loss
    if loss not in LOSSES:
        raise ValueError(
            f"loss is one of {', '.join(LOSSES)}, or a function that gives the loss of each "
            f"sample, got {loss!r}."
        )
    return LOSSES[loss]


def name_of(loss: Loss) -> str:
    """The name of a loss; own: a function of the user's."""
    return next((name for name, known in LOSSES.items() if known is loss), "own")


def check_model(model: Any, example: Any) -> None:
    """Raise ValueError unless this is a model and one input of it."""
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"model is an nn.Module, got {type(model).__name__}: give the network itself."
        )
    _check_tensor("example", example)
    if example.dim() < 2:
        raise ValueError(
            f"example is a batch of one input, got the shape {tuple(example.shape)}: give "
            "example[None]."
        )
    w = next(model.parameters(), None)
    if w is not None and example.dtype != w.dtype:
        raise ValueError(
            f"samples are numbers of the same kind as the model's weights, {w.dtype}, got "
            f"{example.dtype}: give example.to({w.dtype})."
        )


def _check_tensor(name: str, x: Any) -> None:
    if isinstance(x, np.ndarray):
        raise ValueError(
            f"{name} is a tensor, got a numpy array: give torch.from_numpy({name}), in float32 "
            "for samples and int64 for labels."
        )
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} is a tensor, got {type(x).__name__}: make it one.")
    if x.is_complex():
        raise ValueError(
            f"{name} holds real numbers, got {x.dtype}: give real and imaginary parts as channels, "
            "as in torch.view_as_real."
        )


def check_finite(name: str, t: Tensor) -> None:
    """Raise ValueError for NaN and infinity."""
    bad = int((~t.isfinite()).sum())
    if bad:
        raise ValueError(
            f"samples and weights are finite numbers, {bad} of {t.numel()} in {name} are not: mend "
            "or leave out such samples, or make the learner with a smaller alpha_0."
        )


@dataclass(frozen=True)
class Expected:
    """What every task of a learner is like."""

    shape: tuple[int, ...]
    """Of a sample."""
    dtype: torch.dtype
    output: tuple[int, ...]
    """What the model gives for a sample."""
    loss: Callable[..., Any]

    def checked(self, task: Any, name: str = "a task") -> Any:
        """The task; raises ValueError unless it is a support set and a query set."""
        if not isinstance(task, tuple | list) or len(task) != 4:
            got = f"{len(task)} parts" if isinstance(task, tuple | list) else type(task).__name__
            raise ValueError(f"{name} is ({', '.join(PARTS)}), got {got}.")
        for at in (0, 2):
            self.check_set(task[at], task[at + 1], PARTS[at], PARTS[at + 1])
        return task

    def finite(self, task: Any, name: str) -> Any:
        """`checked`, and without NaN: of a task by which a model is judged."""
        for part, t in zip(PARTS, self.checked(task, name), strict=True):
            if isinstance(t, Tensor):
                check_finite(f"{part} of {name}", t)
        return task

    def check_set(self, x: Any, y: Any, x_name: str = "x", y_name: str = "y") -> None:
        """Raise ValueError unless these are samples and a target for each."""
        self.check_samples(x, x_name)
        if self.loss in (cross_entropy, mse):
            _check_tensor(y_name, y)
        if len(y) != len(x):
            raise ValueError(
                f"each sample has a target, got {len(x)} samples in {x_name} and {len(y)} targets "
                f"in {y_name}."
            )
        if self.loss is cross_entropy:
            self._check_labels(y, y_name)
        if self.loss is mse:
            self._check_values(y, y_name)

    def check_samples(self, x: Any, name: str = "x") -> None:
        """Raise ValueError unless these are samples of the model."""
        _check_tensor(name, x)
        if tuple(x.shape[1:]) != self.shape or x.dtype != self.dtype:
            raise ValueError(
                f"samples are {self.dtype} of shape {self.shape}, as the example was, got "
                f"{x.dtype} of shape {tuple(x.shape[1:])} in {name}."
            )
        if len(x) == 0:
            raise ValueError(f"{name} holds at least 1 sample, got none: draw more for each class.")

    def _check_labels(self, y: Tensor, name: str) -> None:
        classes = self.output[-1]
        rule = f"labels are whole numbers from 0 to {classes - 1}, the outputs of the model"
        if y.is_floating_point() or y.dtype == torch.bool or y.dim() != 1:
            raise ValueError(
                f"{rule}, one for each sample, got {y.dtype} of shape {tuple(y.shape)} in {name}: "
                "give int64 labels, or loss='mse' for regression."
            )
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
            raise ValueError(
                f"{rule}, got {int(y.min())} to {int(y.max())} in {name}: number the classes of "
                "each task anew."
            )

    def _check_values(self, y: Tensor, name: str) -> None:
        if tuple(y.shape[1:]) != self.output or not y.is_floating_point():
            raise ValueError(
                f"the targets of mse have the shape of the model's output, {self.output}, in "
                f"float32, got {y.dtype} of shape {tuple(y.shape[1:])} in {name}."
            )
