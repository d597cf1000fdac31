"""The embedded image set: characters of many scripts, drawn from the fonts of matplotlib.

Everything between FreeType's bitmap and the stored byte is integer arithmetic, so that the same
versions of matplotlib and Pillow give the same bytes on every machine.
"""

from __future__ import annotations

import functools
import unicodedata
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from PIL import Image, ImageFilter, ImageFont

from pmeta.base import processes
from pmeta.base.files import cache_folder
from pmeta.data.cache import Cached, open_or_build
from pmeta.data.sources import split_owners

VERSION = 2  # of the drawing: a change here draws again
SIZE = 28
SAMPLES = 30  # a class
# A character's look is that in the first font that has it. DejaVu's obliques are mere shears, which
# we do too.
FONTS = (
    *("DejaVuSans", "DejaVuSerif", "STIXGeneral", "DejaVuSansMono"),
    *("DejaVuSans-Bold", "DejaVuSerif-Bold", "STIXGeneralBol"),
    *("DejaVuSerif-Italic", "STIXGeneralItalic"),
)
POINTS = 48  # drawn at this size, then scaled to fill the image
LOOK = 16  # looks are compared as LOOK x LOOK values of 0 to 15
ZOOM = 3  # samples are made ZOOM times larger, then averaged
# Families whose members differ by a dot or a dash that 28 pixels do not show.
LEFT_OUT = (
    *("BRAILLE", "BOX", "DINGBAT", "DOMINO", "HEXAGRAM", "MODIFIER", "PLAYING", "TETRAGRAM"),
    *("LIGHT SHADE", "MEDIUM SHADE", "DARK SHADE"),
)


class Glyph(NamedTuple):
    """A class: a character and the fonts that may draw it."""

    character: str
    fonts: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"U+{ord(self.character):04X} {unicodedata.name(self.character)}"


def open_glyphs(
    size: int | None = None, channels: int | None = None, cache: Path | None = None
) -> Cached:
    """The set at 28x28, grey, or enlarged to size x size and 3 channels for nets that were made for
    other data."""
    size, channels = size or SIZE, channels or 1
    try:
        versions = f"matplotlib{version('matplotlib')}-pillow{version('pillow')}"
    except PackageNotFoundError:
        raise ValueError(
            "glyphs are drawn from matplotlib's fonts, and it is not installed: pip install "
            "matplotlib."
        ) from None

    def build(file: BinaryIO) -> dict[str, Any]:
        glyphs = choose_glyphs()
        split = split_owners(g.name for g in glyphs)
        glyphs = sorted(glyphs, key=lambda g: (split[g.name], g.name))
        for pixels in processes.run(draw_samples, glyphs, "drawing glyphs", parallel=True):
            file.write(_enlarge(pixels, size, channels).tobytes())
        classes = [(split[g.name], g.name, i * SAMPLES, SAMPLES) for i, g in enumerate(glyphs)]
        shape = [len(glyphs) * SAMPLES, size, size, channels]
        return {"shape": shape, "classes": classes, "skipped": []}

    key, mark = f"glyphs-{size}-{channels}", f"{versions}-v{VERSION}"
    return open_or_build(cache_folder(cache), key, mark, "glyphs", build)


# (n, 28, 28) -> (n, size, size, channels)
def _enlarge(pixels: np.ndarray, size: int, channels: int) -> np.ndarray:
    if size != SIZE:
        enlarged = [
            Image.fromarray(p).resize((size, size), Image.Resampling.BICUBIC) for p in pixels
        ]
        pixels = np.stack([np.asarray(image) for image in enlarged])
    return np.repeat(pixels[..., None], channels, axis=-1)


def choose_glyphs() -> list[Glyph]:
    """Every character that has a look of its own, in the order of Unicode.

    A drawing (a character in a font) that looks like the drawing of an earlier character in any
    font, or like a font's box for missing characters, is left out; a character that so loses its
    first font is left out altogether.
    """
    # no font has it: the box for missing characters
    drawings = [(chr(0x10FFFF), font) for font in FONTS]
    drawings += [(c, font) for c in _candidates() for font in FONTS if ord(c) in _charmap(font)]
    looks = [look(c, font) for c, font in drawings]
    drawings = [d for d, l in zip(drawings, looks, strict=True) if l is not None]
    alike = _alike(np.stack([l.ravel() for l in looks if l is not None]), [c for c, _ in drawings])
    good = np.zeros(len(drawings), dtype=bool)
    kept: dict[str, list[str]] = {}
    seen: set[str] = set()
    for i, (c, font) in enumerate(drawings):
        first = c not in seen
        seen.add(c)
        if (first or c in kept) and not good[alike[i]].any():
            good[i] = True
            kept.setdefault(c, []).append(font)
    return [Glyph(c, tuple(fonts)) for c, fonts in kept.items() if ord(c) != 0x10FFFF]


