"""A head from prototypes in the engine: the same as PyTorch, for any number of classes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pmeta.compiler.arena import Arena
from pmeta.compiler.export import Exported, export
from pmeta.device.binding import DeviceModel, load
from pmeta.device.calls import EngineError
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta, init_meta
from pmeta.method.methods import method
from pmeta.network.backbones import FourConv
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from pmeta.network.tape import forward

IMAGE, OUTPUTS = (3, 20, 20), 6


def made(name: str, head: str = "prototype") -> tuple[Network, Meta, Exported]:
    torch.manual_seed(3)
    net = take_in(FourConv(OUTPUTS, IMAGE, 8, 4, embedding="norm"), torch.zeros(1, *IMAGE))
    meta = init_meta(net, method(name), 2, 0.05, torch.Generator().manual_seed(0), head)
    return net, meta, export(net, meta, method(name), IMAGE)


def drawn(classes: int, shots: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.permutation(np.arange(classes).repeat(shots))
    tints = random.normal(size=(classes, 3, 1, 1))
    x = tints[y] + random.normal(size=(len(y), *IMAGE))
    return x.astype(np.float32), y


@pytest.mark.parametrize("name", ["protonet", "anil", "maml++", "pmeta"])
@pytest.mark.parametrize(("classes", "shots"), [(2, 3), (6, 1)])
def test_the_engine_adapts_as_pytorch_does(name: str, classes: int, shots: int) -> None:
    net, meta, exported = made(name)
    device = DeviceModel(exported.data)
    (x, y), (q, _) = drawn(classes, shots), drawn(classes, 2, seed=1)
    adapted = InnerLoop(net, method(name), batch=1).adapt(
        meta, (torch.from_numpy(x), torch.from_numpy(y))
    )
    with torch.no_grad():
        right, _ = forward(net, adapted.w, torch.from_numpy(q))
    steps = device.adapt(x, y)
    assert (device.prototypes, device.n_classes) == (True, classes)
    assert len(steps.losses) == device.steps == (0 if name == "protonet" else 2)
    found = device.scores(q)[:, :classes]
    np.testing.assert_allclose(found, right.numpy(), rtol=2e-4, atol=2e-4)
    assert device.high_water_bytes <= device.arena_bytes


def test_the_head_is_made_anew_each_time() -> None:
    device = DeviceModel(made("pmeta")[2].data)
    (x, y), (other, labels) = drawn(3, 2), drawn(5, 1, seed=2)
    device.adapt(x, y)
    first = device.state()
    device.adapt(other, labels)
    device.adapt(x, y)
    assert device.state() == first


def test_the_pass_costs_no_memory_where_a_step_updates_the_head() -> None:
    net, meta, exported = made("maml++")
    learned = made("maml++", "learned")[2]
    assert exported.arena_bytes == learned.arena_bytes
    assert exported.arena_bytes == Arena(net, meta, method("maml++"), IMAGE).bytes(meta.updates())
    net, meta, exported = made("protonet")
    assert exported.arena_bytes == Arena(net, meta, method("protonet"), IMAGE).bytes(meta.updates())


def test_an_adapted_model_is_saved_and_opened_again(tmp_path: Path) -> None:
    device = DeviceModel(made("pmeta")[2].data)
    (x, y), (q, _) = drawn(3, 2), drawn(3, 2, seed=1)
    device.adapt(x, y)
    device.save(tmp_path / "adapted.pmeta")
    again = load(tmp_path / "adapted.pmeta")
    np.testing.assert_array_equal(again.probabilities(q), device.probabilities(q))
    assert again.n_classes == 3


def test_a_class_without_a_sample_is_refused() -> None:
    device = DeviceModel(made("pmeta")[2].data)
    x, y = drawn(3, 1)
    with pytest.raises(ValueError, match="at least, the support set has none of 1: add"):
        device.adapt(x[y != 1], y[y != 1])
    with pytest.raises(ValueError, match="is made from labels: use adapt"):
        device.adapt_with(x, lambda i, output: output)
    device._call("pmeta_reset")
    device._call("pmeta_classes", 3)
    device._call("pmeta_begin", 2)
    for sample, label in zip(x[y != 1], y[y != 1], strict=True):
        device._call("pmeta_feed", sample.ctypes.data, int(label), None)
    with pytest.raises(EngineError, match="a head from prototypes needs a sample of each"):
        device._call("pmeta_step")
