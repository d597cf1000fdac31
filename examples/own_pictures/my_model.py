"""A network of your own for `pmeta train my_model.py:make_net`."""

from torch import nn


def block(inputs: int, outputs: int) -> list[nn.Module]:
    """A depthwise-separable conv, which takes few weights, a norm, ReLU and pooling."""
    return [
        nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.GroupNorm(4, outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]


def make_net(classes: int, image: tuple[int, int, int], width: int = 32) -> nn.Module:
    """`classes` outputs for pictures of (channels, height, width)."""
    channels = image[0]
    first = [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.GroupNorm(4, width), nn.ReLU()]
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    body = [*block(width, width), *block(width, 2 * width)]
    return nn.Sequential(*first, *body, *pooled, nn.Linear(2 * width, classes))
