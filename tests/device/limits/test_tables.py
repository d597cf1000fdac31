"""The header of a file, and its tables."""

import struct

import pytest

from pmeta.device import model_file as flatfile
from pmeta.device.instructions import NONE
from tests.helpers.device_files import (
    ADD,
    INFER,
    longer,
    opens,
    step,
    with_header,
    with_words,
    written,
)

HEADER = flatfile.HEADER_BYTES
GIGA = 1 << 30
SIZES: list[tuple[str, dict[str, int], dict[str, int]]] = [
    # What fits, and what is one more or one less.
    ("infer_bytes", {"infer_bytes": 256}, {"infer_bytes": 260}),
    ("infer", {"arena_bytes": 300, "infer_bytes": 300}, {"arena_bytes": 300, "infer_bytes": 301}),
    ("state_bytes", {"state_bytes": 256}, {"state_bytes": 257}),
    ("arena_bytes", {"arena_bytes": GIGA - 1}, {"arena_bytes": GIGA}),
    ("input_type", {"input_type": 1}, {"input_type": 2}),
    ("input_channels", {"input_channels": 1}, {"input_channels": 0, "input_plane": 0}),
    ("input_plane", {"input_plane": (1 << 28) - 1}, {"input_plane": 1 << 28}),
    ("no plane", {"input_plane": 1}, {"input_plane": 0}),
    ("rows", {"rows": 1}, {"rows": 0}),
    ("two rows", {"rows": 2, "outputs": 4}, {"rows": 2, "outputs": 3}),
    ("outputs", {"outputs": 62}, {"outputs": 0}),
    ("classes", {"outputs": 6, "classes": 6}, {"outputs": 6, "classes": 7}),
    (
        "classes of a row",
        {"outputs": 6, "rows": 2, "classes": 3},
        {"outputs": 6, "rows": 2, "classes": 4},
    ),
    ("layers", {"layers": 65535}, {"layers": 65536}),
]


def roomy(data: bytes) -> bytes:
    """With room behind it for tables of any length."""
    size = 1 << 20
    return longer(with_header(data, at_alpha=1 << 19, at_scale=1 << 19), size)


@pytest.mark.parametrize(("name", "good", "bad"), SIZES)
def test_sizes_of_the_header(name: str, good: dict[str, int], bad: dict[str, int]) -> None:
    data = roomy(step())
    assert opens(with_header(data, **good))
    assert not opens(with_header(data, **bad))


def test_outputs_and_steps_have_a_limit() -> None:
    most = (1 << 24) - 1
    program = INFER._replace(arena_bytes=GIGA - 4)
    for outputs in (most, most + 1):
        sizes = {"arena_bytes": GIGA - 4, "infer_bytes": GIGA - 4, "outputs": outputs}
        data = written([program, program._replace(first=1)], [ADD, ADD], **sizes)
        assert opens(data) == (outputs == most)
    for steps in (65535, 65536):
        assert opens(written([INFER, INFER._replace(first=1)], [ADD, ADD], steps)) == (
            steps == 65535
        )


def test_a_file_has_a_program() -> None:
    assert not opens(with_header(step(), programs=0))


TABLES = {
    **{"at_scale": 8, "at_alpha": 4, "at_steps": 4, "at_programs": 80},
    **{"at_instrs": 400, "at_geoms": 128, "at_copies": 12, "at_facts": 69},
}
"""Bytes of every table in the file of `step`."""


@pytest.mark.parametrize("name", TABLES)
def test_tables_end_with_the_file(name: str) -> None:
    """A copy of the table as the last bytes of the file, and one that reaches beyond them."""
    data, size = step(), TABLES[name]
    at = flatfile.header(data)[name]
    assert flatfile.header(data)["facts_bytes"] == TABLES["at_facts"]
    place = len(data)
    whole = data + data[at : at + size].ljust(-(-size // 4) * 4, b"\0")
    moved = with_header(with_words(whole, 16, place + size), **{name: place})
    sealed = with_words(moved[: place + size], 16, place + size)
    assert opens(sealed)
    block = sealed + bytes(64)  # a file may lie in a larger block of flash
    assert opens(block)
    shorter = with_words(sealed[:-1], 16, place + size - 1)
    assert not opens(shorter + block[-65:])
    assert not opens(with_header(longer(block, len(block)), **{name: place + 2}))
    if name in ("at_scale", "at_alpha", "at_facts"):
        assert opens(with_header(data, **{name: HEADER}))
        assert not opens(with_header(data, **{name: HEADER - 4}))


def test_tables_are_as_long_as_their_numbers_say() -> None:
    """Factors and shifts of each channel; a step size for each layer in each step."""
    data = longer(written([INFER, INFER._replace(first=1)], [ADD, ADD], steps=3), 4096)
    for field, words in (("at_scale", 2 * 5), ("at_alpha", 3 * 7)):
        changed = with_header(data, input_channels=5, layers=7, at_scale=2048, at_alpha=2048)
        assert opens(with_header(changed, **{field: 4096 - 4 * words}))
        assert not opens(with_header(changed, **{field: 4096 - 4 * words + 4}))


def with_temperatures(*words: int, count: int = 0) -> bytes:
    data = step()
    table = struct.pack(f"<{len(words) + 1}I", count or len(words), *words)
    data = with_header(data + table, at_temperatures=len(data))
    return with_words(data, 16, len(data))


def bits(*values: float) -> list[int]:
    return list(struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values)))


def test_temperatures() -> None:
    low, high = bits(1e-3, 1e3)
    for good in ([low], [high], [low, high], bits(1.0, 2.0, 3.0)):
        assert opens(with_temperatures(*good))
        assert not opens(with_temperatures(*good, count=len(good) + 1) + bits_of_one())
    for bad in ([low - 1], [high + 1], [0x7FC00000], [low, high, 0]):
        assert not opens(with_temperatures(*bad))
    assert not opens(with_words(with_temperatures(*bits(1.0)), len(step()), 0))
    data = step()
    assert opens(with_header(data, at_temperatures=0))
    for at in (len(data), len(data) - 2, 124):
        assert not opens(with_header(data, at_temperatures=at) + bits_of_one() * 2)


def bits_of_one() -> bytes:
    """What would be read behind the end of a file, and be good."""
    return struct.pack("<If", 1, 1.0)


def test_copies_are_in_the_file() -> None:
    data = step()
    at = flatfile.header(data)["at_copies"]
    for place, fits in (
        (HEADER, True),
        (HEADER + 2, False),
        (HEADER - 4, False),
        (len(data) - 4, True),
        (len(data), False),
    ):
        assert opens(with_words(data, at, place) + bytes(8)) == fits


def test_steps_are_programs() -> None:
    data = step()
    at = flatfile.header(data)["at_steps"]
    for number, fits in ((0, True), (1, True), (2, False), (NONE, False)):
        assert opens(with_words(data, at, number)) == fits
