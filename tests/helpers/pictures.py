"""Pictures for tests: photographs are no random numbers, they have smooth areas and edges."""

import io
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from pmeta.data.glyphs import Glyph, draw_samples


def scenes(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Like photographs: a sky, things in front of each other with shade and sharp edges, blur, and
    the noise of a sensor. (n, 3, size, size) uint8"""
    return np.stack([_scene(size, rng) for _ in range(n)])


def _scene(size: int, rng: np.random.Generator) -> np.ndarray:
    picture = _field(size, rng)
    for _ in range(rng.integers(3, 8)):
        mask = Image.new("L", (size, size))
        x, y = rng.uniform(-0.2, 0.8, 2) * size
        box = (x, y, x + rng.uniform(0.2, 0.8) * size, y + rng.uniform(0.2, 0.8) * size)
        draw = ImageDraw.Draw(mask)
        (draw.ellipse if rng.random() < 0.5 else draw.rectangle)(box, fill=255)
        mask = mask.rotate(float(rng.uniform(0, 90)))
        picture = Image.composite(_field(size, rng), picture, mask)
    pixels = np.asarray(picture.filter(ImageFilter.GaussianBlur(0.6)), np.float64) + rng.normal(
        0, 2, (size, size, 3)
    )
    return pixels.clip(0, 255).astype(np.uint8).transpose(2, 0, 1)


def _field(size: int, rng: np.random.Generator) -> Image.Image:
    """A colour, in light that changes smoothly."""
    light, colour = (
        rng.random((3, 3, 1)) * 180 + 40,
        rng.normal(0, 30, (1, 1, 3)) + rng.normal(0, 10, (3, 3, 3)),
    )
    return Image.fromarray((light + colour).clip(0, 255).astype(np.uint8)).resize(
        (size, size), Image.Resampling.BICUBIC
    )


def characters(n: int) -> np.ndarray:
    """Characters on a plain ground, in which most windows of a max-pool hold four equal pixels. (n,
    3, 28, 28) uint8"""
    drawn = [
        draw_samples(Glyph(chr(0x3B1 + i), ("DejaVuSans",)))[0] for i in range(n)
    ]  # alpha, beta, ...
    return np.repeat(np.stack(drawn)[:, None], 3, axis=1)


def encoded(image: Image.Image, kind: str = "png", **options: Any) -> bytes:
    """The bytes of a picture file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def three_bands(width: int, height: int) -> Image.Image:
    """Left third red, middle green, right blue."""
    image = Image.new("RGB", (width, height), (0, 255, 0))
    image.paste((255, 0, 0), (0, 0, width // 3, height))
    image.paste((0, 0, 255), (2 * width // 3, 0, width, height))
    return image
