"""Pictures of every kind become arrays of one shape."""

import io
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps, UnidentifiedImageError

import pmeta
from pmeta.data.decode import decode
from tests.helpers.pictures import encoded, three_bands


def pixels(data, size, channels):
    return np.frombuffer(decode(data, size, channels), dtype=np.uint8).reshape(
        size[1], size[0], channels
    )


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


EPS = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"
    b"0 0 8 8 rectfill\nshowpage\n%%EOF\n"
)
SPIDER = struct.pack("<27f", *[1.0] * 27) + bytes(2000)


@pytest.mark.parametrize(
    "data",
    [EPS, SPIDER, b"%PDF-1.4\n", b"BUFR" + bytes(9), b"\xd7\xcd\xc6\x9a" + bytes(80)],
    ids=["eps", "spider", "pdf", "bufr", "wmf"],
)
def test_nothing_but_rasters_of_the_list_is_opened(data: bytes, monkeypatch) -> None:
    """An EPS would start Ghostscript, and a broken SPIDER fails in ways of its own."""

    def start(*args: object, **kwargs: object) -> None:
        raise AssertionError("a picture started a program")

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(subprocess, "check_call", start)
    with pytest.raises(UnidentifiedImageError):
        decode(data, (8, 8), 3)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_every_format_of_the_list_is_opened(kind: str) -> None:
    file = io.BytesIO()
    three_bands(30, 30).save(file, kind)
    assert len(decode(file.getvalue(), (8, 8), 3)) == 8 * 8 * 3


def test_pictures_are_opened_in_one_place() -> None:
    """Whoever calls Pillow by another way forgets the list."""
    root = Path(pmeta.__file__).parent
    users = [p.name for p in root.rglob("*.py") if "Image.open(" in p.read_text()]
    assert users == ["decode.py"]
