"""RUN/graph.json: the operations of a live model, from which `pmeta export` builds it anew."""

from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch

from pmeta.base.files import read_json
from pmeta.compiler.read_model import Node, Shape, read_graph
from pmeta.compiler.rebuild import Rebuilt
from pmeta.data.tasks import SCALE, SHIFT
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from pmeta.training.run_folder import write_json

LARGEST = 2**28
"""Numbers of an output or a weight: the device has less than 1 GiB for all."""
MOST_CLASSES = 10_000
"""Of a head from prototypes, whose size stands nowhere else."""


@dataclass(frozen=True)
class Graph:
    """A model without its weights, and what the device reads."""

    sample: tuple[int, ...]
    pixels: bool
    loss: Annotated[str, msgspec.Meta(pattern="^(cross-entropy|mse|own)$")]
    nodes: list[Node]

    def network(self, known: dict[str, Shape]) -> Network:
        """The model anew, its weights zero; `known` are the shapes of those in the checkpoint.

        Raises an exception of any class where this is no graph that `read_graph` gave."""
        with torch.device("meta"):  # nothing is allocated before the sizes are known to be right
            model, x = Rebuilt(self.nodes, self.sample).eval(), torch.zeros(1, *self.sample)
            model(x)  # where it cannot run, torch.export would print a traceback
            read = read_graph(model, x)
        if [asdict(node) for node in read] != [asdict(node) for node in self.nodes]:
            raise ValueError("its operations do not fit together")
        shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
        self._check(shapes, known)
        zeros = {name: torch.zeros(shape) for name, shape in shapes.items()}
        model.load_state_dict(zeros, assign=True)
        return take_in(model, torch.zeros(1, *self.sample))

    def _check(self, shapes: dict[str, Shape], known: dict[str, Shape]) -> None:
        if self.pixels and len(self.sample) != 3:
            raise ValueError("pixels are those of a picture")
        if any(node.eps < 0 for node in self.nodes):
            raise ValueError("eps is below 0")
        every = [self.sample, *shapes.values(), *(node.shape for node in self.nodes)]
        if max(prod(shape) for shape in every) > LARGEST:
            raise ValueError(f"a tensor has more than {LARGEST:,} numbers")
        head = {n: shapes[n] for n in self.nodes[-1].params if shapes[n][0] <= MOST_CLASSES}
        if shapes != {**head, **known}:  # the best model has no head from prototypes
            raise ValueError("its weights are not those of the best model")


def normalisation(pixels: bool, channels: int) -> dict[str, Any]:
    """Scale and shift of raw pictures, as `open_split` and `pmeta adapt` have them."""
    return {"scale": [SCALE] * channels, "shift": [SHIFT] * channels} if pixels else {}


def keep(path: Path, graph: Graph | None) -> None:
    """Write graph.json in a run folder; None: there is none."""
    if graph:
        write_json(path / "graph.json", asdict(graph))
    else:
        (path / "graph.json").unlink(missing_ok=True)


def read(path: Path) -> Graph:
    """What `keep` wrote; ValueError for anything else."""
    return msgspec.convert(read_json(path.read_bytes()), Graph)
