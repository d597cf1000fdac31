"""Where the operands of every operation end, and what it costs."""

import pytest

from pmeta.device.instructions import LAYOUTS, NONE
from tests.helpers.device_examples import (
    ARENA,
    BW_W_ROWS,
    BW_W_STORED,
    EXAMPLES,
    LAYER_NORM_BW,
    NORM_BW,
    WHOLE,
    Example,
)
from tests.helpers.device_files import IN_FILE, SAMPLE, around, longer, opens, work


def test_every_operation_has_an_example() -> None:
    assert {example.op for example in EXAMPLES.values()} == LAYOUTS.keys() - {"loop"}
    for example in EXAMPLES.values():  # what it leaves out takes nothing
        assert example.words.keys() <= set(LAYOUTS[example.op].operands)


@pytest.mark.parametrize("name", EXAMPLES)
def test_operands_end_with_the_arena(name: str) -> None:
    """Each may reach to its last byte, and not a word further."""
    example = EXAMPLES[name]
    assert opens(example.data())
    for operand, size in example.sizes().items():
        packed = operand in example.packed
        last = ARENA - size
        assert opens(example.data(**{operand: last}))
        assert not opens(example.data(**{operand: last + (1 if packed else 4)}))
        assert opens(example.data(**{operand: 2})) == packed  # the others are aligned
        assert opens(example.data(**{operand: NONE})) == (operand in optional(example))


@pytest.mark.parametrize("name", EXAMPLES)
def test_operands_end_with_the_file(name: str) -> None:
    """And what is written is never there."""
    example, end = EXAMPLES[name], 1 << 14
    for operand, size in example.sizes().items():
        written = operand in LAYOUTS[example.op].marks["writes"]
        last = IN_FILE + end - -(-size // 4) * 4
        assert opens(longer(example.data(**{operand: last}), end)) == (not written)
        assert not opens(longer(example.data(**{operand: last + 4}), end))


@pytest.mark.parametrize("name", [name for name in EXAMPLES if EXAMPLES[name].rounds > 1])
def test_operands_move_on_in_a_loop(name: str) -> None:
    example = EXAMPLES[name]
    for operand, size in example.sizes().items():
        packed = operand in example.packed
        last = ARENA - size - 12 * (example.rounds - 1)
        for at, step, fits in ((last, 12, True), (last + 4, 12, False), (last, 6, packed)):
            instr = example.instr(**{operand: at})._replace(step={operand: step})
            assert opens(around(instr, example.geom, example.rounds, ARENA)) == fits


def optional(example: Example) -> frozenset[str]:
    """Operands that may be none; of stored channels and of input gradients some may not."""
    needed = {"norm_bw": "rstd", "layer_norm_bw": "rstd"}
    if example.parameters.get("stored", 0):
        needed |= {"conv_bw_w": "gamma_fw", "fc_bw_w": "gamma_fw"}
    return LAYOUTS[example.op].marks["optional"] - {needed.get(example.op, "")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_work_is_what_is_moved_and_computed(name: str) -> None:
    example = EXAMPLES[name]
    words = example.words.items()
    moved = sum(n / 4 if operand in example.packed else n for operand, n in words)
    assert work(example.data()) == example.rounds * (moved + example.macs)


@pytest.mark.parametrize("example", [NORM_BW, LAYER_NORM_BW], ids=lambda e: e.op)
def test_without_an_input_gradient_a_norm_needs_no_deviation(example: Example) -> None:
    assert example._replace(flags=("no_dx",), without=("rstd",)).opens()


@pytest.mark.parametrize("name", ["CONV", "BW_X", "FC", "FC_BW_X", "SCORE", "ADD"])
def test_weights_are_packed_in_one_way(name: str) -> None:
    assert not EXAMPLES[name]._replace(flags=("half", "byte")).opens()


def test_stored_channels_are_not_those_of_the_sample() -> None:
    header = {"input_channels": 6, "input_plane": 143}
    rows = BW_W_ROWS._replace(rounds=1)
    for example, fits in (
        (BW_W_STORED, False),
        (BW_W_STORED.but(stored=0), True),
        (rows, False),
        (rows.but(rows=0, first=0), True),
    ):
        assert opens(around(example.instr(x=SAMPLE), WHOLE, 1, ARENA, **header)) == fits
