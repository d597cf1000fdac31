"""Max-pooling first: a norm waits until it is known who reads its output."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

RELU = (F.relu, torch.relu, Tensor.relu)
MAX_POOL = (F.max_pool2d, torch.max_pool2d)


class Waiting(Tensor):
    """What stands in the place of a norm's output until it is read.

    A max-pool of 2x2 has the norm computed only where it chooses, a ReLU hands the question on, and
    anything else has the norm computed in full.
    """

    like: Tensor
    """Has its shape, which is all that is asked of it once it was read."""
    compute: Callable[[bool], Tensor]
    """The output, or with True only what the max-pool chooses."""

    def read(self) -> Callable[[bool], Tensor]:
        """How it is computed, which is asked once."""
        like = self.like  # and not self, in a circle that keeps the tape alive
        compute, self.compute = self.compute, lambda pooled: like
        return compute

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Tensor | Any:
        kwargs = kwargs or {}
        if args and isinstance(args[0], Waiting):
            y = args[0]
            if func in MAX_POOL and _is_plain(*args[1:], **kwargs):
                return y.read()(True)
            if func in RELU:
                compute = y.read()
                return waiting(y.like, lambda pooled: F.relu(compute(pooled)))
        args, kwargs = tree_map(_in_full, (args, kwargs))
        return func(*args, **kwargs)


def waiting(like: Tensor, compute: Callable[[bool], Tensor]) -> Waiting:
    """A tensor of the shape of `like` that is computed once it is read."""
    like = like.detach()
    y = like.as_subclass(Waiting)
    y.like, y.compute = like, compute
    return y


def _in_full(value: Any) -> Any:
    if not isinstance(value, Waiting):
        return value
    y = value.compute(False)
    value.compute = lambda pooled: F.max_pool2d(y, 2) if pooled else y
    return y


def _is_plain(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    **more: bool,
) -> bool:
    """Whether the windows of a max-pool are 2x2, side by side."""
    pairs = [
        tuple(p) if isinstance(p, list | tuple) else (p, p)
        for p in (kernel_size, stride or kernel_size, padding, dilation)
    ]
    return pairs == [(2, 2), (2, 2), (0, 0), (1, 1)] and not ceil_mode
