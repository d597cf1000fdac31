"""Arguments of a learner: what cannot be is told in our own words, with the way out."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pmeta.learner import Learner

X, Y = torch.zeros(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])


def learner(loss: Any = "cross-entropy") -> Learner:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    return Learner(model, torch.zeros(1, 1, 8, 8), inner_steps=1, loss=loss, for_device=False)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ((X, Y, X), "task 0 is (support_x, support_y, query_x, query_y), got 3 parts."),
        (X, "task 0 is (support_x, support_y, query_x, query_y), got Tensor."),
        (
            (X.numpy(), Y, X, Y),
            "support_x is a tensor, got a numpy array: give torch.from_numpy(support_x), in "
            "float32 for samples and int64 for labels.",
        ),
        ((X, Y.numpy(), X, Y), "support_y is a tensor, got a numpy array: give torch.from_numpy("),
        ((X, Y.tolist(), X, Y), "support_y is a tensor, got list: make it one."),
        (
            (X.to(torch.complex64), Y, X, Y),
            "support_x holds real numbers, got torch.complex64: give real and imaginary parts as "
            "channels, as in torch.view_as_real.",
        ),
        (
            (X, Y, X[:, :, :4], Y),
            "samples are torch.float32 of shape (1, 8, 8), as the example was, got torch.float32 "
            "of shape (1, 4, 8) in query_x.",
        ),
        (
            (X.double(), Y, X, Y),
            "samples are torch.float32 of shape (1, 8, 8), as the example was, got torch.float64 "
            "of shape (1, 8, 8) in support_x.",
        ),
        (
            (X, Y, X[:0], Y[:0]),
            "query_x holds at least 1 sample, got none: draw more for each class.",
        ),
        (
            (X, Y, X, Y[:3]),
            "each sample has a target, got 4 samples in query_x and 3 targets in query_y.",
        ),
        (
            (X, Y + 1, X, Y),
            "labels are whole numbers from 0 to 2, the outputs of the model, got 1 to 3 in "
            "support_y: number the classes of each task anew.",
        ),
        (
            (X, Y - 1, X, Y),
            "labels are whole numbers from 0 to 2, the outputs of the model, got -1 to 1 in",
        ),
        (
            (X, Y.float(), X, Y),
            "labels are whole numbers from 0 to 2, the outputs of the model, one for each sample, "
            "got torch.float32 of shape (4,) in support_y: give int64 labels, or loss='mse' for "
            "regression.",
        ),
    ],
)
def test_tasks(task: Any, message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        learner().meta_train([task], progress=False)


def test_targets_of_a_regression() -> None:
    message = (
        "^the targets of mse have the shape of the model's output, \\(3,\\), in float32, got "
        "torch.int64 of shape \\(\\) in support_y"
    )
    with pytest.raises(ValueError, match=message):
        learner("mse").meta_train([(X, Y, X, Y)], progress=False)


def test_adapting_and_predicting() -> None:
    found = learner()
    with pytest.raises(ValueError, match=r"^x is a tensor, got a numpy array"):
        found.adapt(X.numpy(), Y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^labels are whole numbers from 0 to 2"):
        found.adapt(X, Y + 5)
    with pytest.raises(ValueError, match=r"^samples are torch.float32 of shape \(1, 8, 8\)"):
        found.predict(found.meta.w, X[0])


@pytest.mark.parametrize(
    ("model", "example", "message"),
    [
        (3, X, "model is an nn.Module, got int: give the network itself."),
        (nn.Linear(8, 2), np.zeros((1, 8)), "example is a tensor, got a numpy array"),
        (nn.Linear(8, 2), torch.zeros(8), "example is a batch of one input, got the shape (8,)"),
        (
            nn.Linear(8, 2),
            torch.zeros(1, 8, dtype=torch.int64),
            "samples are numbers of the same kind as the model's weights, torch.float32, got "
            "torch.int64: give example.to(torch.float32).",
        ),
        (nn.Linear(8, 2), torch.zeros(1, 8, dtype=torch.complex64), "example holds real numbers"),
    ],
)
def test_models_and_examples(model: Any, example: Any, message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        Learner(model, example)


def test_losses_by_name() -> None:
    with pytest.raises(ValueError, match=r"^loss is one of cross-entropy, mse, or a function that"):
        learner("hinge")
