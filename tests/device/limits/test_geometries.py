"""Which windows of convolutions and of pooling fit."""

import pytest

from pmeta.device.instructions import LAYOUTS, NONE
from pmeta.device.model_file import Geom
from tests.helpers.device_examples import (
    ARENA,
    AVGPOOL,
    AVGPOOL_BW,
    MAXPOOL,
    MAXPOOL_BW,
    NORM_POOL_BW,
    POOL,
    SIDE,
    Example,
)
from tests.helpers.device_files import opens

ONE = Geom(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1)
"""One pixel."""


def window(side: str, n: int, k: int = 1, s: int = 1, p: int = 0, d: int = 1, out: int = 0) -> Geom:
    """Of so many pixels in height or width, with the output that they make, unless it is given."""
    out = out or (n + 2 * p - d * (k - 1) - 1) // max(s, 1) + 1
    sizes = {side: n, f"k{side}": k, f"s{side}": s, f"p{side}": p, f"d{side}": d, f"{side}o": out}
    return ONE._replace(**sizes)


def conv(geom: Geom) -> bool:
    """A conv of this geometry opens."""
    unsigned = Geom(*(n & NONE for n in geom))
    places = dict.fromkeys(("y", "x", "w", "patches"), 1)
    example = Example("conv", {"geom": 1, "channels": 1, "strip": 16}, places, geom=unsigned)
    return example.opens()


def average(geom: Geom) -> bool:
    example = Example("avgpool", {"geom": 1, "channels": 1}, {"y": 1, "x": 1}, geom=geom)
    return example.opens()


@pytest.mark.parametrize("name", Geom._fields)
def test_sizes_are_positive(name: str) -> None:
    assert conv(ONE)
    for n in (0, -1, 1 << 31):
        assert conv(ONE._replace(**{name: n})) == (name in ("ph", "pw") and n == 0)


def test_channels_and_groups() -> None:
    for geom, fits in (
        (ONE._replace(c_in=65535), True),
        (ONE._replace(c_in=65536), False),
        (ONE._replace(c_out=65535), True),
        (ONE._replace(c_out=65536), False),
        (ONE._replace(c_in=65535, c_out=65535, groups=65535), True),
        (ONE._replace(c_in=65536, c_out=65536, groups=65536), False),
        (ONE._replace(c_in=4, c_out=6, groups=2), True),
        (ONE._replace(c_in=4, c_out=6, groups=4), False),
        (ONE._replace(c_in=4, c_out=6, groups=3), False),
    ):
        assert conv(geom) == fits, geom


@pytest.mark.parametrize("side", ["h", "w"])
def test_windows_of_convs(side: str) -> None:
    for geom, fits in (
        (window(side, SIDE, s=2), True),
        (window(side, SIDE + 1, s=2), False),
        (window(side, 255, k=255), True),
        (window(side, 256, k=256), False),
        (window(side, 300, s=255), True),
        (window(side, 300, s=256), False),
        (window(side, 1, p=255), True),
        (window(side, 1, p=256), False),
        (window(side, 9, k=2, p=-1), False),
        (window(side, 256, k=2, d=255), True),
        (window(side, 257, k=2, d=256), False),
        (window(side, SIDE), True),
        (window(side, SIDE, p=1), False),  # a larger output
        (window(side, 5, out=4), False),
        (window(side, 5, out=6), False),
        (window(side, 3, k=3, s=2, out=1), True),
        (window(side, 2, k=3, s=2, out=1), False),  # larger than the image
        (window(side, 5, k=3, s=2, d=2, out=1), True),
        (window(side, 4, k=3, s=2, d=2, out=1), False),
        (window(side, 3, k=5, s=2, p=1, out=1), True),
        (window(side, 2, k=5, s=2, p=1, out=1), False),
        (window(side, 9, k=3, s=2, p=1, d=2), True),
    ):
        assert conv(geom) == fits, geom


@pytest.mark.parametrize("side", ["h", "w"])
def test_windows_of_pools(side: str) -> None:
    """They may be large, have no dilation, and may end outside if they begin inside."""
    for geom, fits in (
        (window(side, SIDE, k=SIDE), True),
        (window(side, SIDE, k=SIDE + 1, p=1), False),
        (window(side, SIDE, k=2, s=SIDE), True),
        (window(side, SIDE, k=2, s=SIDE + 1), False),
        (window(side, 9, k=2, d=2), False),
        (window(side, 9, k=4, p=2), True),
        (window(side, 9, k=4, p=3), False),
        (window(side, 8, k=3, s=2, out=2), False),
        (window(side, 8, k=3, s=2, out=3), True),
        (window(side, 8, k=3, s=2, out=4), True),
        (window(side, 8, k=3, s=2, out=5), False),
        (window(side, 7, k=1, s=2, out=5), False),  # it would begin behind the image
        (window(side, 6, k=2, s=2, p=1, out=4), True),
        (window(side, 6, k=2, s=2, p=1, out=5), False),
        (window(side, 7, k=2, s=2, p=1, out=4), True),
        (window(side, 7, k=2, s=2, p=1, out=5), False),
        (window(side, 6, k=1, s=3, out=3), False),  # it would begin at the end
        (window(side, 7, k=2, s=3, out=3), True),
    ):
        assert average(geom) == fits, geom


@pytest.mark.parametrize("op", ["maxpool", "maxpool_bw", "norm_pool_bw"])
def test_a_place_in_a_window_is_a_byte(op: str) -> None:
    for k, fits in ((16, True), (17, False)):
        geom = ONE._replace(h=20, w=20, kh=k, kw=16, ho=21 - k, wo=5)
        words = dict.fromkeys(LAYOUTS[op].operands, 1)
        assert opens(Example(op, {"geom": 1, "channels": 1}, words, geom=geom).data()) == fits


def test_dilated_windows_of_pools() -> None:
    for d, fits in ((255, True), (256, False)):
        geom = ONE._replace(h=d + 1, kh=2, dh=d)
        words = dict.fromkeys(LAYOUTS["maxpool"].operands, 1)
        assert (
            opens(Example("maxpool", {"geom": 1, "channels": 1}, words, geom=geom).data()) == fits
        )


def test_half_a_window_of_padding_at_most() -> None:
    """So every window holds a pixel."""
    for example in (MAXPOOL, MAXPOOL_BW, NORM_POOL_BW, AVGPOOL, AVGPOOL_BW):
        for geom, fits in (
            (POOL, True),
            (POOL._replace(ph=2, ho=6), False),
            (POOL._replace(pw=2, wo=7), False),
        ):
            assert opens(example.but(geom).data(ARENA)) == fits
