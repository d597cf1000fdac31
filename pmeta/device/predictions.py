"""What a model says of samples: the class, how sure it is, and the runner-up."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

UNSURE_BELOW = 0.5
"""A class with a lower probability is more likely wrong than right."""


class Prediction(NamedTuple):
    """One sample."""

    name: str
    """Of the class."""
    probability: float
    runner_up: str
    """The second most likely class; empty where there is only one."""
    runner_up_probability: float

    def unsure(self, below: float = UNSURE_BELOW) -> bool:
        """Whether to ask a person."""
        return self.probability < below


@dataclass(frozen=True)
class Predictions:
    """Some samples, in their order; each one is a `Prediction`."""

    probabilities: np.ndarray
    """(n, classes)"""
    classes: Sequence[str]

    @property
    def labels(self) -> np.ndarray:
        """The number of the most likely class. (n,)"""
        return self.probabilities.argmax(1)

    @property
    def names(self) -> list[str]:
        """The most likely class."""
        return [self.classes[label] for label in self.labels]

    def __len__(self) -> int:
        return len(self.probabilities)

    def __iter__(self) -> Iterator[Prediction]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Prediction:
        p = self.probabilities[i]
        first, *others = np.argsort(-p, kind="stable").tolist()
        second = others[0] if others else first
        return Prediction(
            self.classes[first],
            float(p[first]),
            self.classes[second] if others else "",
            float(p[second]) if others else 0.0,
        )
