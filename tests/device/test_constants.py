"""Constants in two bytes or one: the engine equals PyTorch with the same rounded numbers."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pmeta.compiler.export import export
from pmeta.compiler.packing import LEAST, pack
from pmeta.device.model_file import INPUT_TYPES
from tests.device.test_golden import same_weights
from tests.helpers.device_models import Case, case

KINDS = ("float16", "int8")


def rounded(w: Tensor, kind: str) -> Tensor:
    rows = w.detach().reshape(len(w), -1)
    if rows.shape[1] < LEAST:
        return w
    return torch.from_numpy(pack(rows.numpy(), kind).values.reshape(w.shape)).to(w)


def with_constants(c: Case, kind: str) -> Case:
    """The case with its constants rounded in PyTorch, and written as such into its file."""
    live = {
        name
        for layer, on in zip(c.net.layers, c.meta.updates().any(0).tolist(), strict=True)
        for name in layer.params
        if on
    }
    p = c.meta.parameters()
    for name, w in c.meta.w.items():
        if w.dim() > 1 and name not in live:
            p[f"w/{name}"] = rounded(w, kind)
    for name, w in c.meta.attention.items():
        if w.dim() > 1:
            p[f"attention/{name}"] = rounded(w, kind)
    meta = c.meta.with_parameters(p)
    channels, raw = c.raw.shape[1] if c.raw.ndim > 2 else 1, c.raw.dtype == np.uint8
    exported = export(
        c.net,
        meta,
        c.method,
        c.raw.shape[1:],
        input_type=INPUT_TYPES[raw],
        scale=[2 / 255] * channels,
        shift=[-1.0] * channels,
        batch=c.batch,
        constants=kind,
    )
    return c._replace(meta=meta, exported=exported)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    ("model", "live"),
    [
        ("4conv", ["norm1", "conv3", "fc"]),
        ("resnet12", None),
        ("mlp", None),
        ("depthwise", None),
    ],
)
def test_constants_equal_pytorch(model: str, live: list[str] | None, batch: int, kind: str) -> None:
    c = case(model, "pmeta", seed=7, live=live, batch=batch)
    if live is None:  # one layer at the bottom and the head: gradients pass what is constant
        names = [layer.name for layer in c.net.layers]
        c = case(model, "pmeta", seed=7, live=[names[0], names[-1]], batch=batch)
    small = with_constants(c, kind)
    assert len(small.exported.data) < len(c.exported.data)
    same_weights(small)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_updated_stays_float32(kind: str) -> None:
    names = [layer.name for layer in case("mlp", "maml", seed=7).net.layers]
    c = case("mlp", "maml", seed=7, live=names)
    assert with_constants(c, kind).exported.data == c.exported.data


def test_other_types_are_refused() -> None:
    c = case("mlp", "maml", seed=7)
    with pytest.raises(ValueError, match="float32, float16, int8, got 'int4'"):
        export(c.net, c.meta, c.method, c.raw.shape[1:], constants="int4")


def test_halves_and_bytes_round_to_the_nearest() -> None:
    w = np.array([[1.0, -0.3, 0.001], [0, 0, 0], [70000.0, 1e-9, -2.0]], "f4")
    half, byte = pack(w, "float16"), pack(w, "int8")
    np.testing.assert_array_equal(half.values[:2], w[:2].astype("f2").astype("f4"))
    assert half.values[2, 0] == 65504  # the largest half, not infinity
    assert np.abs(byte.values - w).max(1).tolist() <= (byte.scale * 0.5001).tolist()
    assert byte.values[1].tolist() == [0, 0, 0]
