"""Channels of an embedding made equal in spread."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from pmeta.data.tasks import ImageSet, normalise
from pmeta.network.backbones import FourConv, ResNet12
from pmeta.network.take_in import take_in
from pmeta.training.pretraining.equalise import embedding, equalised


def images() -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    return ImageSet(pixels, ["a", "b"], np.array([0, 20]), np.array([20, 20]), "two classes", [])


@pytest.mark.parametrize(
    ("backbone", "make"),
    [
        ("4conv", lambda: FourConv(2, (3, 32, 32), 8, 4)),
        ("4conv", lambda: FourConv(2, (3, 32, 32), 8, 4, embedding="norm")),
        ("resnet12", lambda: ResNet12(2, (3, 32, 32), (4, 4, 8, 8), 2)),
    ],
)
def test_all_channels_have_the_same_spread_and_nothing_else_changes(
    backbone: str, make: Callable[[], torch.nn.Module]
) -> None:
    torch.manual_seed(0)
    net = take_in(make(), torch.zeros(1, 3, 32, 32))
    w = net.weights()
    w["norm4.weight" if backbone == "4conv" else "block4.norm3.weight"] *= torch.arange(1, 9)
    equal, x = equalised(net, w, images(), backbone), normalise(images().images)
    before, after = (embedding(net, v, x).detach().reshape(40, 8, -1) for v in (w, equal))
    ratio = before.std((0, 2), correction=0)
    assert ratio.max() > 2 * ratio.min()
    assert torch.allclose(after.std((0, 2), correction=0), torch.ones(8), atol=1e-4)
    assert torch.allclose(after * ratio[:, None], before, rtol=1e-3, atol=1e-5)
