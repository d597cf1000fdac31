"""What a model on the device says of itself: sizes, classes, what it reads."""

import ctypes
from collections.abc import Sequence
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from pmeta.data.recordings.windows import Windowing
from pmeta.device.calls import CModel, EngineError
from pmeta.device.model_file import INPUT_TYPES, WRITE_AGAIN, completed, facts, header


def _field(name: str) -> Any:
    """A number of `pmeta_model`, to be read."""
    return property(attrgetter(f"_m.{name}"))


class Description:
    """The fields of `pmeta_model`, and the JSON of the file."""

    _lib: ctypes.CDLL
    _m: CModel
    _data: np.ndarray
    _names: Sequence[str]
    facts: dict[str, Any]
    """What the file says of itself in JSON (docs/reference/format.md)."""
    work: float = _field("work")
    """Operations and words moved for one sample, and the step behind it, at most."""
    arena_bytes: int = _field("arena_bytes")
    """Bytes that adaptation needs, planned when the model was exported."""
    infer_bytes: int = _field("infer_bytes")
    """Bytes that inference needs."""
    state_bytes: int = _field("state_bytes")
    """Bytes of the weights under adaptation, a part of both."""
    sample_bytes: int = _field("input_bytes")
    """Bytes of one sample."""
    rows: int = _field("rows")
    """Rows of output for a sample: 1 for a classifier, T for an episode of T observations."""
    n_classes: int = _field("classes")
    """The first outputs, those that `predict` looks at: the classes of the last adaptation."""

    @property
    def high_water_bytes(self) -> int:
        """Bytes of the arena that were reached so far."""
        return self._lib.pmeta_high_water(ctypes.byref(self._m))

    @property
    def steps(self) -> int:
        """K, the inner steps of an adaptation."""
        return self._m.steps - self.prototypes

    @property
    def batch(self) -> int | None:
        """Samples of the support set that share their attention scores; None: all of them."""
        return self._m.batch or None

    @property
    def outputs(self) -> int:
        """Numbers that the network gives for a row: the classes of a classifier."""
        return self._m.outputs // self._m.rows

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes that the model has learned; their numbers where it knows none.

        A label is a place in it."""
        named = len(self._names) == self.n_classes
        return tuple(self._names if named else map(str, range(self.n_classes)))

    @property
    def adapted(self) -> bool:
        """Whether the file holds weights of an adaptation in place of the meta-trained ones."""
        return header(self._data.tobytes())["classes"] > 0

    @property
    def repeated(self) -> bool:
        """Whether the loss leaves out the outputs that are no classes, as with a head from
        prototypes."""
        return self.facts.get("repeated", False)

    @property
    def prototypes(self) -> bool:
        """Whether the head is made from the support set, in a first pass over it."""
        return self.facts.get("prototypes", False)

    @property
    def reads(self) -> str:
        """What a sample is made from: pictures, recordings or arrays."""
        return self.facts["reads"]

    @property
    def loss(self) -> str:
        """Of a step: cross-entropy, mse or, where the caller gives its gradient, own."""
        return self.facts["loss"]

    @property
    def classifies(self) -> bool:
        """Whether it learns labels."""
        return self.loss == "cross-entropy"

    @property
    def fixed_classes(self) -> bool:
        """Whether the classes are those of the training, also where a support set lacks one."""
        return self.facts["fixed_classes"]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one sample."""
        return tuple(self.facts["input_shape"])

    @property
    def input_type(self) -> str:
        """float32 or uint8."""
        return INPUT_TYPES[self._m.input_type]

    @property
    def temperature(self) -> float:
        """What `probabilities` divides scores by; 1 where the file is not calibrated."""
        return self._lib.pmeta_temperature(ctypes.byref(self._m))

    @property
    def _slot_bytes(self) -> int:
        return self._lib.pmeta_slot_bytes(ctypes.byref(self._m))

    def _checked_facts(self, data: bytes) -> dict[str, Any]:
        """What the file says of itself in JSON, which the engine does not read."""
        try:
            found = completed(facts(data), self.input_type, self.rows)
        except ValueError as error:
            raise EngineError(str(error)) from None
        sample, *weights = [
            prod(shape)
            for shape in (found["input_shape"], *(entry["shape"] for entry in found["state"]))
        ]
        fits = (
            sample * np.dtype(self.input_type).itemsize == self._m.input_bytes
            and 4 * sum(weights) <= self.state_bytes < 4 * sum(weights) + 16
            and len(found["classes"]) in (0, self.n_classes)
            and (self.rows == 1 or found["loss"] != "cross-entropy")
            and (found["reads"] != "recordings" or self._cuts(found))
        )
        if not fits:
            raise EngineError(
                f"the names and shapes in the file do not fit its header: {WRITE_AGAIN}."
            )
        return found

    def _cuts(self, found: dict[str, Any]) -> bool:
        """Whether windows are there, in the shape of a sample and with a label for each output."""
        if "windows" not in found:
            return False
        w = Windowing.from_facts(found["windows"])
        return [len(w.columns), w.length] == found["input_shape"] and len(w.labels) == self.outputs
