"""What is compiled for small cores only, on this machine: the same numbers as on a large one."""

from ctypes import CDLL
from pathlib import Path

import numpy as np
import pytest

from pmeta import device
from pmeta.base import native
from tests.helpers.device_golden import check
from tests.helpers.device_models import case

PLAIN = ("-std=c99", "-O2", "-ffp-contract=off", "-fPIC")
"""A product and a sum are rounded apart, so that the order of the sums alone decides the bits."""


def built(folder: Path, name: str, *defines: str) -> CDLL:
    flags = (*PLAIN, *defines)
    path = native.compile_library(folder / f"{name}.so", native.sources(device.ENGINE), flags)
    return device.library(path)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CDLL]:
    folder = tmp_path_factory.mktemp("small")
    return {
        "large": built(folder, "large", "-DPMETA_SMALL_TILE=0"),
        "small": built(folder, "small", "-DPMETA_SMALL_TILE=1"),
        "single": built(folder, "single", "-DPMETA_SMALL_TILE=1", "-DPMETA_NO_DOUBLE"),
    }


@pytest.mark.parametrize("kind", ["4conv", "depthwise-12", "signal"])
def test_the_small_tile_gives_the_same_bits(kind: str, libraries: dict[str, CDLL]) -> None:
    c = case(kind, "pmeta", seed=41)
    states = []
    for name in ("large", "small"):
        model = device.DeviceModel(c.exported.data, lib=libraries[name])
        model.adapt(c.raw, c.y.numpy())
        states.append(np.frombuffer(model.state(), np.float32))
    assert np.array_equal(states[0], states[1])


@pytest.mark.parametrize(("kind", "raw"), [("4conv", True), ("4conv", False), ("mlp", False)])
def test_means_without_double_are_near_enough(
    kind: str, raw: bool, libraries: dict[str, CDLL]
) -> None:
    c = case(kind, "pmeta", seed=42, raw=raw)
    model = device.DeviceModel(c.exported.data, lib=libraries["single"])
    model.adapt(c.raw, c.y.numpy())
    check(c, model.weights())
