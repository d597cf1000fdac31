"""Max-pooling first: a norm waits until it is known who reads its output."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

RELU = (F.relu, torch.relu, Tensor.relu)
MAX_POOL = (F.max_pool2d, torch.max_pool2d)


class PoolFirst(TorchFunctionMode):
    """While this is on, a stand-in takes the place of a norm's output, and what reads it decides.

    A max-pool of 2x2 has the norm computed only where it chooses, a ReLU hands the question
    on, and anything else has the norm computed in full.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[int, tuple[Tensor, Callable[[bool], Tensor]]] = {}

    def hold(self, compute: Callable[[Tensor, bool], Tensor], x: Tensor) -> Tensor:
        """A stand-in for compute(x, pooled)."""
        return self._stand_in(x, lambda pooled: compute(x, pooled))

    def _stand_in(self, x: Tensor, compute: Callable[[bool], Tensor]) -> Tensor:
        stand_in = x.detach()
        self.waiting[id(stand_in)] = (stand_in, compute)  # held, so that its id stays its own
        return stand_in

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.waiting:
            if args and id(args[0]) in self.waiting:
                stand_in, compute = self.waiting[id(args[0])]
                if func in MAX_POOL and _is_plain(*args[1:], **kwargs):
                    del self.waiting[id(stand_in)]
                    return compute(True)
                if func in RELU:
                    del self.waiting[id(stand_in)]
                    return self._stand_in(stand_in, lambda pooled: F.relu(compute(pooled)))
            args, kwargs = tree_map(self._in_full, (args, kwargs))
        return func(*args, **kwargs)

    def _in_full(self, value: Any) -> Any:
        if id(value) not in self.waiting:
            return value
        stand_in, compute = self.waiting[id(value)]
        y = compute(False)
        self.waiting[id(value)] = (stand_in, lambda pooled: F.max_pool2d(y, 2) if pooled else y)
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
