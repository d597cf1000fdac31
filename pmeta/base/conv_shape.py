"""What a conv layer is besides its weight."""

from typing import NamedTuple


class ConvShape(NamedTuple):
    """How a conv walks over its input: a number for each axis of space, and the groups of
    channels."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
