"""The file: what is written is what docs/reference/format.md says."""

import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from pmeta import device
from pmeta.device import format as flatfile
from tests.helpers.device_models import case

DOC = (Path(__file__).parents[2] / "docs" / "reference" / "format.md").read_text()


@pytest.fixture(scope="module")
def data() -> bytes:
    return case("mlp", "pmeta", seed=31).exported.data


def test_header_is_where_the_document_says(data: bytes) -> None:
    offsets = {name: int(at) for at, name in re.findall(r"^\| (\d+) \| (\w+) \|", DOC, re.M)}
    numbers = flatfile.header(data)
    for name in flatfile.FIELDS:
        assert struct.unpack_from("<I", data, offsets[name])[0] == numbers[name]
    assert data[:8].hex(" ") in DOC
    assert struct.unpack_from("<IIII", data, 8) == (1, 0x01020304, len(data), zlib.crc32(data[24:]))
    assert numbers["outputs"] == 5
    assert numbers["steps"] == 3


def test_the_header_in_c_has_the_same_fields() -> None:
    text = (device.ENGINE / "format.h").read_text() + (device.ENGINE / "kernels.h").read_text()

    def fields(name: str) -> list[str]:
        """The 32-bit members of a struct, in their order."""
        (body,) = re.findall(
            rf"typedef struct {{([^{{}}]*)}} {name};", re.sub(r"/\*.*?\*/", "", text)
        )
        return re.findall(r"\w+", " ".join(re.findall(r"u?int32_t ([^;]*);", body)))

    assert fields("pmeta_header") == [
        *("version", "endian", "file_bytes", "crc"),
        *flatfile.FIELDS,
        "reserved",
    ]
    assert fields("pmeta_program") == list(flatfile.RawProgram._fields)
    assert fields("pmeta_geom") == [*flatfile.Geom._fields, "reserved"]


def test_names_and_shapes_come_back(data: bytes) -> None:
    facts = flatfile.facts(data)
    assert facts["input_shape"] == [20]
    assert facts["layers"] == ["0", "2", "4"]
    assert facts["state"][0] == {"name": "0.weight", "shape": [30, 20]}


def test_a_state_replaces_the_weights_and_nothing_else(data: bytes) -> None:
    size = flatfile.header(data)["state_bytes"]
    state = np.arange(size // 4, dtype="<f4").tobytes()
    changed = flatfile.with_state(data, state, 3)
    assert len(changed) == len(data)
    at, offset, length = flatfile.copies(data)[0]
    assert changed[at : at + length] == state[offset : offset + length]
    assert flatfile.facts(changed) == flatfile.facts(data)
    assert flatfile.header(changed) == {**flatfile.header(data), "classes": 3}
    assert struct.unpack_from("<I", changed, 20)[0] == zlib.crc32(changed[24:])
    assert (
        flatfile.with_state(data + bytes([255] * 100), state, 3) == changed
    )  # out of a larger block of flash
