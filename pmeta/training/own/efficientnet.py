"""EfficientNet-Lite0 for `pmeta train`, made ready for a device: what the zoo's model is built on.

pmeta train pmeta.training.own.efficientnet:make_net --data DATA --image-size 112 ...
"""

import torch
from torch import nn

from pmeta.compiler.prepare import prepare
from pmeta.data.tasks import SCALE as OUR_SCALE
from pmeta.data.tasks import SHIFT as OUR_SHIFT
from pmeta.network.efficientnet import SCALE, SHIFT, efficientnet_lite0


def make_net(classes: int, image: tuple[int, int, int]) -> nn.Module:
    """The network with its ImageNet weights and batch norms folded, for pixels as our data have
    them."""
    if image[0] != 3 or image[1] != image[2]:
        raise ValueError(
            "EfficientNet-Lite0 reads square pictures of 3 channels, got "
            f"{'x'.join(map(str, image))}: choose other data, or give --image-size."
        )
    model = prepare(efficientnet_lite0(classes, image[1]), torch.zeros(1, *image))
    stem = model.get_submodule("stem.0")
    assert isinstance(stem, nn.Conv2d)
    _rescale(stem, SCALE / OUR_SCALE, SHIFT - OUR_SHIFT * SCALE / OUR_SCALE)
    return model


@torch.no_grad()
def _rescale(conv: nn.Conv2d, factor: float, offset: float) -> None:
    """Let a conv read x in the place of x * factor + offset.

    Where it reads zeros beyond the border they stay zeros of x, so that pixels there are off by
    `offset` times a weight: half a grey level for this network."""
    assert conv.bias is not None
    conv.bias += offset * conv.weight.sum((1, 2, 3))
    conv.weight *= factor
