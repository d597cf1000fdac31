"""The 3x3 convs of 4Conv by C kernels and by PyTorch, and how far both are from float64.

python benchmarks/conv.py [--rounds 30]

Prints for each layer and number of images the least milliseconds of C and of PyTorch, measured in
turn: output, input gradient, weight gradient. Then the error of the three, norm of the difference
over norm.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import tyro
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta.fast import conv_c

LAYERS = {"conv1": (3, 84), "conv2": (32, 42), "conv3": (32, 21), "conv4": (32, 10)}
Pass = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From g(y), x and w."""


def _gradient(of: int) -> Pass:
    mask, pair = [of == 0, of == 1, False], [1, 1]

    def run(g: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return torch.ops.aten.convolution_backward(
            g, x, w, None, pair, pair, pair, False, [0, 0], 1, mask
        )[of]

    return run


PASSES: dict[str, tuple[Pass, Pass]] = {
    "output": (
        lambda g, x, w: conv_c.output(x, w),
        lambda g, x, w: torch.conv2d(x, w, padding=1),
    ),
    "input gradient": (lambda g, x, w: conv_c.input_gradient(g, w), _gradient(0)),
    "weight gradient": (lambda g, x, w: conv_c.weight_gradient(g, x, w), _gradient(1)),
}


def fastest(works: list[Callable[[], Tensor]], rounds: int) -> list[float]:
    """Least milliseconds of the processor of each, in turn."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for i, work in enumerate(works):
            start = time.process_time()
            work()
            best[i] = min(best[i], 1e3 * (time.process_time() - start))
    return best


def row(layer: str, batch: int, rounds: int) -> str:
    channels, size = LAYERS[layer]
    generator = torch.Generator().manual_seed(0)
    x, g = (torch.randn(batch, c, size, size, generator=generator) for c in (channels, 32))
    x, g = (t.contiguous(memory_format=torch.channels_last) for t in (x, g))
    w = torch.randn(32, channels, 3, 3, generator=generator)
    cells = []
    for name, pair in PASSES.items():
        if channels < 16 and name == "input gradient":
            cells.append("| not computed |")
            continue
        exact = pair[1](g.double(), x.double(), w.double())
        ours, theirs = fastest([partial(p, g, x, w) for p in pair], rounds)
        errors = [float((p(g, x, w) - exact).norm() / exact.norm()) for p in pair]
        cells.append(
            f"| {ours:.2f} / {theirs:.2f} = {ours / theirs:.2f} ({errors[0]:.0e}, {errors[1]:.0e}) "
            "|"
        )
    return f"| {layer} | {batch} " + "".join(cells).replace("||", "|")


def main(rounds: int = 30) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(f"| layer | images | {' | '.join(PASSES)} |\n|---|---|---|---|---|")
    for layer in LAYERS:
        for batch in (5, 15):
            print(row(layer, batch, rounds), flush=True)


if __name__ == "__main__":
    tyro.cli(main)
