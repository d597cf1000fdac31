"""Adapt and predict on a device from model.pmeta: the C engine behind numpy. Needs no torch."""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from pmeta.base.files import write_atomically
from pmeta.device import slots
from pmeta.device.calls import CModel, EngineError, library
from pmeta.device.description import Description
from pmeta.device.inputs import checked_samples, with_mirrored
from pmeta.device.interrupt import ASK, interruptible
from pmeta.device.model_file import with_state
from pmeta.device.predictions import Predictions
from pmeta.device.samples import read_many
from pmeta.device.support import checked_support, support_advice

LONG = frozenset(("pmeta_infer", "pmeta_feed", "pmeta_forward", "pmeta_backward"))
"""Calls that may take their time."""


class Adaptation(NamedTuple):
    """What an adaptation did."""

    losses: np.ndarray
    """Mean loss of the support set before each step. (K,)"""
    milliseconds: np.ndarray
    """Of each step; before them of the pass that makes prototypes, if there is one."""


class DeviceModel(Description):
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
        self._own_classes = self.n_classes
        self.facts = self._checked_facts(data)
        self._names = self.facts["classes"]

    def _call(self, name: str, *args: Any) -> None:
        with interruptible() if name in LONG else nullcontext():
            status = getattr(self._lib, name)(ctypes.byref(self._m), *args)
        if status:
            raise EngineError(f"{self._lib.pmeta_message(status).decode()} ({name}).")

    def adapt(
        self,
        x: np.ndarray,
        y: Sequence[int] | np.ndarray,
        classes: Sequence[str] = (),
        again: bool = False,
        mirror: bool = False,
        show: Callable[[range], Iterable[int]] = iter,
    ) -> Adaptation:
        """Take K steps from the weights of the file on a support set.

        x is (n, *input_shape), the labels y are (n,). `classes` are the names of the classes; there
        are as many as the largest label says, at least two, each with a sample. With a head from
        prototypes the softmax of the loss runs only over these; outputs that were meta-trained
        together stay together in it.
        A file that holds an adapted model learns on only with `again`, and only the same classes.
        With `mirror` each picture is fed mirrored left-right too, in the same arena and twice the
        time: for photos, not for what has a left and a right, such as letters.
        `show` goes through the passes over the support set, and may tell how far it is.
        """
        y, names = checked_support(self, y, classes)
        x, n, given = checked_samples(x, self), len(names), len(x)
        if given != len(y):
            raise ValueError(
                f"a support set has as many labels as samples, got {len(y)} and {given}: give one "
                f"for each."
            )
        self._check_again(classes, n, again)
        if mirror:
            x, y = with_mirrored(x), y.repeat(2)
        passes = self._m.steps
        losses, milliseconds = np.zeros(passes, np.float32), np.zeros(passes)
        loss = ctypes.c_float()
        with self._whole_adaptation(len(x), n if self.repeated else self.outputs):
            for k in show(range(passes)):
                start = perf_counter()
                for sample, label in zip(x, y, strict=True):
                    self._call("pmeta_feed", sample.ctypes.data, int(label), ctypes.byref(loss))
                    losses[k] += loss.value / len(x)
                self._call("pmeta_step")
                milliseconds[k] = 1000 * (perf_counter() - start)
        self._call("pmeta_classes", n)
        self._m.support = given  # for the temperature: copies make a model hardly surer
        self._names = list(classes or self._names)
        return Adaptation(losses[passes - self.steps :], milliseconds)

    def support_advice(
        self,
        y: Sequence[int] | np.ndarray,
        classes: Sequence[str] = (),
        again: bool = False,
        called: str = "the model",
    ) -> list[str]:
        """What will make predictions worse after `adapt` with the same labels, a sentence each:
        classes of very different sizes, fewer samples of a class than in meta-training, and what a
        head from prototypes forgets `again`. `called`: the model in words."""
        return support_advice(self, *checked_support(self, y, classes), again, called)

    def _check_again(self, classes: Sequence[str], n: int, again: bool) -> None:
        own = self.facts["classes"] or [str(i) for i in range(self._own_classes)]
        known = ", ".join(own)
        if not self.adapted:
            if again:
                raise ValueError(
                    "a model learns on where it has learned something, this one has not: leave "
                    "`again` out."
                )
            return
        if not again:
            raise ValueError(
                f"the file holds a model that has learned {known}: pass again=True to learn on "
                f"with these classes, or open the file that it was adapted from."
            )
        if n != len(own) or (classes and list(classes) != list(own)):
            raise ValueError(
                f"a model learns on with the classes that it has, {known}, got "
                f"{', '.join(classes) or n}: open the file that it was adapted from."
            )

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
        x = checked_samples(x, self)
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
        x = checked_samples(x, self)
        rows = self._m.rows
        out = np.empty((len(x), rows, self._m.outputs // rows), np.float32)
        for sample, scores in zip(x, out, strict=True):
            self._call("pmeta_infer", sample.ctypes.data, scores.ctypes.data)
        return out[:, 0] if rows == 1 else out

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """How sure the model is of each class. (n, classes)"""
        scores = self.scores(x)
        p = np.empty((len(scores), self.n_classes), np.float32)
        for row, out in zip(scores, p, strict=True):
            self._call("pmeta_probabilities", row.ctypes.data, out.ctypes.data)
        return p

    def predict(self, x: np.ndarray | str | Path | Sequence[str | Path]) -> Predictions:
        """The class of each sample by name, and how sure the model is.

        x is an array (n, *input_shape), or one path or many: of pictures, or of folders with
        pictures, which are read as `pmeta adapt` reads them (this needs Pillow)."""
        if isinstance(x, str | Path):
            x = [x]
        if not isinstance(x, np.ndarray) and len(x) and all(isinstance(p, str | Path) for p in x):
            x = read_many([Path(p) for p in x], self).x
        return Predictions(self.probabilities(np.asarray(x)), self.classes)

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
        self._names = self.facts["classes"]

    def save(self, path: str | Path, learned: dict[str, Any] | None = None) -> None:
        """Write a model whose first weights are the adapted ones, whole or not at all.

        It keeps the names of the classes, and what `learned` says of the adaptation."""
        kept = {**self.facts, "classes": list(self._names)}
        if learned is not None:
            kept["learned"] = learned
        data = self._data.tobytes()
        data = with_state(data, self.state(), self.n_classes, kept, self.temperature)
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


def load(path: str | Path, most_work: float = inf) -> DeviceModel:
    """Open a model.pmeta, of at most `most_work` operations and words moved for one sample.

    Raises EngineError with the reason when the file is not one, is damaged, was written by another
    release, or asks for more work."""
    data = Path(path).read_bytes()
    try:
        return DeviceModel(data, most_work=most_work)
    except EngineError as error:
        raise EngineError(f"{path}: {error}") from None
