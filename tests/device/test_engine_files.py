"""Files made by hand, instruction by instruction.

What runs is as the format says, what could reach further is refused.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pmeta import device
from pmeta.device import format as flatfile
from pmeta.device.format import Constants, Contents, Geom, RawProgram
from pmeta.device.instructions import RawInstr
from tests.helpers.device_models import case

IN_FILE, SAMPLE = 1 << 30, 2 << 30
INFER = RawProgram(
    first=0,
    forward=1,
    backward=0,
    update=0,
    output=0,
    g_output=0,
    acc=0,
    acc_bytes=0,
    arena_bytes=256,
)
ADD = RawInstr("add", at={"y": 0, "x": 4}, parameters={"count": 1})
UPDATE = RawInstr(
    "update", at={"w": 0, "acc": 4}, parameters={"layer": 0, "groups": 1, "depth": 1, "filters": 1}
)


def written(
    programs: list[RawProgram], instrs: list[RawInstr], steps: int = 1, **header: int
) -> bytes:
    """One weight, one layer and samples of one number, unless the header says otherwise."""
    constants = Constants()
    constants.add("w", np.array([1.0, 1.0], "f4"))
    sizes = {
        "arena_bytes": 256,
        "infer_bytes": 256,
        "state_bytes": 4,
        "input_type": 0,
        "input_channels": 1,
        "input_plane": 1,
    }
    fields = {**sizes, "outputs": 1, "rows": 1, "steps": steps, "layers": 1, "batch": 1, **header}
    point = Geom(1, 1, 1, fields["outputs"], 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1)
    shape = [fields["input_channels"], fields["input_plane"]]
    facts: dict[str, Any] = {
        "input_shape": shape,
        "state": [{"name": "w", "shape": [1]}],
        "classes": [],
    }
    return flatfile.write(
        Contents(
            header=fields,
            constants=constants,
            scale=np.ones((2, fields["input_channels"])),
            alpha=np.ones((steps, 1)),
            steps=[1] * steps,
            programs=programs,
            instrs=instrs,
            geoms=[point],
            copies=[(constants.offsets["w"], 0, 4)],
            facts=facts,
        )
    )


def step(
    forward: RawInstr = ADD,
    backward: RawInstr = ADD,
    update: RawInstr = UPDATE,
    merge: RawInstr = ADD,
) -> bytes:
    """Inference, and a step of one instruction in each section."""
    program = INFER._replace(first=1, backward=1, update=1, merge=1, g_output=8)
    return written([INFER, program], [ADD, forward, backward, update, merge])


def refused(data: bytes) -> None:
    with pytest.raises(device.EngineError, match="does not fit"):
        device.DeviceModel(data)


def test_such_a_file_runs() -> None:
    model = device.DeviceModel(step())
    model.adapt(np.ones((2, 1, 1), np.float32), [0, 0])
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


def with_geom(data: bytes, geom: Geom) -> bytes:
    at = flatfile.header(data)["at_geoms"]
    words = np.asarray([*geom, 0], "<u4").tobytes()
    return flatfile.seal(data[:at] + words + data[at + len(words) :])


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
