"""Whether the fast path learns like the plain one: query loss and accuracy of meta-training on glyphs in float32, by seed.

    python benchmarks/learning_curves.py

Both see the same tasks from the same start. In float64 their gradients agree to ten digits (tests/test_pool_first.py); in
float32 they part in the last digit, and training makes that grow: what must agree is the curve, not the digits.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta.backbones import FourConv, initialise
from pmeta.images import ImageSet, open_split, sample_task
from pmeta.inner import InnerLoop
from pmeta.meta import init_meta
from pmeta.methods import METHODS
from pmeta.outer import Outer, Schedule, meta_gradient
from pmeta.take_in import take_in

SEEDS, UPDATES, TASKS, SHOWN = 3, 75, 4, 15


def curve(images: ImageSet, seed: int, pool_first: bool) -> list[tuple[float, float]]:
    """Mean query loss and accuracy over each SHOWN updates."""
    generator = torch.Generator().manual_seed(seed)
    net = take_in(initialise(FourConv(5, images.shape, channels=16, groups=4), generator), torch.zeros(1, *images.shape))
    loop = InnerLoop(net, METHODS["pmeta"], second_order=True, pool_first=pool_first)
    outer = Outer(loop, init_meta(net, loop.method, 5, 0.05, generator), Schedule(UPDATES, lr=3e-3))
    found = []
    for i in range(UPDATES):
        tasks = (sample_task(images, seed, i * TASKS + j, 5, 1, 15) for j in range(TASKS))
        g = meta_gradient(loop, outer.meta, tasks)
        outer.update(g)
        found.append((g.loss / g.tasks, 100 * g.correct / g.tasks))
    parts = [found[i : i + SHOWN] for i in range(0, UPDATES, SHOWN)]
    return [(sum(l for l, _ in p) / SHOWN, sum(a for _, a in p) / SHOWN) for p in parts]


def main() -> None:
    torch.set_num_threads(1)
    images = open_split("glyphs", "train")
    ends = [str((i + 1) * SHOWN) for i in range(UPDATES // SHOWN)]
    print(f"| seed | path | {' | '.join(ends)} |\n|---|---|{'---|' * len(ends)}")
    for seed in range(SEEDS):
        for name, pool_first in (("fast", True), ("plain", False)):
            row = " | ".join(f"{loss:.3f} ({accuracy:.1f} %)" for loss, accuracy in curve(images, seed, pool_first))
            print(f"| {seed} | {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
