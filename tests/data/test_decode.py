"""Pictures of every kind become arrays of one shape; what is no picture is named and skipped."""

import io
import os
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from pmeta.data import decode as image_decode
from pmeta.data.decode import decode, open_images


def encoded(image, kind="png", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels(data, size, channels):
    return np.frombuffer(decode(data, size, channels), dtype=np.uint8).reshape(
        size[1], size[0], channels
    )


def three_bands(width, height):
    """Left third red, middle green, right blue."""
    image = Image.new("RGB", (width, height), (0, 255, 0))
    image.paste((255, 0, 0), (0, 0, width // 3, height))
    image.paste((0, 0, 255), (2 * width // 3, 0, width, height))
    return image


def test_the_short_side_fits_and_the_centre_is_kept():
    got = pixels(encoded(three_bands(90, 30)), (10, 10), 3)
    assert (
        got[:, 1:-1] == (0, 255, 0)
    ).all()  # bicubic: the edge has seen a little of its neighbours


def test_an_image_of_the_right_size_is_kept_bit_for_bit():
    want = np.random.default_rng(0).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    assert np.array_equal(pixels(encoded(Image.fromarray(want)), (12, 12), 3), want)


def test_a_picture_on_its_side_is_turned_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to the right
    got = pixels(encoded(three_bands(30, 30), exif=exif), (30, 30), 3)
    assert tuple(got[2, 15]) == (255, 0, 0)  # the left third is now the top
    assert tuple(got[27, 15]) == (0, 0, 255)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_made_upright_as_by_pillow(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(
        Image.fromarray(np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3)), exif=exif
    )
    with Image.open(io.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image)
    assert decode(data, upright.size, 3, exact=True) == upright.tobytes()


def test_a_rotated_photo_with_an_odd_tag() -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x0100] = 6, 30
    data = encoded(three_bands(30, 30), "jpeg", exif=exif)
    width = b"\x01\x00\x00\x04"
    odd = data.replace(width, b"\x01\x00\x00\x02", 1)  # in letters
    with Image.open(io.BytesIO(odd)) as image, pytest.raises(struct.error):
        ImageOps.exif_transpose(image)
    assert decode(odd, (30, 30), 3) == decode(data, (30, 30), 3)


def test_transparent_grey_of_16_bits_is_white() -> None:
    grey = Image.fromarray(np.array([[0, 0x8000], [0xFFFF, 0x1234]], np.uint16))
    assert list(decode(encoded(grey, transparency=0), (2, 2), 1)) == [255, 0x80, 0xFF, 0x12]


def test_transparent_parts_are_white():
    image = Image.new("RGBA", (4, 4), (10, 20, 30, 0))
    image.putpixel((0, 0), (10, 20, 30, 255))
    got = pixels(encoded(image), (4, 4), 3)
    assert tuple(got[0, 0]) == (10, 20, 30)
    assert tuple(got[3, 3]) == (255, 255, 255)
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, 200, 0, 0])
    assert tuple(pixels(encoded(palette, transparency=1), (4, 4), 3)[0, 0]) == (255, 255, 255)
    assert tuple(pixels(encoded(palette), (4, 4), 3)[0, 0]) == (200, 0, 0)


def test_sixteen_bits_become_eight():
    grey = Image.fromarray(np.array([[0, 0x80FF], [0xFFFF, 0x0100]], dtype=np.uint16))
    assert pixels(encoded(grey), (2, 2), 1).ravel().tolist() == [0, 0x80, 0xFF, 1]
    assert pixels(encoded(grey), (2, 2), 3)[0, 1].tolist() == [0x80] * 3


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"])
def test_every_mode_comes_out_grey_and_in_colour(mode):
    kind = {"CMYK": "jpeg", "YCbCr": "jpeg"}.get(mode, "png")
    data = encoded(Image.new("RGB", (8, 8), "white").convert(mode), kind)
    assert (pixels(data, (4, 4), 1) >= 254).all()
    assert (pixels(data, (4, 4), 3) >= 254).all()


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
    found = open_images(write(tmp_path, **files), 8, None)
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
    found = open_images(tmp_path / "data.zip", None, None, tmp_path)
    assert len(found.images) == 1
    assert {name for name, _ in found.skipped} == {"a/wrong.bmp", "a/torn.bmp"}


def test_a_long_list_of_skipped_files_is_cut(tmp_path, capsys):
    files = {f"a__{i:02}": b"text" for i in range(12)}
    open_images(write(tmp_path, a__picture=encoded(three_bands(9, 9)), **files), 8, None)
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
        open_images(tmp_path, 8, None)
    write(tmp_path, a__1=b"text")
    for size in (8, None):
        with pytest.raises(
            ValueError, match="none of the 1 files in the class folders is a readable image"
        ):
            open_images(tmp_path, size, None)


def test_grey_only_if_every_picture_is_grey(tmp_path):
    grey, colour = encoded(Image.new("L", (4, 4), 7)), encoded(Image.new("RGB", (4, 4), (1, 2, 3)))
    assert open_images(
        write(tmp_path / "g", train__a__1=grey, val__b__1=grey), 4, None
    ).images.shape == (2, 4, 4, 1)
    mixed = write(tmp_path / "m", train__a__1=grey, val__b__1=colour)
    assert open_images(mixed, 4, None).images.shape == (2, 4, 4, 3)
    assert open_images(mixed, 4, None).images[0, 0, 0].tolist() == [7, 7, 7]
    assert open_images(mixed, 4, 1).images.shape == (2, 4, 4, 1)


def test_images_can_be_taken_as_they_are(tmp_path):
    wide = write(tmp_path, a__1=encoded(three_bands(9, 6)), a__2=encoded(three_bands(9, 6)))
    assert open_images(wide, None, None).images.shape == (2, 6, 9, 3)
    write(tmp_path, a__3=encoded(three_bands(9, 9)))
    with pytest.raises(
        ValueError, match=r"^a/3 is 9x9 and others are 9x6: give a size to fit them to\.$"
    ):
        open_images(wide, None, None)


def test_a_changed_source_is_decoded_again(tmp_path):
    write(tmp_path, a__1=encoded(Image.new("L", (4, 4), 1)))
    assert open_images(tmp_path, 4, None).images[0, 0, 0, 0] == 1
    write(tmp_path, a__1=encoded(Image.new("L", (4, 4), 2)))
    os.utime(tmp_path / "a/1", ns=(5, 5))
    assert open_images(tmp_path, 4, None).images[0, 0, 0, 0] == 2
    write(tmp_path, b__1=encoded(Image.new("L", (4, 4), 3)))
    assert len(open_images(tmp_path, 4, None).classes) == 2
    assert len(list((tmp_path / ".pmeta-cache").glob("*.u8"))) == 1  # the old states are gone


def test_an_unchanged_source_is_not_decoded_again(tmp_path, monkeypatch):
    write(tmp_path, a__1=encoded(Image.new("L", (4, 4), 1)))
    open_images(tmp_path, 4, None)
    monkeypatch.setattr(image_decode, "decode", None)
    open_images(tmp_path, 4, None)
    with pytest.raises(TypeError):
        open_images(tmp_path, 5, None)  # another size is another array


def test_many_processes_decode_as_one_does(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for i in range(200):
        image = Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8))
        write(tmp_path, **{f"{i % 3}__{i}": encoded(image, "jpeg")})
    write(tmp_path, **{"1__notes": b"text"})
    alone = open_images(tmp_path, 8, None, cache=tmp_path / ".one")
    monkeypatch.setattr(image_decode, "PARALLEL_FROM", 1)
    together = open_images(tmp_path, 8, None, cache=tmp_path / ".two")
    assert np.array_equal(alone.images, together.images)
    assert alone[1:] == together[1:]
    write(tmp_path, **{"1__wide": encoded(three_bands(30, 9))})
    with pytest.raises(ValueError, match="1/wide is 30x9 and others are 9x9"):
        open_images(tmp_path, None, None)


def test_a_full_disk_is_seen_before_the_work(tmp_path, monkeypatch):
    write(tmp_path, a__1=encoded(Image.new("L", (4, 4), 1)))
    monkeypatch.setattr(
        image_decode.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})
    )
    with pytest.raises(
        ValueError,
        match=r"take 0.00 GB and .* has 0.00 GB free: set PMETA_CACHE to a folder with more",
    ):
        open_images(tmp_path, 4, None)
