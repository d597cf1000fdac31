"""Files for the engine made by hand, instruction by instruction."""

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pmeta import device
from pmeta.device import binding
from pmeta.device import model_file as flatfile
from pmeta.device.calls import CModel
from pmeta.device.instructions import RawInstr
from pmeta.device.model_file import Constants, Contents, Geom, RawProgram

IN_FILE, SAMPLE = flatfile.FILE_SPACE, flatfile.INPUT_SPACE
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
OK, CORRUPT = 0, 6
"""Of pmeta_open: it opens; an offset, a size or an instruction does not fit."""


def written(
    programs: Sequence[RawProgram],
    instrs: Sequence[RawInstr],
    steps: int = 1,
    **header: int,
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
            geoms=[point, point],
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


def around(
    instr: RawInstr, geom: Geom | None = None, rounds: int = 1, arena: int = 256, **header: int
) -> bytes:
    """Inference of an addition, and a step with one instruction where it may stand, in a loop.

    `geom` is the second of its two geometries."""
    loop = [RawInstr("loop", parameters={"rounds": rounds, "body": 1})] if rounds != 1 else []
    ends = instr.op in ("update", "prototypes")
    count = {"forward": 0, "update": 1 + len(loop)} if ends else {"forward": 1 + len(loop)}
    program = INFER._replace(first=1, arena_bytes=arena, **count)
    sizes = {"arena_bytes": arena, **header}
    data = written([INFER, program], [ADD, *loop, instr], **sizes)
    return with_geom(data, geom, 1) if geom else data


def with_words(data: bytes, at: int, *words: int) -> bytes:
    """The same file with other words from byte `at` on, and a right checksum."""
    new = struct.pack(f"<{len(words)}I", *words)
    return flatfile.seal(data[:at] + new + data[at + len(new) :])


def with_header(data: bytes, **fields: int) -> bytes:
    for name, value in fields.items():
        data = with_words(data, flatfile.CRC_FROM + 4 * flatfile.FIELDS.index(name), value)
    return data


def with_geom(data: bytes, geom: Geom, number: int = 0) -> bytes:
    return with_words(data, flatfile.header(data)["at_geoms"] + 64 * number, *geom, 0)


def longer(data: bytes, size: int) -> bytes:
    """The same file with zeros behind it."""
    return with_words(data.ljust(size, b"\0"), 16, size)


def _open(data: bytes) -> tuple[int, CModel]:
    m, kept = CModel(), np.frombuffer(data, np.uint8).copy()
    return binding.library().pmeta_open(ctypes.byref(m), kept.ctypes.data, len(kept)), m


def work(data: bytes) -> float:
    """The work of a file that opens."""
    status, m = _open(data)
    assert status == OK
    return m.work


def opens(data: bytes) -> bool:
    """pmeta_open alone, which takes no memory of the size that the file asks for."""
    status, _ = _open(data)
    assert status in (OK, CORRUPT), status
    return status == OK


def refused(data: bytes) -> None:
    with pytest.raises(device.EngineError, match="does not fit"):
        device.DeviceModel(data)
