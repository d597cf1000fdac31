"""One picture of any kind to uint8 pixels of one shape."""

import functools
import io
import lzma
import struct
import warnings
import zipfile
import zlib
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps

# What Pillow and zipfile raise for files that are broken, encrypted or no images.
UNREADABLE = (
    *(OSError, ValueError, SyntaxError, EOFError, RuntimeError, MemoryError),
    *(Image.DecompressionBombError, Image.DecompressionBombWarning),
    *(struct.error, zlib.error, zipfile.BadZipFile, lzma.LZMAError),
)
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "WEBP", "TIFF")
"""What is opened, by content and whatever its name: raster formats that no program is started for.

Pillow knows others, and would hand an EPS to Ghostscript."""
TURN = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes a picture upright, by its EXIF orientation."""


class DifferentSizesError(ValueError):
    """Not an unreadable file but a question to the user, so it is not skipped."""


def decode(data: bytes, shape: tuple[int, int], channels: int, exact: bool = False) -> bytes:
    """One picture as height * width * channels bytes, for shape = (width, height).

    Turned upright by its EXIF orientation; transparent parts become white; 16 bits a pixel become
    8; scaled so that the short side fits and cropped at the centre. With `exact` a picture of
    another size is an error.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with open_picture(data) as opened:
            image = _upright(opened)
    if exact and image.size != shape:
        raise DifferentSizesError(
            f"{image.width}x{image.height} and others are {shape[0]}x{shape[1]}: give a size to "
            "fit them to."
        )
    flat = _flatten(image).convert("L" if channels == 1 else "RGB")
    return ImageOps.fit(flat, shape, Image.Resampling.BICUBIC).tobytes()


def open_picture(data: bytes) -> Image.Image:
    """The header of a picture in one of our formats; the one place where a picture is opened.

    Raises PIL.UnidentifiedImageError for all else."""
    return Image.open(io.BytesIO(data), formats=formats())


@functools.cache
def formats() -> tuple[str, ...]:
    """FORMATS, and HEIF (the photos of many telephones) where pillow-heif is installed."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return FORMATS
    register_heif_opener()
    return (*FORMATS, "HEIF")


def orientation(image: Image.Image) -> Any:
    """The EXIF orientation; 1 is upright."""
    return image.getexif().get(ExifTags.Base.Orientation, 1)


def _upright(image: Image.Image) -> Image.Image:
    """A copy.

    Pillow's own `exif_transpose` also writes the EXIF again, which fails where other tags are odd.
    """
    turn = TURN.get(orientation(image))
    return image.copy() if turn is None else image.transpose(turn)


def _flatten(image: Image.Image) -> Image.Image:
    """At most 8 bits a channel, nothing transparent."""
    if image.mode.startswith("I;16"):
        pixels = np.asarray(image)
        white = pixels == image.info.get("transparency", -1)
        return Image.fromarray(np.where(white, 255, pixels >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(
            f"32-bit pixels (mode {image.mode}): what counts as white in them is unknown"
        )
    if image.has_transparency_data:
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image
