"""Samples for an example where the user has given none: patterns that differ by class."""

from typing import NamedTuple

import numpy as np

from pmeta.device import DeviceModel


class Lesson(NamedTuple):
    """What the example learns from and what it names."""

    support: np.ndarray
    """(n, *shape) in the type that the model reads."""
    labels: np.ndarray
    """(n,), or where no labels are learned the wanted outputs. (n, rows, outputs)"""
    query: np.ndarray
    """(m, *shape)"""

    @property
    def bytes(self) -> int:
        """In flash; samples are padded to words."""
        one = -(-self.support[0].nbytes // 4) * 4
        return one * (len(self.support) + len(self.query)) + self.labels.nbytes


def patterns(model: DeviceModel, classes: int = 5) -> Lesson:
    """One support sample and one query of each class: stripes and different noise.

    What is no classifier gets two samples and the outputs of a random teacher."""
    rng = np.random.default_rng(0)
    shape = model.input_shape
    if not model.classifies:
        episodes = rng.standard_normal((3, *shape)).astype(np.float32)
        wanted = rng.standard_normal((2, model.rows, model.outputs)).astype(np.float32)
        return Lesson(episodes[:2], wanted, episodes[2:])
    classes = min(classes, model.outputs)
    drawn = [_gratings(classes, shape) + 0.2 * rng.standard_normal((classes, *shape)) for _ in "sq"]
    if model.input_type == "uint8":
        drawn = [np.clip(np.round(x * 64 + 128), 0, 255) for x in drawn]
    support, query = (x.astype(model.input_type) for x in drawn)
    return Lesson(support, np.arange(classes), query)


def _gratings(classes: int, shape: tuple[int, ...]) -> np.ndarray:
    """Stripes of another direction and width for each class, in -1 to 1. (classes, *shape)"""
    place = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    turn = 2 * np.pi * np.arange(classes) / max(classes, 1)
    waves = [
        np.sin(sum((2 + k + 4 * np.cos(angle + axis)) * p for axis, p in enumerate(place)))
        for k, angle in enumerate(turn)
    ]
    return np.stack([np.sign(wave) for wave in waves])
