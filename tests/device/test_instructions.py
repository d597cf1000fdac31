"""One table of instructions: the header in C and the document are as Python has it."""

import re
from pathlib import Path

import pytest

from pmeta import device
from pmeta.compiler.ir import instr
from pmeta.device.instructions import FLAGS, LAYOUTS, NONE, PARAMETERS, SLOTS, RawInstr, c_header

DOC = (Path(__file__).parents[2] / "docs" / "reference" / "format.md").read_text()


def test_the_header_in_c_is_made_from_the_table() -> None:
    assert (device.ENGINE / "instructions.h").read_text() == c_header()


def test_the_document_has_the_same_table() -> None:
    """Number, operation, operands (optional ones with a ?), parameters, flags."""
    rows = re.findall(r"^\| (\d+) \| (\w+) \|(.*?)\|(.*?)\|(.*?)\|.*\|$", DOC, re.M)
    documented = [(int(n), op, *(part.split() for part in parts)) for n, op, *parts in rows]
    assert documented == [
        (
            layout.number,
            op,
            [f"{o}?" if o in layout.marks["optional"] else o for o in layout.operands],
            list(layout.parameters),
            list(layout.flags),
        )
        for op, layout in LAYOUTS.items()
    ]
    flags = re.findall(r"`(\w+)` (\d+)", DOC[DOC.index("Flags:") :].split("\n\n")[0])
    assert {name: int(bit) for name, bit in flags} == FLAGS


def test_an_instruction_is_20_words() -> None:
    conv = RawInstr(
        "conv",
        at={"y": 16, "w": 8},
        step={"y": 4},
        parameters={"geom": 3, "channels": 2, "strip": 32},
    )
    assert conv.words() == [2, 0, 16, NONE, 8, *[NONE] * 3, 4, *[0] * 5, 3, 2, 32, 0, 0, 0]
    act = RawInstr("act", parameters={"count": 5, "kind": 1, "slope": 1.0})
    assert act.words()[-PARAMETERS:] == [5, 1, 0x3F800000, 0, 0, 0]
    score = RawInstr("score", flags=("rows_first", "backward"))
    assert score.words()[:2] == [20, 12]


def test_every_layout_fits() -> None:
    for layout in LAYOUTS.values():
        assert len(layout.operands) <= SLOTS
        assert len(layout.parameters) <= PARAMETERS
        assert set(layout.flags) <= FLAGS.keys()


def test_wrong_names_are_refused() -> None:
    with pytest.raises(ValueError, match="add has y, x, got y, z"):
        RawInstr("add", at={"y": 0, "z": 4}).words()
    with pytest.raises(ValueError, match="add has y, x, got z"):
        instr("add", z=0)
