"""The arena of an adaptation in bytes, without writing a file: for choosing layers by memory."""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from pmeta.compiler.constants import store
from pmeta.compiler.fuse import split
from pmeta.compiler.ir import Model
from pmeta.compiler.lower.program import program
from pmeta.compiler.read_model import read_graph
from pmeta.compiler.tiling import free_layouts, layouts, placed
from pmeta.method.learned import Meta
from pmeta.method.methods import Method
from pmeta.network.layers import Network, evaluating


class Arena:
    """The arena of one network under any set of updated layers.

    The network is read once, and a program is planned once for each set of layers: 4Conv takes
    0.2 s to read and 10 to 100 ms for a new set.

    >>> from pmeta.method.learned import init_meta
    >>> from pmeta.method.methods import METHODS
    >>> from pmeta.network.take_in import take_in
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> net, method = take_in(model, torch.zeros(1, 4)), METHODS["maml"]
    >>> meta = init_meta(net, method, 1, 0.01, torch.Generator().manual_seed(0))
    >>> arena = Arena(net, meta, method, (4,))
    >>> arena.bytes(torch.tensor([[True, True]])), arena.bytes(torch.tensor([[False, True]]))
    (252, 112)
    """

    def __init__(
        self,
        net: Network,
        meta: Meta,
        method: Method,
        input_shape: Sequence[int],
        *,
        input_type: str = "float32",
        batch: int | None = 1,
    ):
        shape = tuple(input_shape)
        self.layers = net.layers
        with evaluating(net.model):
            nodes = read_graph(net.model, torch.zeros(1, *shape))
        every = frozenset(layer.name for layer in net.layers)
        stored = store(net, meta, method, nodes, every)
        convert = input_type == "uint8" and any(-1 in n.inputs and n.kind != "conv" for n in nodes)
        shares = batch != 1
        model = Model(
            nodes, split(nodes), stored.address, stored.gammas, shape, shares, convert=convert
        )
        self._prototypes = frozenset({net.head.name} if meta.head else ())
        params = {node.name: node.params for node in nodes if node.name}
        weights = dict(net.model.named_parameters())
        self._weights = {
            name: sum(weights[w].numel() * 4 for w in own if w in weights)
            for name, own in params.items()
        }

        @cache
        def above_state(live: frozenset[str], budgeted: bool) -> list[int]:
            ways = layouts(model, live) if budgeted else free_layouts(model, live)
            return [placed(program(model, live, way)) for way in ways]

        self._above_state = above_state

    def bytes(self, updates: Tensor, memory_budget: int | None = None) -> int:
        """The arena of an adaptation that updates the layers of a mask (K, L) of alpha.

        What `pmeta.compiler.export.export` plans for the same mask; with a budget in bytes what
        the fastest plan needs that keeps to it, or the smallest plan where none does."""
        if updates.shape[-1] != len(self.layers):
            raise ValueError(
                f"a mask has a column for each of the {len(self.layers)} layers, got "
                f"{tuple(updates.shape)}."
            )
        rows = [
            frozenset(layer.name for layer, up in zip(self.layers, row, strict=True) if up)
            for row in updates.bool().reshape(-1, len(self.layers)).tolist()
        ]
        steps = [row.intersection(self._weights) for row in rows]
        steps.append(self._prototypes)
        ever = frozenset[str]().union(*steps)
        state = -(-sum(self._weights[name] for name in ever) // 16) * 16
        programs = {frozenset[str](), *steps}
        if memory_budget is None:
            return state + max(min(self._above_state(live, False)) for live in programs)
        ways = [self._above_state(live, True) for live in programs]
        room = memory_budget - state
        return state + max(next((n for n in own if n <= room), min(own)) for own in ways)
