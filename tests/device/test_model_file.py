"""The file: what is written is what docs/reference/format.md says."""

import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from pmeta import device
from pmeta.device import model_file as flatfile
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
    assert struct.unpack_from("<IIII", data, 8) == (2, 0x01020304, len(data), zlib.crc32(data[24:]))
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
    ]
    assert fields("pmeta_program") == list(flatfile.RawProgram._fields)
    assert fields("pmeta_geom") == [*flatfile.Geom._fields, "reserved"]


def test_names_and_shapes_come_back(data: bytes) -> None:
    facts = flatfile.facts(data)
    assert facts["input_shape"] == [20]
    assert facts["layers"] == ["0", "2", "4"]
    assert facts["state"][0] == {"name": "0.weight", "shape": [30, 20]}


def test_a_state_replaces_the_weights_and_nothing_else(data: bytes) -> None:
    facts, size = flatfile.facts(data), flatfile.header(data)["state_bytes"]
    state = np.arange(size // 4, dtype="<f4").tobytes()
    changed = flatfile.with_state(data, state, 3, facts, 1.0)
    assert len(changed) == len(data)
    at, offset, length = flatfile.copies(data)[0]
    assert changed[at : at + length] == state[offset : offset + length]
    assert flatfile.facts(changed) == facts
    assert flatfile.header(changed) == {**flatfile.header(data), "classes": 3}
    assert struct.unpack_from("<I", changed, 20)[0] == zlib.crc32(changed[24:])
    block = data + bytes([255] * 100)  # a larger block of flash
    assert flatfile.with_state(block, state, 3, facts, 1.0) == changed


def test_facts_and_temperatures_are_replaced_where_they_stand(data: bytes) -> None:
    facts = {**flatfile.facts(data), "classes": ["cup", "Tüte", "鍵", "d", "e"]}
    named = flatfile.with_facts(data, facts, [2.0, 1.5])
    assert flatfile.facts(named) == facts
    assert "Tüte".encode() in named  # as it is, so that any reader of JSON reads it
    assert flatfile.temperatures(named) == [2.0, 1.5]
    at = flatfile.header(named)["at_temperatures"]
    assert struct.unpack_from("<Iff", named, at) == (2, 2.0, 1.5)
    assert flatfile.with_facts(named, flatfile.facts(data)) == data
    assert flatfile.temperatures(data) == []
    assert device.DeviceModel(named).temperature == 1.5  # the last one, before any adaptation


def test_temperatures_are_checked(data: bytes) -> None:
    facts = flatfile.facts(data)
    for wrong in (0.0, -1.0, float("nan"), float("inf"), 1e4):
        with pytest.raises(device.EngineError, match="does not fit"):
            device.DeviceModel(flatfile.with_facts(data, facts, [1.0, wrong]))
    good = flatfile.with_facts(data, facts, [1.0])
    at = flatfile.header(good)["at_temperatures"]
    for count in (0, 1 << 20, 0xFFFFFFFF):
        wrong_count = good[:at] + struct.pack("<I", count) + good[at + 4 :]
        with pytest.raises(device.EngineError, match="does not fit"):
            device.DeviceModel(flatfile.seal(wrong_count))
