"""Files made by hand, instruction by instruction.

What runs is as the format says, what could reach further is refused.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pmeta import device
from pmeta.device import model_file as flatfile
from pmeta.device.instructions import RawInstr
from pmeta.device.model_file import Geom
from tests.helpers.device_files import (
    ADD,
    IN_FILE,
    INFER,
    SAMPLE,
    UPDATE,
    refused,
    step,
    with_geom,
    with_words,
    written,
)
from tests.helpers.device_models import case


def one_step(model: device.DeviceModel, x: np.ndarray) -> None:
    """On samples of one class: these models have one output."""
    model._call("pmeta_begin", len(x))
    for sample in x:
        model._call("pmeta_feed", sample.ctypes.data, 0, None)
    model._call("pmeta_step")


def test_such_a_file_runs() -> None:
    model = device.DeviceModel(step())
    one_step(model, np.ones((2, 1, 1), np.float32))
    assert model.scores(np.ones((1, 1, 1), np.float32)).shape == (1, 1)


def test_updates_stand_in_their_own_section() -> None:
    """Where there is no step their step sizes would be read from behind the table."""
    refused(written([INFER, INFER._replace(first=1)], [UPDATE, ADD], steps=0))
    refused(step(forward=UPDATE))
    refused(step(backward=UPDATE))
    refused(step(merge=UPDATE))


def test_a_step_does_not_read_the_sample() -> None:
    """It may be gone by then."""
    copy = RawInstr("copy", at={"y": 0, "x": SAMPLE}, parameters={"count": 1, "plane": 1})
    refused(step(update=copy))
    refused(step(update=UPDATE._replace(at={"w": 0, "acc": SAMPLE})))


def test_programs_share_no_instruction() -> None:
    """Or checking them would take the product of their sizes."""
    device.DeviceModel(written([INFER, INFER._replace(first=1)], [ADD, ADD]))
    refused(written([INFER, INFER], [ADD, ADD]))
    refused(written([INFER._replace(forward=2), INFER._replace(first=1)], [ADD, ADD]))


def test_every_operand_moves_on_in_a_loop() -> None:
    weight = IN_FILE + flatfile.HEADER_BYTES
    conv = RawInstr(
        "conv",
        at={"y": 0, "x": SAMPLE, "w": weight, "patches": 64},
        step={"y": 4, "x": 4, "w": 4},
        parameters={"geom": 0, "channels": 1, "strip": 16},
    )
    loop = [RawInstr("loop", parameters={"rounds": 2, "body": 1}), conv]
    programs = [INFER._replace(forward=2), INFER._replace(first=2)]
    model = device.DeviceModel(written(programs, [*loop, ADD], input_channels=2, outputs=2))
    assert model.scores(np.array([[[3.0], [7.0]]], np.float32)).tolist() == [[3.0, 7.0]]


def test_float32_samples_are_aligned() -> None:
    """The engine refuses others, the binding copies them."""
    c = case("mlp", "maml", seed=16)
    model = c.device()
    crooked = np.zeros(c.raw.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(c.raw.shape)
    crooked[:] = c.raw
    assert not crooked.flags.aligned
    assert np.array_equal(model.scores(crooked), model.scores(c.raw))
    out = np.empty(model.outputs, np.float32)
    with pytest.raises(
        device.EngineError, match="float32 samples must start at addresses that 4 divides"
    ):
        model._call("pmeta_infer", crooked.ctypes.data, out.ctypes.data)
    model._call("pmeta_begin", 1)
    with pytest.raises(
        device.EngineError, match="float32 samples must start at addresses that 4 divides"
    ):
        model._call("pmeta_feed", crooked.ctypes.data, 0, None)


def wide(taps: int, channels: int, side: int) -> bytes:
    """A depthwise conv of `taps` x `taps` in a file of a few hundred bytes."""
    out = side - taps + 1
    geom = Geom(channels, side, side, channels, out, out, taps, taps, 1, 1, 0, 0, 1, 1, channels)
    conv = RawInstr(
        "conv",
        at={"y": 0, "x": 0, "w": 0, "patches": 0},
        parameters={"geom": 0, "channels": channels, "strip": 16},
    )
    program = INFER._replace(arena_bytes=2**29)
    sizes = {"arena_bytes": 2**29, "infer_bytes": 2**29}
    return with_geom(written([program, program._replace(first=1)], [conv, conv], **sizes), geom)


def slow() -> bytes:
    """Minutes of work in one sample, just below the limit."""
    loop = RawInstr("loop", parameters={"rounds": 65535, "body": 1})
    add = RawInstr("add", at={"y": 0, "x": 4}, parameters={"count": 60_000})
    program = INFER._replace(forward=100, arena_bytes=2**18)
    sizes = {"arena_bytes": 2**18, "infer_bytes": 2**18}
    return written([program, INFER._replace(first=100)], [*[loop, add] * 50, ADD], **sizes)


def test_work_without_end_is_refused() -> None:
    """A file of a few hundred bytes that would run for years."""
    data = wide(taps=200, channels=700, side=400)
    assert len(data) < 1000
    with pytest.raises(device.EngineError, match=r"asks for more work than the engine's limit"):
        device.DeviceModel(data)


def test_work_is_reckoned_and_the_caller_may_limit_it() -> None:
    data = wide(taps=3, channels=2, side=10)
    model = device.DeviceModel(data)
    outputs, depth = 2 * 8 * 8, 9
    assert model.work == outputs * depth + outputs + 2 * 100 + 2 * depth + 2 + depth * 16
    words = r"takes 1.*e\+03 operations, more than the 1e\+03 that are allowed: take a smaller"
    with pytest.raises(device.EngineError, match=words):
        device.DeviceModel(data, most_work=1000)


def test_work_is_not_less_than_the_macs_of_the_compiler() -> None:
    for kind in ("mlp", "signal", "depthwise-12"):
        exported = case(kind, "pmeta", seed=3).exported
        work = device.DeviceModel(exported.data).work
        assert max(exported.macs) <= work < 30 * max(exported.macs) + 1e5


def test_loops_count_as_often_as_they_run() -> None:
    copy = RawInstr("copy", at={"y": 0, "x": 8}, parameters={"count": 1, "plane": 1})
    works = []
    for rounds in (1, 60):
        loop = RawInstr("loop", parameters={"rounds": rounds, "body": 1})
        programs = [INFER._replace(forward=2), INFER._replace(first=2)]
        works.append(device.DeviceModel(written(programs, [loop, copy, ADD])).work)
    assert works == [2.0, 120.0]


def test_a_file_without_steps_is_refused() -> None:
    refused(written([INFER], [ADD], steps=0))


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np
from pmeta import device

signal.signal(signal.SIGINT, signal.default_int_handler)
model = device.DeviceModel(open(sys.argv[1], "rb").read())
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    model.scores(np.zeros((1, 1, 1), np.float32))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_a_call(tmp_path: Path) -> None:
    """The sample would take minutes."""
    (tmp_path / "model").write_bytes(slow())
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "interrupted\n", done.stderr


def test_the_parts_of_a_conv_are_within_its_filters() -> None:
    """Two rounds of one filter each, of a conv that has one."""
    weight = IN_FILE + flatfile.HEADER_BYTES
    conv = RawInstr(
        "conv",
        at={"y": 0, "x": SAMPLE, "w": weight, "patches": 64},
        parameters={"geom": 0, "channels": 1, "strip": 16},
    )
    for rounds in (1, 2, 3):
        loop = [RawInstr("loop", parameters={"rounds": rounds, "body": 1}), conv]
        data = written([INFER._replace(forward=2), INFER._replace(first=2)], [*loop, ADD])
        refused(data) if rounds > 1 else device.DeviceModel(data)


def with_copy(offset: int, size: int) -> bytes:
    data = step()
    return with_words(data, flatfile.header(data)["at_copies"] + 4, offset, size)


def test_weights_are_copied_into_the_state_alone() -> None:
    """An arena to infer with may end behind it."""
    device.DeviceModel(with_copy(0, 4))
    refused(with_copy(4, 4))
    refused(with_copy(0, 8))
    refused(with_copy(0xFFFFFFFC, 8))


def test_inference_stays_in_its_part_of_the_arena() -> None:
    programs = [INFER._replace(arena_bytes=128), INFER._replace(first=1)]
    device.DeviceModel(written(programs, [ADD, ADD], infer_bytes=128))
    refused(written([INFER, INFER._replace(first=1)], [ADD, ADD], infer_bytes=128))
    data = written(programs, [ADD, ADD], infer_bytes=128)
    for size, fits in ((128, True), (124, False)):
        arena = np.zeros(size, np.uint8)
        if fits:
            device.DeviceModel(data, arena=arena)
        else:
            with pytest.raises(device.EngineError, match="the arena is smaller than the model"):
                device.DeviceModel(data, arena=arena)


def test_inference_waits_for_the_samples_of_a_step() -> None:
    """It would run over the sums of their gradients."""
    model, x = device.DeviceModel(step()), np.ones((1, 1, 1), np.float32)
    model._call("pmeta_begin", 2)
    model.scores(x)
    model._call("pmeta_feed", x.ctypes.data, 0, None)
    with pytest.raises(device.EngineError, match="call out of order"):
        model.scores(x)
    model._call("pmeta_feed", x.ctypes.data, 0, None)
    with pytest.raises(device.EngineError, match="call out of order"):
        model.scores(x)
    model._call("pmeta_step")
    model.scores(x)


def test_scores_that_change_on_the_way_do_not_lead_out_of_the_sums() -> None:
    """Scratch over the scores: four channels are kept, and then their scores are zeros."""
    gamma, x, gy, acc, behind = 256 + 20, 64, 96, 128, 144
    copies = [
        RawInstr("copy", at={"y": y, "x": SAMPLE}, parameters={"count": n, "plane": 1})
        for y, n in ((gamma, 4), (x, 4), (gy, 1))
    ]
    sums = RawInstr(
        "conv_bw_w",
        at={"acc": acc, "gy": gy, "x": x, "gamma_fw": gamma, "patches": 256},
        parameters={"geom": 0, "stored": 4, "strip": 16},
    )
    infer = INFER._replace(arena_bytes=4096)
    program = infer._replace(first=1, forward=3, backward=1, update=0, merge=0, g_output=8)
    sizes = {"arena_bytes": 4096, "infer_bytes": 4096, "input_channels": 4}
    data = written([infer, program], [ADD, *copies, sums], **sizes)
    data = with_geom(data, Geom(4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1))
    arena = np.zeros(4096, np.uint8)
    model = device.DeviceModel(data, arena=arena)
    one_step(model, np.full((1, 4, 1), 2, np.float32))
    assert arena[acc:behind].view(np.float32).any()
    assert not arena[behind : behind + 16].any()


def test_the_parts_of_a_backward_conv_are_within_its_filters() -> None:
    part = RawInstr(
        "conv_bw_x",
        at={"gx": 0, "gy": 4, "w": 8, "patches": 16},
        parameters={"geom": 0, "channels": 1, "strip": 16},
    )
    for rounds in (1, 2):
        loop = [RawInstr("loop", parameters={"rounds": rounds, "body": 1}), part]
        data = written([INFER._replace(forward=2), INFER._replace(first=2)], [*loop, ADD])
        refused(data) if rounds > 1 else device.DeviceModel(data)
