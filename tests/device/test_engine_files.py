"""Files made by hand, instruction by instruction.

What runs is as the format says, what could reach further is refused.
"""

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
