"""The C kernels with each number of lanes that this processor has."""

import pytest

from pmeta.fast.library import LANES, lanes, library

KERNELS = library()
HERE = [n for n in LANES if KERNELS is not None and n <= KERNELS.most_lanes()]


@pytest.fixture
def with_lanes(monkeypatch):
    """Sets the number of lanes, until the test ends."""

    def choose(n: int) -> None:
        monkeypatch.setenv("PMETA_LANES", str(n))
        lanes.cache_clear()

    yield choose
    lanes.cache_clear()


@pytest.fixture(params=HERE)
def any_lanes(request, with_lanes):
    with_lanes(request.param)