def _candidates() -> list[str]:
    """Letters, numbers, symbols and punctuation, without those that are another character with an
    accent or in a frame."""
    covered = sorted(set().union(*(_charmap(font) for font in FONTS)))
    return [c for c in map(chr, covered) if _is_plain(c)]


def _is_plain(c: str) -> bool:
    category = unicodedata.category(c)
    plain = (
        category[0] in "LNPS"
        and category not in ("Lm", "Sk")
        and unicodedata.normalize("NFKD", c) == c
    )
    return plain and not unicodedata.name(c, "").startswith(LEFT_OUT)


def _alike(looks: np.ndarray, characters: list[str]) -> list[np.ndarray]:
    """For each drawing, the drawings of earlier characters that look like it: |a - b|^2 < (|a|^2 +
    |b|^2) / 5.

    The products are whole numbers below 2^24, hence exact in float32 in whatever order they are
    summed.
    """
    values = looks.astype(np.float32)  # (n, LOOK * LOOK)
    norms = (values * values).sum(1)
    alike = []
    for start in range(0, len(values), 512):
        block = slice(start, start + 512)
        products = values[block] @ values[: block.stop].T
        close = 5 * products > 2 * (norms[block, None] + norms[None, : block.stop])
        alike += [row.nonzero()[0] for row in close]
    numbers = np.array([ord(c) for c in characters])
    return [look_alikes[numbers[look_alikes] != numbers[i]] for i, look_alikes in enumerate(alike)]


def look(character: str, font: str) -> np.ndarray | None:
    """(LOOK, LOOK) values of 0 to 15, the ink scaled to fill the square, or None if there is no
    ink."""
    ink = _ink(character, font)
    if 0 in ink.size:
        return None
    side = max(ink.size)
    square = Image.new("L", (side, side))
    square.paste(ink, ((side - ink.width) // 2, (side - ink.height) // 2))
    return np.asarray(square.resize((LOOK, LOOK), Image.Resampling.BOX)) >> 4


def _ink(character: str, font: str) -> Image.Image:
    """The drawing cut to its ink, white on black; 0x0 if there is none."""
    mask = _font(font).getmask(character, mode="L")
    image = Image.frombytes("L", mask.size, bytes(mask))
    return image.crop(image.getbbox() or (0, 0, 0, 0))


@functools.cache
def _font_file(name: str) -> str:
    import matplotlib  # late: opening the cache needs only its version

    return str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf")


@functools.cache
def _font(name: str) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(_font_file(name), POINTS, layout_engine=ImageFont.Layout.BASIC)


@functools.cache
def _charmap(name: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(_font_file(name)).get_charmap())


def draw_samples(glyph: Glyph) -> np.ndarray:
    """(SAMPLES, 28, 28) uint8: the fonts in turn, each time with another slant, turn, size, place
    and weight of stroke."""
    random = np.random.Philox(key=np.array([ord(glyph.character), VERSION], dtype=np.uint64))
    changes = (random.random_raw(7 * SAMPLES) >> np.uint64(11)) % 1001 / 500 - 1  # from -1 to 1
    changes = changes.reshape(SAMPLES, 7)
    inks = [_ink(glyph.character, font) for font in glyph.fonts]
    large = np.stack([_bend(inks[s % len(inks)], *changes[s, :6].tolist()) for s in range(SAMPLES)])
    # The blurred drawing cut off higher or lower: a thinner or a thicker stroke.
    cut = 65 + (30 * changes[:, 6]).astype(np.int16)[:, None, None]
    stroke = np.clip(4 * (large - cut) + 128, 0, 255)  # (SAMPLES, 28 * ZOOM, 28 * ZOOM)
    parts = np.stack([stroke[:, i::ZOOM, j::ZOOM] for i in range(ZOOM) for j in range(ZOOM)])
    return (parts.sum(0) // ZOOM**2).astype(np.uint8)


def _bend(
    ink: Image.Image, turn: float, slant: float, wide: float, high: float, right: float, down: float
) -> np.ndarray:
    """The ink, ZOOM times the final size and blurred; NEAREST because Pillow does that one in fixed
    point."""
    unit = max(ink.size) / (20 * ZOOM)  # the ink is 20 pixels long, before the changes
    a, b = unit * (1 + 0.15 * wide), unit * (0.15 * turn + 0.25 * slant)  # from output to input
    d, e = unit * -0.15 * turn, unit * (1 + 0.15 * high)
    x, y = ZOOM * (SIZE / 2 + 1.5 * right), ZOOM * (SIZE / 2 + 1.5 * down)  # where the centre goes
    at = (a, b, ink.width / 2 - a * x - b * y, d, e, ink.height / 2 - d * x - e * y)
    large = ink.transform((SIZE * ZOOM,) * 2, Image.Transform.AFFINE, at, Image.Resampling.NEAREST)
    return np.asarray(large.filter(ImageFilter.BoxBlur(1))).astype(np.int16)
