"""Adapt and predict on a device from model.pmeta: the C engine behind numpy. Needs no torch."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import inf, prod
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from pmeta.base.files import write_atomically
from pmeta.device import slots
from pmeta.device.calls import CModel, EngineError, library
from pmeta.device.format import INPUT_TYPES, facts, with_state
from pmeta.device.interrupt import ASK, interruptible

LONG = frozenset(("pmeta_infer", "pmeta_feed", "pmeta_forward", "pmeta_backward"))
"""Calls that may take their time."""


class Adaptation(NamedTuple):
    """What an adaptation did."""

    losses: np.ndarray
    """Mean loss of the support set before each step. (K,)"""
    milliseconds: np.ndarray
    """Of each step; before them of the pass that makes prototypes, if there is one."""


class DeviceModel:
    """A model on the device: one file, one arena.

    `arena` is a buffer of the caller's own, at least `arena_bytes` long. Without it one is made.
    A file with more than `most_work` operations and words moved for one sample is refused, even
    below the limit of the engine itself. Ctrl-C ends a call."""

    def __init__(
        self,
        data: bytes,
        arena: np.ndarray | None = None,
        lib: ctypes.CDLL | None = None,
        most_work: float = inf,
    ):
        self._lib = lib or library()
        self._data = np.frombuffer(data, np.uint8).copy()  # aligned
        self._m = CModel()
        self._call("pmeta_open", self._data.ctypes.data, len(self._data))
        if self.work > most_work:
            raise EngineError(
                f"one sample of this model takes {self.work:.3g} operations, more than the "
                f"{most_work:.3g} that are allowed: take a smaller model, or allow more."
            )
        self._call("pmeta_on_yield", ctypes.cast(ASK, ctypes.c_void_p), None)
        self._arena = np.zeros(self.arena_bytes, np.uint8) if arena is None else arena
        if not (self._arena.flags.c_contiguous and self._arena.flags.writeable):
            raise ValueError(
                "the arena is one block of memory that the engine may write, got an array that is "
                "not: copy it."
            )
        self._call("pmeta_start", self._arena.ctypes.data, self._arena.nbytes)
        self._own_classes = self.classes
        self.facts = self._checked_facts(data)

    def _checked_facts(self, data: bytes) -> dict[str, Any]:
        """What the file says of itself in JSON, which the engine does not read."""
        try:
            found = facts(data)
            shapes = [found["input_shape"], *(entry["shape"] for entry in found["state"])]
            fits = all(type(n) is int and n > 0 for shape in shapes for n in shape)
            sample, *weights = [prod(shape) for shape in shapes]
            fits = fits and sample * np.dtype(self.input_type).itemsize == self._m.input_bytes
            fits = fits and 4 * sum(weights) <= self.state_bytes < 4 * sum(weights) + 16
            fits = fits and all(type(entry["name"]) is str for entry in found["state"])
        except (ValueError, KeyError, TypeError, RecursionError):
            fits = False
        if not fits:
            raise EngineError(
                "the names and shapes in the file do not fit its header: write it again with "
                "`pmeta export`."
            )
        return found

    def _call(self, name: str, *args: Any) -> None:
        with interruptible() if name in LONG else nullcontext():
            status = getattr(self._lib, name)(ctypes.byref(self._m), *args)
        if status:
            raise EngineError(f"{self._lib.pmeta_message(status).decode()} ({name}).")

    @property
    def work(self) -> float:
        """Operations and words moved for one sample, and the step behind it, at most."""
        return self._m.work

    @property
    def arena_bytes(self) -> int:
        """Bytes that adaptation needs, planned when the model was exported."""
        return self._m.arena_bytes

    @property
    def infer_bytes(self) -> int:
        """Bytes that inference needs."""
        return self._m.infer_bytes

    @property
    def state_bytes(self) -> int:
        """Bytes of the weights under adaptation, a part of both."""
        return self._m.state_bytes

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
    def classes(self) -> int:
        """The first outputs, those that `predict` looks at: the classes of the last adaptation."""
        return self._m.classes

    @property
    def repeated(self) -> bool:
        """Whether there are more outputs than were meta-trained.

        The loss then leaves out those that are no classes."""
        return self.facts.get("repeated") is True

    @property
    def prototypes(self) -> bool:
        """Whether the head is made from the support set, in a first pass over it."""
        return self.facts.get("prototypes") is True

    @property
    def rows(self) -> int:
        """Rows of output for a sample: 1 for a classifier, T for an episode of T observations."""
        return self._m.rows

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one sample."""
        return tuple(self.facts["input_shape"])

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return self._m.input_bytes

    @property
    def input_type(self) -> str:
        """float32 or uint8."""
        return INPUT_TYPES[self._m.input_type]

    def adapt(self, x: np.ndarray, y: Sequence[int] | np.ndarray) -> Adaptation:
        """Forget earlier adaptations and take K steps on a support set.

        x is (n, *input_shape), the labels y are (n,). There are as many classes as the largest
        label says. Where outputs are repeated, the softmax of the loss runs only over these;
        outputs that were meta-trained together stay together in it."""
        x, y = self._samples(x), self._labels(y)
        if len(x) != len(y) or len(x) == 0:
            raise ValueError(
                f"a support set has as many labels as samples, at least one, got {len(x)} and "
                f"{len(y)}."
            )
        classes = int(y.max()) + 1
        if self.prototypes and len(set(y.tolist())) < classes:
            raise ValueError(
                f"a head from prototypes needs a sample of every class, got {len(set(y.tolist()))} "
                f"of the {classes} classes: number the classes without gaps."
            )
        passes = self._m.steps
        losses, milliseconds = np.zeros(passes, np.float32), np.zeros(passes)
        loss = ctypes.c_float()
        with self._whole_adaptation(len(x), classes if self.repeated else self.outputs):
            for k in range(passes):
                start = perf_counter()
                for sample, label in zip(x, y, strict=True):
                    self._call("pmeta_feed", sample.ctypes.data, int(label), ctypes.byref(loss))
                    losses[k] += loss.value / len(x)
                self._call("pmeta_step")
                milliseconds[k] = 1000 * (perf_counter() - start)
        self._call("pmeta_classes", classes)
        return Adaptation(losses[passes - self.steps :], milliseconds)

    @contextmanager
    def _whole_adaptation(self, n: int, classes: int | None = None) -> Iterator[None]:
        """From the meta-trained weights to adapted ones, or, if anything fails, back."""
        self.reset()
        try:
            if classes is not None:
                self._call("pmeta_classes", classes)
            self._call("pmeta_begin", n)
            yield
        except BaseException:
            self.reset()
            raise

    def adapt_with(self, x: np.ndarray, gradient: Any) -> None:
        """K steps with a loss of the caller's.

        `gradient(i, output)` gives d loss_i / d output, divided by the support size."""
        x = self._samples(x)
        if self.prototypes:
            raise ValueError("a head from prototypes is made from labels: use adapt.")
        with self._whole_adaptation(len(x)):
            for _ in range(self.steps):
                for i, sample in enumerate(x):
                    self._feed(sample, lambda output, i=i: gradient(i, output))
                self._call("pmeta_step")

    def adapt_values(self, x: np.ndarray, y: np.ndarray) -> None:
        """K steps of a regression: targets y (n, outputs), the mean of squared errors as loss."""
        wanted = (len(x), *((self.rows,) if self.rows > 1 else ()), self.outputs)
        y = np.asarray(y)
        if y.shape != wanted or y.dtype.kind != "f":
            raise ValueError(
                f"the targets of a regression are floats of shape {wanted}, got {y.dtype} of shape "
                f"{y.shape}."
            )
        share = 2 / (self.rows * self.outputs * len(x))
        self.adapt_with(x, lambda i, output: (output - y[i].reshape(output.shape)) * share)

    def _feed(self, sample: np.ndarray, gradient: Any) -> None:
        out = np.empty((self._m.rows, self.outputs), np.float32)
        self._call("pmeta_forward", sample.ctypes.data, out.ctypes.data)
        g = np.ascontiguousarray(gradient(out), np.float32)
        if g.shape != out.shape:
            raise ValueError(
                f"the gradient has the shape of the output, {out.shape}, got {g.shape}."
            )
        self._call("pmeta_backward", g.ctypes.data)

    def scores(self, x: np.ndarray) -> np.ndarray:
        """The network's output for samples x (n, *input_shape).

        It is (n, outputs), or (n, rows, outputs) of episodes."""
        x = self._samples(x)
        rows = self._m.rows
        out = np.empty((len(x), rows, self._m.outputs // rows), np.float32)
        for sample, scores in zip(x, out, strict=True):
            self._call("pmeta_infer", sample.ctypes.data, scores.ctypes.data)
        return out[:, 0] if rows == 1 else out

    @property
    def temperature(self) -> float:
        """What `probabilities` divides scores by; 1 where the file is not calibrated."""
        return self._lib.pmeta_temperature(ctypes.byref(self._m))

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """How sure the model is of each class. (n, classes)"""
        scores = self.scores(x)
        p = np.empty((len(scores), self.classes), np.float32)
        for row, out in zip(scores, p, strict=True):
            self._call("pmeta_probabilities", row.ctypes.data, out.ctypes.data)
        return p

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The class of each sample, one of the first `classes` outputs. (n,)"""
        return self.scores(x)[..., : self.classes].argmax(-1)

    def weights(self) -> dict[str, np.ndarray]:
        """The weights under adaptation, by name."""
        state = np.frombuffer(self.state(), np.float32)
        found, at = {}, 0
        for entry in self.facts["state"]:
            n = int(np.prod(entry["shape"]))
            found[entry["name"]] = state[at : at + n].reshape(entry["shape"]).copy()
            at += n
        return found

    def state(self) -> bytes:
        """The adapted weights as bytes."""
        state = np.empty(self.state_bytes, np.uint8)
        self._call("pmeta_read_state", state.ctypes.data, state.nbytes)
        return state.tobytes()

    def restore(self, state: bytes) -> None:
        """Take back the weights of an earlier `state()`."""
        data = np.frombuffer(state, np.uint8).copy()
        self._call("pmeta_write_state", data.ctypes.data, data.nbytes)

    def reset(self) -> None:
        """Back to the meta-trained weights, and to the classes that the file has."""
        self._call("pmeta_reset")
        if self.rows == 1:
            self._call("pmeta_classes", self._own_classes)

    def save(self, path: str | Path) -> None:
        """Write a model whose first weights are the adapted ones, whole or not at all."""
        data = with_state(
            self._data.tobytes(), self.state(), self.classes, self.facts, self.temperature
        )
        write_atomically(Path(path), data)

    def save_state(self, path: str | Path) -> None:
        """Keep the adapted weights in a file of two slots: after a power cut it holds the state of
        the last call or of this one, whole."""
        with slots.opened(Path(path), self._slot_bytes, create=True) as s:
            self._call("pmeta_save_state", ctypes.byref(s))

    def load_state(self, path: str | Path) -> None:
        """Take the newest whole state of a file that `save_state` wrote for this model."""
        with slots.opened(Path(path), self._slot_bytes) as s:
            self._call("pmeta_load_state", ctypes.byref(s))

    @property
    def _slot_bytes(self) -> int:
        return self._lib.pmeta_slot_bytes(ctypes.byref(self._m))

    def _labels(self, y: Sequence[int] | np.ndarray) -> np.ndarray:
        if self._m.rows != 1:
            raise ValueError(
                "labels are for a classifier, this model gives many rows for a sample: use "
                "adapt_with."
            )
        y = np.asarray(y)
        rule = (
            f"a label is one of the model's classes, a whole number from 0 to {self.outputs - 1}, "
            f"for each sample"
        )
        if y.ndim != 1 or (len(y) and y.dtype.kind not in "iu"):
            raise ValueError(f"{rule}, got {y.dtype} of shape {y.shape}.")
        if len(y) and (y.min() < 0 or y.max() >= self.outputs):
            raise ValueError(f"{rule}, got {y.min()} to {y.max()}.")
        return y

    def _samples(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x)
        if x.shape[1:] != self.input_shape or x.dtype != self.input_type:
            raise ValueError(
                f"the model reads {self.input_type} samples of shape {self.input_shape}, "
                f"got {x.dtype} samples of shape {x.shape[1:]}."
            )
        if self.input_type == "float32" and not np.isfinite(x).all():
            bad = np.flatnonzero(~np.isfinite(x).all(axis=tuple(range(1, x.ndim))))
            raise ValueError(
                f"samples must be finite, {len(bad)} of {len(x)} are not, the first is number "
                f"{bad[0]}: mend it."
            )
        return np.require(x, requirements=["C", "A"])


def load(path: str | Path, most_work: float = inf) -> DeviceModel:
    """Open a model.pmeta, of at most `most_work` operations and words moved for one sample.

    Raises EngineError with the reason when the file is not one, is damaged, was written by another
    release, or asks for more work."""
    return DeviceModel(Path(path).read_bytes(), most_work=most_work)
