"""Augmented pictures: crops, mirrors and factors by hand; the same bits, the same picture."""

from typing import Any

import numpy as np
import torch

from pmeta.data.augment import augment
from pmeta.data.tasks import SCALE, SHIFT, normalise
from tests.helpers.pictures import scenes

PICTURES = scenes(64, 32, np.random.default_rng(0)).transpose(0, 2, 3, 1)  # (n, H, W, C)


def bits(number: int = 0) -> np.random.Philox:
    return np.random.Philox(key=np.array([3, number], dtype=np.uint64))


def test_a_whole_crop_is_the_picture_or_its_mirror_image() -> None:
    # An area of 1 is a crop of the whole picture only where the sides are 1:1; squash the ratio
    # away.
    x = augment(PICTURES, bits(), size=32, least_area=1.0, jitter=0.0)
    plain = normalise(PICTURES)
    rows = [(torch.equal(a, b), torch.equal(a, b.flip(2))) for a, b in zip(x, plain, strict=True)]
    assert not any(a and b for a, b in rows)
    near = [
        min(float((a - b).abs().mean()), float((a - b.flip(2)).abs().mean()))
        for a, b in zip(x, plain, strict=True)
    ]
    assert max(near) < 0.6  # at most a stretch of 4:3


def test_the_same_bits_give_the_same_picture_and_others_another() -> None:
    args: dict[str, Any] = {"size": 24, "least_area": 0.4, "jitter": 0.3}
    x = augment(PICTURES, bits(), **args)
    assert torch.equal(x, augment(PICTURES, bits(), **args))
    assert not torch.equal(x, augment(PICTURES, bits(1), **args))


def test_about_half_are_mirrored() -> None:
    ramp = np.broadcast_to(
        np.arange(0, 256, 8, dtype=np.uint8)[None, None, :, None], (400, 32, 32, 3)
    )
    x = augment(ramp, bits(), size=16, least_area=0.5, jitter=0.0)
    falling = (x[:, 0, 8, 0] > x[:, 0, 8, -1]).float().mean()
    assert 0.42 < float(falling) < 0.58


def test_crops_show_at_least_the_area_asked_for() -> None:
    ramp = np.broadcast_to(
        np.arange(0, 256, 8, dtype=np.uint8)[None, None, :, None], (400, 32, 32, 3)
    )
    x = augment(ramp, bits(), size=32, least_area=0.5, jitter=0.0)
    across = (x[:, 0, 0].amax(1) - x[:, 0, 0].amin(1)) / (248 * SCALE)
    down = augment(ramp.transpose(0, 2, 1, 3), bits(), size=32, least_area=0.5, jitter=0.0)
    along = (down[:, 0, :, 0].amax(1) - down[:, 0, :, 0].amin(1)) / (248 * SCALE)
    assert float((across * along).min()) > 0.45  # within a pixel of 0.5
    assert float((across * along).max()) > 0.9


def test_colours_of_a_plain_picture_by_hand() -> None:
    grey = np.full((200, 32, 32, 3), 100, dtype=np.uint8)
    x = augment(grey, bits(), size=16, least_area=0.5, jitter=0.25)
    level = (x - SHIFT) / SCALE  # only brightness moves a plain grey
    assert torch.allclose(level, level[:, :1, :1, :1].expand_as(level), atol=1e-3)
    assert 75 - 1e-3 <= float(level.min()) < 78
    assert 122 < float(level.max()) <= 125 + 1e-3


def test_pixels_stay_what_a_pixel_can_be() -> None:
    x = augment(PICTURES, bits(), size=32, least_area=0.4, jitter=0.9)
    assert float(x.min()) >= SHIFT
    assert float(x.max()) <= 255 * SCALE + SHIFT + 1e-6
