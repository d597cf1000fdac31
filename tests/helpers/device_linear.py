"""A linear classifier for the engine, written by hand, and the calls of C on it."""

import ctypes
from typing import Any

import numpy as np

from pmeta.device import binding
from pmeta.device.calls import CModel
from pmeta.device.instructions import RawInstr
from pmeta.device.model_file import Constants, Contents, RawProgram, write
from tests.helpers.device_files import IN_FILE, SAMPLE

OK, ALIGNMENT, TOO_SMALL, ORDER, LABEL, ARGUMENT, NOT_FINITE, STOPPED = 0, 7, 8, 9, 10, 11, 12, 13
W = np.array([[0.5, -1.0], [2.0, 0.25]], np.float32)
ALPHA = np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)
"""Of two steps and two layers, of which the second is updated."""
X = np.array([[1.0, 2.0], [-0.5, 0.5], [3.0, -1.0]], np.float32)
Y = [0, 1, 1]
STATE, SAMPLE_AT, OUTPUT, GRADIENT, SUMS, MERGES, ARENA = 20, 20, 28, 36, 44, 60, 64
"""Places in the arena: weights and a word that no weight takes, a sample, scores, their gradient,
the sums of the weight's gradients, how often was merged."""
INFER_BYTES = 36


def linear(temperatures: tuple[float, ...] = (), **header: int) -> bytes:
    """Scores are W x; a step takes the gradient of their cross-entropy."""
    constants = Constants()
    constants.add("w", W)
    one = constants.add("one", np.ones(1, np.float32))
    read = RawInstr("copy", {"y": SAMPLE_AT, "x": SAMPLE}, {}, {"count": 2, "plane": 1})
    sizes = {"outputs": 2, "inputs": 2, "rows": 1}
    score = RawInstr("fc", {"y": OUTPUT, "x": SAMPLE_AT, "w": 0}, {}, sizes)
    back = RawInstr("fc_bw_w", {"acc": SUMS, "gy": GRADIENT, "x": SAMPLE_AT}, {}, sizes)
    shape = {"layer": 1, "groups": 1, "depth": 1, "filters": 4}
    update = RawInstr("update", {"w": 0, "acc": SUMS}, {}, shape)
    merge = RawInstr("add", {"y": MERGES, "x": IN_FILE + one}, {}, {"count": 1})
    infer = RawProgram(0, 2, 0, 0, OUTPUT, 0, 0, 0, INFER_BYTES)
    step = RawProgram(2, 2, 1, 1, OUTPUT, GRADIENT, SUMS, ARENA - SUMS, ARENA, 1)
    fields = {
        **{"arena_bytes": ARENA, "infer_bytes": INFER_BYTES, "state_bytes": STATE},
        **{"input_type": 0, "input_channels": 2, "input_plane": 1, "outputs": 2, "rows": 1},
        **{"steps": 2, "layers": 2, "batch": 2},
    }
    return write(
        Contents(
            header={**fields, **header},
            constants=constants,
            scale=np.ones((2, 2)),
            alpha=ALPHA,
            steps=[1, 1],
            programs=[infer, step],
            instrs=[read, score, read, score, back, update, merge],
            geoms=[],
            copies=[(constants.offsets["w"], 0, 16)],
            facts={},
            temperatures=temperatures,
        )
    )


class Engine:
    """The calls of C, with buffers for their arguments."""

    def __init__(self, data: bytes | None = None, arena: int = ARENA):
        self.m = CModel()
        self.file = np.frombuffer(data or linear(), np.uint8).copy()
        self.arena = np.full(arena, 255, np.uint8)
        self.scores, self.state = np.zeros(2, np.float32), np.zeros(STATE, np.uint8)
        self.loss = ctypes.c_float(-1)

    def __call__(self, name: str, *args: Any) -> int:
        given = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in args]
        return getattr(binding.library(), f"pmeta_{name}")(ctypes.byref(self.m), *given)

    def open(self) -> int:
        return self("open", self.file, len(self.file))

    def start(self) -> int:
        return self("start", self.arena, len(self.arena))

    def feed(self, i: int = 0) -> int:
        return self("feed", X[i], Y[i], ctypes.byref(self.loss))

    def infer(self) -> int:
        return self("infer", X[0], self.scores)

    def floats(self, at: int, n: int) -> np.ndarray:
        return self.arena[at : at + 4 * n].view(np.float32)


def ready(data: bytes | None = None, arena: int = ARENA) -> Engine:
    e = Engine(data, arena)
    assert (e.open(), e.start()) == (OK, OK)
    return e
