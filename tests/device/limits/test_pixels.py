"""Samples of raw pixels: read with a factor and a shift for each channel."""

import pytest

from pmeta.device.instructions import RawInstr
from pmeta.device.model_file import Geom
from tests.helpers.device_files import ADD, INFER, SAMPLE, opens, with_geom, written

PIXELS = {"input_type": 1, "input_channels": 3, "input_plane": 8, "arena_bytes": 4096}


def pixels(instr: RawInstr, rounds: int = 1, **header: int) -> bool:
    """An instruction that reads a uint8 sample of (3, 8) pixels opens."""
    loop = [RawInstr("loop", parameters={"rounds": rounds, "body": 1})] if rounds > 1 else []
    program = INFER._replace(first=1, forward=1 + len(loop), arena_bytes=4096)
    geom = Geom(3, 2, 4, 2, 2, 4, 1, 1, 1, 1, 0, 0, 1, 1, 1)
    data = written([INFER, program], [ADD, *loop, instr], **{**PIXELS, **header})
    return opens(with_geom(data, geom))


@pytest.mark.parametrize(
    ("op", "parameters"),
    [
        ("conv", {"geom": 0, "channels": 2, "strip": 16}),
        ("conv_bw_w", {"geom": 0, "strip": 16}),
        ("score", {"channels": 3, "plane": 8}),
        ("score_sum", {"channels": 3, "plane": 8}),
    ],
)
def test_raw_pixels_have_the_shape_of_the_header(op: str, parameters: dict[str, float]) -> None:
    """They are read with a factor for each channel."""
    places = {
        "conv": ("y", "w", "patches"),
        "conv_bw_w": ("acc", "gy", "patches"),
        "score": ("gamma", "module", "scratch"),
        "score_sum": ("sum", "module", "scratch"),
    }[op]
    reads = RawInstr(op, {"x": SAMPLE, **dict.fromkeys(places, 0)}, {}, parameters)
    assert pixels(reads)
    assert not pixels(reads, input_channels=4)
    assert not pixels(reads, input_plane=9)
    for field in ("input_channels", "input_plane"):  # and not as many in another shape
        assert not pixels(
            reads,
            **{field: 24, "input_channels" if field != "input_channels" else "input_plane": 1},
        )
    assert not pixels(reads._replace(at={**reads.at, "x": SAMPLE + 1}), input_plane=8)
    if op == "conv":
        parts = reads._replace(parameters={**parameters, "channels": 1})
        assert pixels(parts, rounds=2)
        assert not pixels(parts._replace(step={"x": 1}), rounds=2)
    if op.startswith("score"):
        assert not pixels(reads._replace(flags=("rows_first",)))


def test_raw_pixels_are_copied_by_planes() -> None:
    def copy(count: int, plane: int, at: int = SAMPLE) -> RawInstr:
        return RawInstr("copy", {"y": 0, "x": at}, {}, {"count": count, "plane": plane})

    for instr, fits in (
        (copy(24, 8), True),
        (copy(25, 8), False),
        (copy(24, 9), False),
        (copy(5, 8, SAMPLE + 19), True),
        (copy(5, 8, SAMPLE + 20), False),
    ):
        assert pixels(instr) == fits
    assert pixels(copy(8, 8)._replace(step={"x": 8}), rounds=3)
    assert not pixels(copy(8, 8)._replace(step={"x": 9}), rounds=3)


def test_raw_pixels_are_no_floats() -> None:
    """An operation that knows nothing of bytes does not read them."""
    add = RawInstr("add", {"y": 0, "x": SAMPLE}, {}, {"count": 1})
    assert not pixels(add)
    assert pixels(add, input_type=0)
    # The first two numbers of each are those of the sample.
    fc = RawInstr("fc", {"y": 0, "x": SAMPLE, "w": 0}, {}, {"outputs": 3, "inputs": 8, "rows": 1})
    bias = RawInstr("bias_bw", {"acc": 0, "gy": SAMPLE}, {}, {"channels": 3, "plane": 8})
    for instr in (fc, bias):
        assert not pixels(instr)
        assert pixels(instr, input_type=0)
