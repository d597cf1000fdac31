"""model.pmeta, byte by byte (docs/reference/format.md): written by the exporter, read by the engine in place. Numpy only."""

import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

MAGIC = b"pmeta\r\n\x1a"
VERSION = 1
ENDIAN_MARK = 0x01020304
CRC_FROM = 24
HEADER_BYTES = 128
FILE_SPACE, INPUT_SPACE, NONE = 1 << 30, 2 << 30, 0xFFFFFFFF
FLAGS = {"add": 1, "no_dx": 2, "rows": 4, "backward": 8, "count_pad": 16}
_OPS = """loop conv conv_bw_w conv_bw_x bias_bw norm norm_bw norm_acc act act_bw maxpool maxpool_bw avgpool avgpool_bw
add copy fc fc_bw_w fc_bw_x score compact update score_sum score_mean merge"""
OPS = _OPS.split()
_FIELDS = """arena_bytes infer_bytes state_bytes input_type input_channels input_plane outputs rows steps layers programs
instrs geoms copies at_scale at_alpha at_steps at_programs at_instrs at_geoms at_copies at_meta meta_bytes batch classes"""
FIELDS = _FIELDS.split()
INPUT_TYPES = ("float32", "uint8")


class RawInstr(NamedTuple):
    """One instruction as it stands in the file."""

    op: str
    flags: int = 0
    at: tuple[int, ...] = ()
    step: tuple[int, ...] = ()
    p: tuple[int, ...] = ()

    def words(self) -> list[int]:
        return [
            OPS.index(self.op) + 1,
            self.flags,
            *(*self.at, *[NONE] * (6 - len(self.at))),
            *(*self.step, *[0] * (6 - len(self.step))),
            *(*self.p, *[0] * (4 - len(self.p))),
        ]


class RawProgram(NamedTuple):
    first: int
    forward: int
    backward: int
    update: int
    output: int
    g_output: int
    acc: int
    acc_bytes: int
    arena_bytes: int
    merge: int = 0


@dataclass
class Constants:
    """The numbers that the engine reads in place: weights and attention parameters. They come first, behind the header."""

    data: bytearray = field(default_factory=bytearray)
    offsets: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, values: np.ndarray) -> int:
        """The offset in the file of float32 `values`."""
        if name not in self.offsets:
            self.offsets[name] = HEADER_BYTES + len(self.data)
            self.data += np.ascontiguousarray(values, dtype="<f4").tobytes()
        return self.offsets[name]


def float_bits(value: float) -> int:
    """A float32 as the word that holds it.

    >>> hex(float_bits(1.0))
    '0x3f800000'
    """
    return struct.unpack("<I", struct.pack("<f", value))[0]


def write(
    header: dict[str, int],
    constants: Constants,
    scale: np.ndarray,
    alpha: np.ndarray,
    steps: list[int],
    programs: list[RawProgram],
    instrs: list[RawInstr],
    geoms: list[tuple[int, ...]],
    copies: list[tuple[int, int, int]],
    meta: dict[str, Any],
) -> bytes:
    """The bytes of a file. `meta` is for people and for Python: the engine never reads it."""
    text = json.dumps(meta, separators=(",", ":")).encode()
    sections = {
        "scale": np.asarray(scale, "<f4").tobytes(),
        "alpha": np.asarray(alpha, "<f4").tobytes(),
        "steps": _words(steps),
        "programs": _words([w for p in programs for w in p]),
        "instrs": _words([w for i in instrs for w in i.words()]),
        "geoms": _words([w for g in geoms for w in (*g, *[0] * (16 - len(g)))]),
        "copies": _words([w for c in copies for w in c]),
        "meta": text + b" " * (-len(text) % 4),
    }
    at, body = {}, bytes(constants.data)
    for name, data in sections.items():
        at[f"at_{name}"] = HEADER_BYTES + len(body)
        body += data
    counts = {
        "programs": len(programs),
        "instrs": len(instrs),
        "geoms": len(geoms),
        "copies": len(copies),
        "meta_bytes": len(text),
    }
    numbers = {"classes": 0, **header, **counts, **at}
    rest = _words([numbers[name] for name in FIELDS])
    rest += bytes(HEADER_BYTES - CRC_FROM - len(rest)) + body
    return seal(MAGIC + struct.pack("<IIII", VERSION, ENDIAN_MARK, CRC_FROM + len(rest), 0) + rest)


def seal(data: bytes) -> bytes:
    """The same bytes with a right checksum."""
    return data[: CRC_FROM - 4] + struct.pack("<I", zlib.crc32(data[CRC_FROM:])) + data[CRC_FROM:]


def header(data: bytes) -> dict[str, int]:
    """The numbered fields of a file that the engine has opened."""
    return dict(zip(FIELDS, struct.unpack_from(f"<{len(FIELDS)}I", data, CRC_FROM), strict=True))


def meta(data: bytes) -> dict[str, Any]:
    """Names and training facts of a file."""
    h = header(data)
    return json.loads(data[h["at_meta"] : h["at_meta"] + h["meta_bytes"]])


def copies(data: bytes) -> list[tuple[int, int, int]]:
    """(offset in the file, offset in the arena, bytes) of every weight under adaptation."""
    h = header(data)
    words = struct.unpack_from(f"<{3 * h['copies']}I", data, h["at_copies"])
    return list(zip(words[0::3], words[1::3], words[2::3], strict=True))


def with_state(data: bytes, state: bytes, classes: int) -> bytes:
    """The same model with the adapted weights `state` in the place of the meta-trained ones, and the number of its classes."""
    (size,) = struct.unpack_from("<I", data, CRC_FROM - 8)
    new = bytearray(data[:size])  # a file may lie in a larger block of flash
    struct.pack_into("<I", new, CRC_FROM + 4 * FIELDS.index("classes"), classes)
    for at, offset, length in copies(data):
        new[at : at + length] = state[offset : offset + length]
    return seal(bytes(new))


def _words(values: list[int]) -> bytes:
    return np.asarray(values, "<u4").tobytes()
