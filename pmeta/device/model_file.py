"""model.pmeta, byte by byte (docs/reference/format.md). Numpy only.

The compiler writes it, the engine reads it in place.
"""

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, TypedDict

import numpy as np

from pmeta.base.reading import Count, Size, read
from pmeta.data.recordings.windows import Windowing

if TYPE_CHECKING:  # 8 ms, which whoever only reads does without
    from pmeta.device.instructions import RawInstr

MAGIC = b"pmeta\r\n\x1a"
VERSION = 2
ENDIAN_MARK = 0x01020304
CRC_FROM = 24
HEADER_BYTES = 128
FILE_SPACE, INPUT_SPACE = 1 << 30, 2 << 30
FIELDS = (
    *("arena_bytes", "infer_bytes", "state_bytes", "input_type", "input_channels", "input_plane"),
    *("outputs", "rows", "steps", "layers", "programs", "instrs", "geoms", "copies"),
    *("at_scale", "at_alpha", "at_steps", "at_programs", "at_instrs", "at_geoms", "at_copies"),
    *("at_facts", "facts_bytes", "batch", "classes", "at_temperatures"),
)
INPUT_TYPES = ("float32", "uint8")
WRITE_AGAIN = "write it again with `pmeta export` or `pmeta adapt --save`"


class State(TypedDict):
    """A weight under adaptation."""

    name: str
    shape: list[Size]


class Facts(TypedDict):
    """What a file says of itself for people and for Python, as far as we read it."""

    input_shape: list[Size]
    classes: list[str]
    state: list[State]
    repeated: NotRequired[bool]
    prototypes: NotRequired[bool]
    reads: NotRequired[Literal["pictures", "recordings", "arrays"]]
    loss: NotRequired[Literal["cross-entropy", "mse", "own"]]
    fixed_classes: NotRequired[bool]
    windows: NotRequired[Windowing]
    n_shot: NotRequired[Count]
    learned: NotRequired[dict[str, Any]]


class RawProgram(NamedTuple):
    """One program, the words of the file in their order."""

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


class Geom(NamedTuple):
    """A convolution or a pooling window, the words of the file in their order.

    1-D layers have h = kh = 1."""

    c_in: int
    h: int
    w: int
    c_out: int
    ho: int
    wo: int
    kh: int
    kw: int
    sh: int
    sw: int
    ph: int
    pw: int
    dh: int
    dw: int
    groups: int

    @property
    def depth(self) -> int:
        """Inputs of one output pixel of one channel."""
        return self.c_in // self.groups * self.kh * self.kw

    @property
    def longest(self) -> int:
        """The longest of kernel, stride, padding and dilation."""
        kernel, stride = (self.kh, self.kw), (self.sh, self.sw)
        return max(*kernel, *stride, self.ph, self.pw, self.dh, self.dw)

    def index_bytes(self, channels: int) -> int:
        """Places of the maxima: two bits in windows of up to 4 pixels, else a byte."""
        n = channels * self.ho * self.wo
        return -(-n // 4) if self.kh * self.kw <= 4 else n


@dataclass
class Constants:
    """The numbers that the engine reads in place: weights and attention parameters.

    They come first, behind the header."""

    data: bytearray = field(default_factory=bytearray)
    offsets: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, values: np.ndarray) -> int:
        """The offset in the file of float32 `values`."""
        if name not in self.offsets:
            self.offsets[name] = HEADER_BYTES + len(self.data)
            self.data += np.ascontiguousarray(values, dtype="<f4").tobytes()
        return self.offsets[name]

    def add_bytes(self, name: str, data: bytes) -> int:
        """The offset in the file of packed numbers; what follows them is aligned again."""
        self.offsets[name] = HEADER_BYTES + len(self.data)
        self.data += data + bytes(-len(data) % 4)
        return self.offsets[name]


@dataclass(frozen=True)
class Contents:
    """All that a file holds; the writer adds where everything lies."""

    header: dict[str, int]
    constants: Constants
    scale: np.ndarray
    alpha: np.ndarray
    steps: Sequence[int]
    programs: Sequence[RawProgram]
    instrs: "Sequence[RawInstr]"
    geoms: Sequence[Geom]
    copies: Sequence[tuple[int, int, int]]
    facts: dict[str, Any]
    """For people and for Python: the engine never reads it."""
    temperatures: Sequence[float] = ()
    """Of the softmax behind an adaptation to 1, 2, ... samples of each class."""


