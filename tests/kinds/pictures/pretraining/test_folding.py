"""Batch norms folded into convs: what PyTorch gives with the same statistics."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from pmeta.data.tasks import ImageSet, normalise
from pmeta.kinds.pictures.pretraining.folding import folded, norm_of
from pmeta.network.backbones import FourConv, ResNet12
from pmeta.network.take_in import take_in


def images() -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    return ImageSet(pixels, ["a", "b"], np.array([0, 20]), np.array([20, 20]), "two classes", [])


@pytest.mark.parametrize(
    "make",
    [
        lambda norm: FourConv(2, (3, 32, 32), 8, norm=norm, embedding="signed"),
        lambda norm: ResNet12(2, (3, 32, 32), (4, 4, 8, 8), norm=norm),
    ],
)
def test_a_folded_network_gives_what_batch_norms_give_for_these_pictures(
    make: Callable[[str], nn.Module],
) -> None:
    torch.manual_seed(0)
    with_norms: Any = make("batch").double()
    for p in with_norms.parameters():
        p.data = torch.randn_like(p)  # norms with negative factors and biases too
    plain = take_in(make("none").double(), torch.zeros(1, 3, 32, 32, dtype=torch.float64))
    w = dict(with_norms.named_parameters())
    found = folded(plain, w, images())
    head = {name: t for name, t in w.items() if name.startswith(("fc", "norm5"))}
    x = normalise(images().images).double()
    y = functional_call(plain.model, {**found, **head}, (x,))
    torch.testing.assert_close(y, with_norms(x), rtol=1e-8, atol=1e-8)


def test_every_conv_has_its_norm() -> None:
    names = dict(ResNet12(norm="batch").named_modules())
    convs = [name for name, m in names.items() if isinstance(m, nn.Conv2d)]
    assert {norm_of(name) for name in convs} == {n for n in names if "norm" in n}
