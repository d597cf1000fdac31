"""Whether the fast path learns like the plain one: meta-training on glyphs, by seed.

    python benchmarks/learning_curves.py

The fast path has the C kernels of convs and pooled norms, the plain one PyTorch's operations. All
see the same tasks from the same start. In float64 their gradients agree to ten digits
(tests/fast/test_pool_first.py). In float32 they part in the last digit, and after some updates a
ReLU or a clipped channel flips and the runs go their own ways. So a third run shows how far that
goes by itself: the plain path from weights that are moved by one part in a million.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta.data.tasks import ImageSet, open_split, sample_task
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import init_meta
from pmeta.method.methods import METHODS
from pmeta.method.outer import Outer, Schedule
from pmeta.network.backbones import FourConv, initialise
from pmeta.network.take_in import take_in

SEEDS, UPDATES, TASKS, SHOWN = 4, 60, 4, 15
PATHS = {"fast": (True, 0.0), "plain": (False, 0.0), "plain, moved": (False, 1e-6)}


def curve(images: ImageSet, seed: int, pool_first: bool, moved: float) -> list[tuple[float, float]]:
    """Mean query loss and accuracy over each SHOWN updates."""
    generator = torch.Generator().manual_seed(seed)
    net = take_in(
        initialise(FourConv(5, images.shape, channels=32), generator), torch.zeros(1, *images.shape)
    )
    loop = InnerLoop(net, METHODS["pmeta"], second_order=True, pool_first=pool_first)
    meta = init_meta(net, loop.method, 5, 0.05, generator).map(
        lambda t: t * (1 + moved * torch.rand(t.shape, generator=generator))
    )
    outer = Outer(loop, meta, Schedule(UPDATES, lr=3e-3))
    found = []
    for i in range(UPDATES):
        tasks = (sample_task(images, seed, i * TASKS + j, 5, 1, 15) for j in range(TASKS))
        g = outer.gradient(tasks)
        outer.update(g)
        found.append((g.loss / g.tasks, 100 * g.correct / g.tasks))
    parts = [found[i : i + SHOWN] for i in range(0, UPDATES, SHOWN)]
    return [(sum(l for l, _ in p) / SHOWN, sum(a for _, a in p) / SHOWN) for p in parts]


def main() -> None:
    torch.set_num_threads(1)
    images = open_split("glyphs", "train")
    ends = [str((i + 1) * SHOWN) for i in range(UPDATES // SHOWN)]
    print(f"| seed | path | {' | '.join(ends)} |\n|---|---|{'---|' * len(ends)}")
    found: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in PATHS}
    for seed in range(SEEDS):
        for name, path in PATHS.items():
            found[name].append(curve(images, seed, *path))
            print(f"| {seed} | {name} | {row(found[name][-1])} |", flush=True)
    for name, curves in found.items():
        means = [
            (sum(l for l, _ in at) / SEEDS, sum(a for _, a in at) / SEEDS)
            for at in zip(*curves, strict=True)
        ]
        print(f"| all | {name} | {row(means)} |")


def row(curve: list[tuple[float, float]]) -> str:
    return " | ".join(f"{loss:.3f} ({accuracy:.1f} %)" for loss, accuracy in curve)


if __name__ == "__main__":
    main()
