"""The instructions of the engine in one table: operands, parameters and flags, all by name.

The compiler builds instructions from it, `engine/instructions.h` is made from it, and a test holds
the table in docs/reference/format.md against it. After a change:

    python -c "from pmeta.device.instructions import c_header; print(c_header(), end='')" \\
        > pmeta/device/engine/instructions.h
"""

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

NONE = 0xFFFFFFFF
"""The address of an operand that is not there."""
SLOTS, PARAMETERS = 6, 6
FLAGS = {
    **{"add": 1, "no_dx": 2, "rows_first": 4, "backward": 8, "count_pad": 16},
    **{"window": 32, "relu": 64, "relu6": 128, "whole": 256, "means": 512},
    **{"half": 1024, "byte": 2048},
}
FLOATS = ("eps", "slope", "threshold", "scale")
"""Parameters that are float32; all others are whole numbers."""
MARKS = {"writes": "!", "optional": "?", "packed": ".", "input": "~"}
"""What stands behind an operand in the table: it is written, it may be none, it is bytes without
alignment, it may be a uint8 sample."""

_TABLE = (  # operation, operands, parameters, flags; numbered from 1 on
    ("loop", "", "rounds body", ""),
    (
        *("conv", "y! x~ w bias? patches! scale", "geom channels strip rows first channel"),
        "window whole half byte",
    ),
    (
        *("conv_bw_w", "acc! gy x~ gamma_fw? gamma_bw? patches!"),
        *("geom stored strip channels rows first", ""),
    ),
    ("conv_bw_x", "gx! gy w patches! scale", "geom channels strip", "add half byte"),
    ("bias_bw", "acc! gy gamma_bw?", "channels plane", "rows_first"),
    ("norm", "xhat! y! w? bias? rstd!?", "channels plane per_group eps", ""),
    ("norm_bw", "xhat! gy w? rstd? mean!? products!?", "channels plane per_group eps", "no_dx"),
    ("norm_acc", "acc_w! acc_b! mean products gamma_fw? gamma_bw?", "channels plane", ""),
    ("act", "x! mask!?.", "count kind slope", ""),
    ("act_bw", "g! mask.", "count kind slope", ""),
    ("maxpool", "y! x index!?. w?", "geom channels rows first window place", ""),
    ("maxpool_bw", "gx! gy index.", "geom channels", ""),
    ("avgpool", "y! x", "geom channels", "count_pad"),
    ("avgpool_bw", "gx! gy", "geom channels", "count_pad"),
    ("add", "y! x", "count", ""),
    ("copy", "y! x~", "count plane", ""),
    ("fc", "y! x w bias? scale", "outputs inputs rows", "half byte"),
    ("fc_bw_w", "acc! gy x gamma_fw? gamma_bw?", "outputs inputs rows stored", ""),
    ("fc_bw_x", "gx! gy w scale", "outputs inputs rows", "add half byte"),
    (
        *("score", "gamma! x~ module scratch!", "channels plane threshold"),
        "rows_first backward half byte",
    ),
    ("compact", "x! gamma", "channels plane stored", "rows_first"),
    ("update", "w! acc", "layer groups depth filters", ""),
    (
        *("score_sum", "sum! x~ module scratch!", "channels plane threshold"),
        "rows_first backward half byte",
    ),
    ("score_mean", "gamma! sum! order!", "channels plane threshold", ""),
    ("merge", "acc! part! row? column?", "groups depth filters taps", ""),
    ("curve", "x! kept!?", "count kind", ""),
    ("curve_bw", "g! kept", "count kind", ""),
    ("mul", "y! x s", "factors each", ""),
    ("mul_bw", "gs! gy x", "factors each", "add"),
    ("layer_norm", "xhat! y! w? bias? rstd!?", "channels rows eps", ""),
    ("layer_norm_bw", "xhat! gy w? rstd? mean!? products!?", "channels rows eps", "no_dx"),
    ("moments", "stat! x", "channels plane width rows first window", "means"),
    ("group_stat", "stat! means!? rstd!?", "channels count per_group eps", ""),
    ("normalise", "xhat! y! stat w? bias?", "channels width rows window place", "relu relu6"),
    ("shift", "x!", "channels width window keep", ""),
    ("norm_coef", "coef! stat means? w? mean products", "channels plane pooled per_group", ""),
    ("norm_pool_bw", "x! gy index. coef", "geom channels stride", ""),
    ("prototypes", "w! bias! acc count", "outputs inputs scale", ""),
    (),  # 39 and 40 are reserved: no engine runs them
    (),
)


class Layout(NamedTuple):
    """One kind of instruction; operands and parameters in the order of the file."""

    number: int
    operands: tuple[str, ...]
    parameters: tuple[str, ...]
    flags: tuple[str, ...]
    marks: Mapping[str, frozenset[str]]
    """By the names of MARKS: the operands that have the mark."""