def write(contents: Contents) -> bytes:
    """The bytes of a file."""
    c = contents
    for name, given in (
        ("scale and shift", c.scale), ("step sizes", c.alpha), ("temperatures", c.temperatures)
    ):  # fmt: skip
        if not np.isfinite(np.asarray(given, "<f4")).all():
            raise ValueError(f"a model file holds finite numbers, its {name} are not: {given}.")
    sections = {
        "scale": np.asarray(c.scale, "<f4").tobytes(),
        "alpha": np.asarray(c.alpha, "<f4").tobytes(),
        "steps": _words(c.steps),
        "programs": _words([word for program in c.programs for word in program]),
        "instrs": _words([word for instr in c.instrs for word in instr.words()]),
        "geoms": _words([word for geom in c.geoms for word in (*geom, 0)]),
        "copies": _words([word for copy in c.copies for word in copy]),
    }
    at, body = {"at_facts": 0, "at_temperatures": 0}, bytes(c.constants.data)
    for name, data in sections.items():
        at[f"at_{name}"] = HEADER_BYTES + len(body)
        body += data
    counts = {
        "programs": len(c.programs),
        "instrs": len(c.instrs),
        "geoms": len(c.geoms),
        "copies": len(c.copies),
        "facts_bytes": 0,
    }
    numbers = {"classes": 0, **c.header, **counts, **at}
    rest = _words([numbers[name] for name in FIELDS])
    rest += bytes(HEADER_BYTES - CRC_FROM - len(rest)) + body
    data = MAGIC + struct.pack("<IIII", VERSION, ENDIAN_MARK, CRC_FROM + len(rest), 0) + rest
    return with_facts(data, c.facts, c.temperatures)


def seal(data: bytes) -> bytes:
    """The same bytes with a right checksum."""
    return data[: CRC_FROM - 4] + struct.pack("<I", zlib.crc32(data[CRC_FROM:])) + data[CRC_FROM:]


def with_facts(data: bytes, facts: dict[str, Any], temperatures: Sequence[float] = ()) -> bytes:
    """The same model with other facts, which stand last, and other temperatures before them."""
    h, (size,) = header(data), struct.unpack_from("<I", data, CRC_FROM - 8)
    ends = {at + -(-n // 4) * 4: at for at, n in _tail(data, h)}
    while size in ends:  # what is replaced is not kept
        size = ends[size]
    new = bytearray(data[:size])  # a file may lie in a larger block of flash
    _point(new, "at_temperatures", len(new) if len(temperatures) else 0)
    if len(temperatures):
        new += _words([len(temperatures)]) + np.asarray(temperatures, "<f4").tobytes()
    text = json.dumps(facts, separators=(",", ":"), ensure_ascii=False).encode()
    _point(new, "at_facts", len(new))
    _point(new, "facts_bytes", len(text))
    new += text + b" " * (-len(text) % 4)
    struct.pack_into("<I", new, CRC_FROM - 8, len(new))
    return seal(bytes(new))


def _tail(data: bytes, h: dict[str, int]) -> list[tuple[int, int]]:
    """Offset and bytes of what `with_facts` replaces."""
    found = [(h["at_facts"], h["facts_bytes"])]
    if h["at_temperatures"]:
        found.append((h["at_temperatures"], 4 + 4 * len(temperatures(data))))
    return [(at, size) for at, size in found if size]


def _point(data: bytearray, name: str, value: int) -> None:
    struct.pack_into("<I", data, CRC_FROM + 4 * FIELDS.index(name), value)


def temperatures(data: bytes) -> list[float]:
    """Those of a file that the engine has opened; none where it is not calibrated."""
    at = header(data)["at_temperatures"]
    count = struct.unpack_from("<I", data, at)[0] if at else 0
    return list(struct.unpack_from(f"<{count}f", data, at + 4)) if at else []


def header(data: bytes) -> dict[str, int]:
    """The numbered fields of a file that the engine has opened."""
    return dict(zip(FIELDS, struct.unpack_from(f"<{len(FIELDS)}I", data, CRC_FROM), strict=True))


def facts(data: bytes) -> dict[str, Any]:
    """Names and training facts of a file."""
    h = header(data)
    text = data[h["at_facts"] : h["at_facts"] + h["facts_bytes"]]
    return read("what the file says of itself", text, Facts, WRITE_AGAIN)


def completed(facts: dict[str, Any], input_type: str, rows: int) -> dict[str, Any]:
    """Facts of which some may be left out by a writer, and are by files of before they were there.

    `reads` is what samples are made from, `loss` that of a step, and with `fixed_classes` each
    output is a class of the training."""
    recordings = "windows" in facts
    pictures = input_type == "uint8" and len(facts["input_shape"]) == 3
    return {
        "reads": "recordings" if recordings else "pictures" if pictures else "arrays",
        "loss": "cross-entropy" if rows == 1 else "own",
        "fixed_classes": recordings,
        **facts,
    }


def copies(data: bytes) -> list[tuple[int, int, int]]:
    """(offset in the file, offset in the arena, bytes) of every weight under adaptation."""
    h = header(data)
    words = struct.unpack_from(f"<{3 * h['copies']}I", data, h["at_copies"])
    return list(zip(words[0::3], words[1::3], words[2::3], strict=True))


def with_state(
    data: bytes, state: bytes, classes: int, facts: dict[str, Any], temperature: float
) -> bytes:
    """The same model with adapted weights in place of the meta-trained ones, and its classes.

    Of its temperatures the one of the adaptation is left."""
    new = bytearray(with_facts(data, facts, [temperature] if temperatures(data) else []))
    _point(new, "classes", classes)
    for at, offset, length in copies(data):
        new[at : at + length] = state[offset : offset + length]
    return seal(bytes(new))


def _words(values: Sequence[int]) -> bytes:
    return np.asarray(values, "<u4").tobytes()
