"""Windows that the C engine cuts from a stream are those that Python cuts from the recording."""

import ctypes
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pmeta.compiler.export import export
from pmeta.data.recordings.files import Recording
from pmeta.data.recordings.windows import Windowing
from pmeta.device.binding import DeviceModel
from pmeta.method.learned import init_meta
from pmeta.method.methods import METHODS
from pmeta.network.take_in import take_in

C, LENGTH = 3, 8
SCALE, SHIFT = (0.5, 2.0, -1.0), (0.25, 0.0, 3.0)
FAILED = {"argument": 11, "arena": 8, "alignment": 7}


class Stream(ctypes.Structure):
    """pmeta_stream of stream.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("window", "m", "rows", "recent", "last", "now")),
        *((name, ctypes.c_uint32) for name in ("channels", "length", "stride")),
        *((name, ctypes.c_uint32) for name in ("averaged", "seen", "filled", "skip")),
        *((name, ctypes.c_double) for name in ("ratio", "place")),
    )


@pytest.fixture(scope="module")
def model() -> DeviceModel:
    net = take_in(
        nn.Sequential(nn.Conv1d(C, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)),
        torch.zeros(1, C, LENGTH),
    )
    meta = init_meta(net, METHODS["maml"], 1, 0.01, torch.Generator().manual_seed(0))
    made = export(net, meta, METHODS["maml"], (C, LENGTH), scale=SCALE, shift=SHIFT)
    return DeviceModel(made.data)


def start(
    model: DeviceModel, stride: int, ratio: float, memory: Any, size: int
) -> tuple[int, Stream]:
    lib, stream = model._lib, Stream()
    lib.pmeta_stream_start.argtypes = (
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32),
        *(ctypes.c_double, ctypes.c_void_p, ctypes.c_size_t),
    )
    lib.pmeta_stream_push.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    args = (ctypes.byref(stream), ctypes.byref(model._m), stride, ratio, memory, size)
    return lib.pmeta_stream_start(*args), stream


@pytest.mark.parametrize("stride", [3, 8, 11])
@pytest.mark.parametrize("ratio", [0.34, 0.5, 0.93, 1.0, 1.043, 1.5, 2.0, 3.7])
def test_a_stream_gives_the_windows_of_the_recording(
    model: DeviceModel, stride: int, ratio: float
) -> None:
    values = np.random.default_rng(0).normal(size=(150, C)).astype(np.float32)
    windowing = Windowing(
        ("x", "y", "z"), ("a",), rate=100, length=LENGTH, stride=stride, scale=SCALE, shift=SHIFT
    )
    expected = windowing.cut(Recording("r", "", ("x", "y", "z"), values, 100 * ratio, None)).x
    averaged = max(1, int(ratio + 0.5))
    memory = np.full(C * (LENGTH + averaged + 2), np.nan, np.float32)
    status, stream = start(model, stride, ratio, memory.ctypes.data, memory.nbytes)
    assert status == 0
    got = []
    for row in values:
        if model._lib.pmeta_stream_push(ctypes.byref(stream), row.ctypes.data):
            got.append(memory[: C * LENGTH].reshape(C, LENGTH).copy())
    assert len(got) == len(expected) > 2
    np.testing.assert_allclose(np.stack(got), expected, atol=2e-5)


def test_what_a_stream_refuses(model: DeviceModel) -> None:
    memory = np.zeros(C * (LENGTH + 3), np.float32)
    at, size = memory.ctypes.data, memory.nbytes
    assert start(model, 3, 1.0, at, size)[0] == 0
    assert start(model, 0, 1.0, at, size)[0] == FAILED["argument"]
    assert start(model, 3, 0.33, at, size)[0] == FAILED["argument"]
    assert start(model, 3, 0.0, at, size)[0] == FAILED["argument"]
    assert start(model, 3, float("nan"), at, size)[0] == FAILED["argument"]
    assert start(model, 3, 1.0, None, size)[0] == FAILED["argument"]
    assert start(model, 3, 1.0, at, size - 4)[0] == FAILED["arena"]
    assert start(model, 3, 2.0, at, size)[0] == FAILED["arena"]
    assert start(model, 3, 1.0, at + 1, size)[0] == FAILED["alignment"]
