"""All pictures of a source are decoded once; what is no picture is named and skipped."""

import os
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from pmeta.data import open as opening
from pmeta.data.open import open_files
from tests.helpers.pictures import encoded, three_bands


def write(folder, **files):
    for path, content in files.items():
        target = folder / path.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder


def bomb(side):
    """A PNG that claims side x side pixels in a few bytes."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def test_unreadable_files_are_named_and_counted(tmp_path, capsys):
    good = encoded(three_bands(9, 9), "jpeg")
    files = {
        "a__1": good,
        "a__2": good,
        "a__cut": good[: len(good) // 2],
        "a__notes": b"these are notes",
    }
    files |= {
        "b__1": good,
        "b__bomb": bomb(12_000),
        "b__big_bomb": bomb(30_000),
        "b__empty": b"",
        "c__only": b"text",
    }
    found = open_files(write(tmp_path, **files), 8, None)
    assert found.classes == [("", "a", 0, 2), ("", "b", 2, 1)]
    assert found.images.shape == (3, 8, 8, 3)
    reasons = dict(found.skipped)
    assert set(reasons) == {"a/cut", "a/notes", "b/bomb", "b/big_bomb", "b/empty", "c/only"}
    assert reasons["a/notes"] == reasons["b/empty"] == "not an image"
    assert "truncated" in reasons["a/cut"].lower()
    assert "decompression bomb" in reasons["b/bomb"]
    assert "decompression bomb" in reasons["b/big_bomb"]
    printed = capsys.readouterr().err
    assert "skipped 6 of 9 files:" in printed
    assert "  a/notes: not an image\n" in printed


def test_a_damaged_member_of_a_zip_is_skipped(tmp_path):
    with zipfile.ZipFile(tmp_path / "data.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("good", "wrong", "torn"):
            file.writestr(f"a/{name}.bmp", encoded(Image.new("RGB", (40, 40)), "bmp"))
        starts = [info.header_offset + 30 + len(info.filename) for info in file.infolist()]
    data = bytearray((tmp_path / "data.zip").read_bytes())
    data[starts[1] + 2] ^= 0x55
    data[starts[2]] = 0xFF  # no such block
    (tmp_path / "data.zip").write_bytes(data)
    found = open_files(tmp_path / "data.zip", None, None, tmp_path)
    assert len(found.images) == 1
    assert {name for name, _ in found.skipped} == {"a/wrong.bmp", "a/torn.bmp"}


def test_a_long_list_of_skipped_files_is_cut(tmp_path, capsys):
    files = {f"a__{i:02}": b"text" for i in range(12)}
    open_files(write(tmp_path, a__picture=encoded(three_bands(9, 9)), **files), 8, None)
    printed = capsys.readouterr().err
    assert "skipped 12 of 13 files:" in printed
    assert "a/09" in printed
    assert "a/10" not in printed
    assert "  and 2 more\n" in printed


def test_nothing_to_decode_is_an_error(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"has no classes: expected <class>/<image> or \{train,val,test\}/<class>/<image>",
    ):
        open_files(tmp_path, 8, None)
    write(tmp_path, a__1=b"text")
    for size in (8, None):
        with pytest.raises(
            ValueError, match="none of the 1 files in the class folders is a readable image"
        ):
            open_files(tmp_path, size, None)


def test_grey_only_if_every_picture_is_grey(tmp_path):
    grey, colour = encoded(Image.new("L", (4, 4), 7)), encoded(Image.new("RGB", (4, 4), (1, 2, 3)))
    assert open_files(
        write(tmp_path / "g", train__a__1=grey, val__b__1=grey), 4, None
    ).images.shape == (2, 4, 4, 1)
    mixed = write(tmp_path / "m", train__a__1=grey, val__b__1=colour)
    assert open_files(mixed, 4, None).images.shape == (2, 4, 4, 3)
    assert open_files(mixed, 4, None).images[0, 0, 0].tolist() == [7, 7, 7]
    assert open_files(mixed, 4, 1).images.shape == (2, 4, 4, 1)


def test_images_can_be_taken_as_they_are(tmp_path):
    wide = write(tmp_path, a__1=encoded(three_bands(9, 6)), a__2=encoded(three_bands(9, 6)))
    assert open_files(wide, None, None).images.shape == (2, 6, 9, 3)
    write(tmp_path, a__3=encoded(three_bands(9, 9)))
    with pytest.raises(
        ValueError, match=r"^a/3 is 9x9 and others are 9x6: give a size to fit them to\.$"
    ):
        open_files(wide, None, None)


def test_a_changed_source_is_decoded_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PMETA_CACHE", str(tmp_path / ".cache"))
    write(tmp_path, a__1=encoded(Image.new("L", (4, 4), 1)))
    assert open_files(tmp_path, 4, None).images[0, 0, 0, 0] == 1
    write(tmp_path, a__1=encoded(Image.new("L", (4, 4), 2)))
    os.utime(tmp_path / "a/1", ns=(5, 5))
    assert open_files(tmp_path, 4, None).images[0, 0, 0, 0] == 2
    write(tmp_path, b__1=encoded(Image.new("L", (4, 4), 3)))
    assert len(open_files(tmp_path, 4, None).classes) == 2
    assert len(list((tmp_path / ".cache").glob("*.u8"))) == 1  # the old states are gone


def test_nothing_is_written_into_the_data(tmp_path):
    write(tmp_path, a__1=encoded(Image.new("L", (4, 4), 1)))
    open_files(tmp_path, 4, None)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_unchanged_source_is_not_decoded_again(tmp_path, monkeypatch):
    write(tmp_path, a__1=encoded(Image.new("L", (4, 4), 1)))
    open_files(tmp_path, 4, None)
    monkeypatch.setattr(opening, "decode", None)
    open_files(tmp_path, 4, None)
    with pytest.raises(TypeError):
        open_files(tmp_path, 5, None)  # another size is another array


def test_many_processes_decode_as_one_does(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for i in range(200):
        image = Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8))
        write(tmp_path, **{f"{i % 3}__{i}": encoded(image, "jpeg")})
    write(tmp_path, **{"1__notes": b"text"})
    alone = open_files(tmp_path, 8, None, cache=tmp_path / ".one")
    monkeypatch.setattr(opening, "PARALLEL_FROM", 1)
    together = open_files(tmp_path, 8, None, cache=tmp_path / ".two")
    assert np.array_equal(alone.images, together.images)
    assert alone[1:] == together[1:]
    write(tmp_path, **{"1__wide": encoded(three_bands(30, 9))})
    with pytest.raises(ValueError, match="1/wide is 30x9 and others are 9x9"):
        open_files(tmp_path, None, None)


def test_a_full_disk_is_seen_before_the_work(tmp_path, monkeypatch):
    write(tmp_path, a__1=encoded(Image.new("L", (4, 4), 1)))
    monkeypatch.setattr(opening.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(
        ValueError,
        match=r"take 0.00 GB and .* has 0.00 GB free: set PMETA_CACHE to a folder with more",
    ):
        open_files(tmp_path, 4, None)
