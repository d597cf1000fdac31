"""The arena of a mask without an export: the same number, quickly."""

import pytest
import torch

from pmeta.compiler.arena import Arena
from pmeta.compiler.export import export
from pmeta.method.methods import METHODS
from tests.helpers.device_models import SHAPES, network, trained

MASKS = {
    "4conv": (["fc"], ["conv4", "norm4", "fc"], ["norm2", "conv3", "fc"], None),
    "resnet12": (["fc"], None),
    "depthwise": (["c", "fc"], None),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("batch", [1, 5])
def test_it_is_what_export_plans(kind: str, batch: int) -> None:
    generator = torch.Generator().manual_seed(0)
    net, method = network(kind, generator), METHODS["pmeta"]
    meta = trained(net, method, generator, steps=2)
    arena = Arena(net, meta, method, SHAPES[kind], input_type="uint8", batch=batch)
    for live in MASKS[kind]:
        chosen = trained(net, method, generator, steps=2, live=live)
        e = export(net, chosen, method, SHAPES[kind], input_type="uint8", batch=batch)
        assert arena.bytes(chosen.updates()) == e.arena_bytes


def test_a_mask_has_a_column_for_each_layer() -> None:
    generator = torch.Generator().manual_seed(0)
    net, method = network("mlp", generator), METHODS["maml"]
    meta = trained(net, method, generator)
    with pytest.raises(ValueError, match=r"each of the 3 layers, got \(3, 2\)"):
        Arena(net, meta, method, SHAPES["mlp"]).bytes(torch.ones(3, 2))
