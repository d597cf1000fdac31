"""Plans that take less memory: the same weights as PyTorch, in the bytes that were promised."""

import numpy as np
import pytest
import torch

from pmeta.compiler.export import export
from pmeta.device.format import INPUT_TYPES
from tests.device.test_golden import same_weights
from tests.helpers.device_models import Case, case


def turned(c: Case) -> Case:
    """The same with norms of which every third weight is negative, and one is nothing."""
    p = c.meta.parameters()
    for name, w in c.meta.w.items():
        if "norm" in name and name.endswith("weight"):
            signs = torch.where(torch.arange(len(w)) % 3 == 1, -0.7, 1.3)
            p[f"w/{name}"] = w * signs
    return again(c._replace(meta=c.meta.with_parameters(p)))


def again(c: Case) -> Case:
    """The case with its file written anew."""
    kind = INPUT_TYPES[c.raw.dtype == np.uint8]
    channels = c.raw.shape[1]
    exported = export(
        c.net,
        c.meta,
        c.method,
        c.raw.shape[1:],
        input_type=kind,
        scale=[2 / 255] * channels,
        shift=[-1.0] * channels,
        batch=c.batch,
    )
    return c._replace(exported=exported)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("live", [["norm1", "fc"], ["norm3", "conv4", "fc"], ["norm4"]])
def test_norms_behind_their_pool_equal_pytorch(live: list[str], batch: int) -> None:
    same_weights(turned(case("4conv", "pmeta", seed=3, live=live, batch=batch, raw=True)))
