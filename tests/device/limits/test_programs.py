"""The sections of a program, its loops, and the work that they add up to."""

import pytest

from pmeta.device.instructions import NONE, RawInstr
from tests.helpers.device_files import ADD, INFER, UPDATE, opens, work, written


def test_inference_has_no_backward_pass() -> None:
    """Of one instruction each."""
    program = INFER._replace(first=3)
    for infer, instrs in (
        (INFER._replace(forward=3), [ADD] * 4),
        (INFER._replace(forward=2, backward=1), None),
        (INFER._replace(forward=2, update=1), [ADD, ADD, UPDATE, ADD]),
    ):
        assert opens(written([infer, program], instrs or [ADD] * 4)) == (infer.forward == 3)


def test_sections_lie_in_the_table() -> None:
    program = INFER._replace(first=1, forward=1, backward=1, update=1, merge=1)
    instrs = [ADD, ADD, ADD, UPDATE, ADD]
    assert opens(written([INFER, program], instrs))
    for wrong in (
        {"merge": 2},
        {"first": 2},
        {"forward": 2},
        {"backward": 2},
        {"update": 2},
        {"forward": NONE},
        {"merge": NONE},
    ):
        assert not opens(written([INFER, program._replace(**wrong)], instrs) + bytes(400))


@pytest.mark.parametrize("section", ["forward", "backward", "update", "merge"])
def test_every_section_is_checked(section: str) -> None:
    """The second instruction of each, too."""
    count = {"forward": 1, "backward": 1, "update": 1, "merge": 1, section: 2}
    program = INFER._replace(first=1, **count)
    for at, fits in ((252, True), (256, False)):
        last = dict.fromkeys(count, ADD) | {"update": UPDATE}
        good, moved = last[section], dict(last[section].at)
        moved[next(iter(moved))] = at
        last[section] = good._replace(at=moved)
        instrs = [ADD]
        for name, n in count.items():
            instrs += [UPDATE if name == "update" else ADD] * (n - 1) + [last[name]]
        assert opens(written([INFER, program], instrs)) == fits


@pytest.mark.parametrize("section", ["forward", "backward", "update", "merge"])
def test_loops_lie_in_their_section(section: str) -> None:
    for rounds, body, fits in (
        (1, 1, True),
        (65535, 2, True),
        (65536, 2, False),
        (0, 2, False),
        (2, 0, False),
        (2, 2, True),
        (2, 3, False),
        (2, NONE, False),
    ):
        loop = RawInstr("loop", parameters={"rounds": rounds, "body": body})
        inside = UPDATE if section == "update" else ADD
        count = {"forward": 1, "backward": 1, "update": 1, "merge": 1, section: 3}
        instrs = [ADD]
        for name in count:
            own = [UPDATE if name == "update" else ADD]
            instrs += [loop, inside, inside] if name == section else own
        program = INFER._replace(first=1, **count)
        assert opens(written([INFER, program], instrs)) == fits, (rounds, body)


def test_a_loop_in_a_loop_is_refused() -> None:
    loop = RawInstr("loop", parameters={"rounds": 2, "body": 2})
    program = INFER._replace(first=1, forward=3)
    assert not opens(written([INFER, program], [ADD, loop, loop, ADD]))


def test_what_a_program_says_lies_in_its_arena() -> None:
    """Two outputs, their gradient, and three words of sums."""
    program = INFER._replace(first=1, backward=1, acc_bytes=12)
    for change, fits in (
        ({"output": 248}, True),
        ({"output": 252}, False),
        ({"output": 2}, False),
        ({"output": 1 << 30}, False),
        ({"g_output": 248}, True),
        ({"g_output": 252}, False),
        ({"g_output": 1}, False),
        ({"g_output": 252, "backward": 0}, True),  # there is none
        ({"acc": 244}, True),
        ({"acc": 248}, False),
        ({"acc": 3}, False),
        ({"acc": 1 << 30}, False),
        ({"arena_bytes": 256}, True),
        ({"arena_bytes": 257}, False),
    ):
        programs = [INFER, program._replace(**change)]
        assert opens(written(programs, [ADD, ADD, ADD], outputs=2)) == fits, change


def test_operands_end_with_the_arena_of_their_program() -> None:
    """Which may be smaller than that of the file."""
    small = INFER._replace(first=1, arena_bytes=128)
    for at, fits in ((124, True), (128, False)):
        add = ADD._replace(at={"y": 0, "x": at})
        assert opens(written([INFER, small], [ADD, add])) == fits
        assert opens(written([INFER, small], [ADD, add], arena_bytes=512)) == fits


def test_work_is_that_of_the_largest_program() -> None:
    copy = RawInstr("copy", at={"y": 0, "x": 8}, parameters={"count": 5, "plane": 1})
    loop = RawInstr("loop", parameters={"rounds": 3, "body": 2})
    program = INFER._replace(forward=5)
    body = [ADD, loop, copy, ADD, ADD]
    for instrs, programs in (
        ([*body, ADD], [program, INFER._replace(first=5)]),
        ([ADD, *body], [INFER, program._replace(first=1)]),
        ([ADD, *body, ADD], [INFER, program._replace(first=1, forward=5), INFER._replace(first=6)]),
    ):
        assert work(written(programs, instrs)) == 2 + 3 * (10 + 2) + 2
