"""Kernels with 4, 8 and 16 lanes: the same bits."""

import pytest
import torch
from torch import Tensor

from pmeta.fast import conv_c, norm_pool_c
from pmeta.fast.library import LANES, lanes
from pmeta.fast.norm_pool_torch import Normed
from tests.fast.conftest import HERE
from tests.helpers.nets import generator


def image(*size: int, seed: int) -> Tensor:
    t = torch.randn(size, generator=generator(seed))
    return t.contiguous(memory_format=torch.channels_last)


def convs(inputs: int, outputs: int, h: int, w: int) -> list[Tensor]:
    x, g = image(5, inputs, h, w, seed=1), image(5, outputs, h, w, seed=2)
    weight = torch.randn(outputs, inputs, 3, 3, generator=generator(3))
    found = [conv_c.output(x, weight), conv_c.weight_gradient(g, x, weight)]
    return [*found, conv_c.input_gradient(g, weight)] if conv_c.is_wide(weight) else found


def norms(channels: int, h: int, w: int) -> list[Tensor]:
    x, weight = image(3, channels, h, w, seed=1), torch.randn(channels, generator=generator(2))
    x_hat, v, place, mean, r = norm_pool_c.forward(x, weight, 3, 1e-5)
    normed = Normed(x, x_hat, place, mean, r, 3)
    g, g_v, u = image(*x_hat.shape, seed=3), torch.randn(v.shape, generator=generator(4)), -x
    g_x, m, a = norm_pool_c.backward(normed, g, v, g_v)
    alone, *_ = norm_pool_c.backward(normed, g)
    twice = norm_pool_c.twice(normed, g, m, a, u)
    sums = norm_pool_c.channel_sums(g, x_hat)
    return [x_hat, v, place, mean, r, g_x, m, a, alone, *twice, *sums]


def everything() -> list[Tensor]:
    """All kernels on sizes that no number of lanes, rows or tiles divides, and on 4Conv's."""
    wide = [t for c in ((16, 48), (48, 16), (32, 32)) for t in convs(*c, 13, 10)]
    thin = [t for c in ((1, 16), (3, 32), (3, 48), (4, 64)) for t in convs(*c, 9, 17)]
    return [*wide, *thin, *norms(33, 7, 10), *norms(48, 8, 8), *norms(3, 2, 3)]


def test_each_number_of_lanes_gives_the_same_bits(with_lanes):
    found = []
    for n in HERE:
        with_lanes(n)
        found.append(everything())
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.equal(a, b)


def test_the_most_lanes_are_the_default_and_another_number_can_be_asked_for(
    with_lanes, monkeypatch
):
    with_lanes(4)
    assert lanes() == 4
    monkeypatch.delenv("PMETA_LANES")
    lanes.cache_clear()
    assert lanes() == HERE[-1]
    assert set(HERE) <= set(LANES)


@pytest.mark.parametrize("asked", ["5", "32", "eight"])
def test_another_number_of_lanes_is_refused(with_lanes, asked):
    with_lanes(asked)
    with pytest.raises(ValueError, match=rf"one of .*4.*, got '{asked}': unset it for the most"):
        lanes()