def _layout(number: int, operands: str, parameters: str, flags: str) -> Layout:
    marked = {operand.rstrip("!?.~"): operand for operand in operands.split()}
    marks = {
        name: frozenset(operand for operand, text in marked.items() if mark in text)
        for name, mark in MARKS.items()
    }
    return Layout(number, tuple(marked), tuple(parameters.split()), tuple(flags.split()), marks)


LAYOUTS = {row[0]: _layout(number, *row[1:]) for number, row in enumerate(_TABLE, start=1) if row}


class RawInstr(NamedTuple):
    """One instruction of a file. Operands that are left out are none, steps and parameters 0."""

    op: str
    at: Mapping[str, int] = {}
    """Addresses of the operands."""
    step: Mapping[str, int] = {}
    """Bytes that an address moves on in each round of a loop."""
    parameters: Mapping[str, float] = {}
    flags: Collection[str] = ()

    def words(self) -> list[int]:
        """The 20 words of the file.

        >>> RawInstr("add", at={"y": 0, "x": 4}, parameters={"count": 1}).words()[:4]
        [15, 0, 0, 4]
        """
        layout = LAYOUTS[self.op]
        bits = {name: _bits(name, value) for name, value in self.parameters.items()}
        return [
            layout.number,
            sum(FLAGS[flag] for flag in self.flags),
            *_in_order(self.op, self.at, layout.operands, NONE, SLOTS),
            *_in_order(self.op, self.step, layout.operands, 0, SLOTS),
            *_in_order(self.op, bits, layout.parameters, 0, PARAMETERS),
        ]


def _in_order(
    op: str, given: Mapping[str, int], names: Sequence[str], missing: int, count: int
) -> list[int]:
    if not given.keys() <= set(names):
        raise ValueError(f"{op} has {', '.join(names) or 'nothing'}, got {', '.join(given)}.")
    return [given.get(name, missing) for name in names] + [missing] * (count - len(names))


def _bits(name: str, value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0] if name in FLOATS else int(value)


_HEADER = """\
/* The instructions by name. Made by pmeta/device/instructions.py, not by hand. */
#ifndef PMETA_INSTRUCTIONS_H
#define PMETA_INSTRUCTIONS_H
#include <stdint.h>

enum {{
{operations}
}};
enum {{
{flags}
}};

/* One number for each operand, by the name of the operation and of the operand. */
#define PMETA_SLOTS {slots}
#define PMETA_OPERANDS(number) \\
    number slot[PMETA_SLOTS]; \\
{operands}

typedef union {{
    uint32_t word[{words}];
{parameters}
}} pmeta_parameters;

/* Operands as bits: written; may be none; bytes without alignment; may be a uint8 sample. */
typedef struct {{
    uint8_t {marks};
}} pmeta_marks;
#define PMETA_MARKS \\
{rows}

#endif
"""


def c_header() -> str:
    """The text of engine/instructions.h."""
    laid = LAYOUTS.items()
    operands = _c_structs({op: f"number {', '.join(x.operands)};" for op, x in laid if x.operands})
    parameters = _c_structs({op: _c_fields(x.parameters) for op, x in laid})
    return _HEADER.format(
        operations=_c_enum({f"OP_{op}": x.number for op, x in laid}),
        flags=_c_enum({f"FLAG_{name}": bit for name, bit in FLAGS.items()}),
        slots=SLOTS,
        operands=" \\\n".join(operands),
        words=PARAMETERS,
        parameters="\n".join(parameters),
        marks=", ".join(MARKS),
        rows=" \\\n".join(f"    [PMETA_OP_{op.upper()}] = {_c_marks(x)}," for op, x in laid),
    )


def _c_enum(values: Mapping[str, int]) -> str:
    """Four constants a line."""
    texts = [f"PMETA_{name.upper()} = {value}," for name, value in values.items()]
    lines = (texts[i : i + 4] for i in range(0, len(texts), 4))
    return "\n".join(f"    {' '.join(line)}" for line in lines)


def _c_structs(fields: Mapping[str, str]) -> list[str]:
    """One struct for the operations that have the same fields."""
    alike = {text: [op for op in fields if fields[op] == text] for text in fields.values()}
    return [f"    struct {{ {text} }} {', '.join(ops)};" for text, ops in alike.items()]


def _c_fields(names: Sequence[str]) -> str:
    """Whole numbers first: a float is the last parameter wherever there is one."""
    whole = ", ".join(name for name in names if name not in FLOATS)
    return " ".join([f"uint32_t {whole};", *(f"float {name};" for name in names if name in FLOATS)])


def _c_marks(layout: Layout) -> str:
    bits = {
        mark: sum(1 << layout.operands.index(operand) for operand in marked)
        for mark, marked in layout.marks.items()
    }
    return f"{{{', '.join(f'0x{bits[mark]:02x}' for mark in MARKS)}}}"
