"""Group norm pooled first, by PyTorch's operations and by C kernels.

    python benchmarks/norm_pool.py

The passes of 4Conv's first block on five images: 32 channels, 84x84, channels last, one thread.
Milliseconds, the best of 20.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta.fast import norm_pool_c, norm_pool_torch

BATCH, CHANNELS, SIZE, GROUPS, EPS = 5, 32, 84, 8, 1e-5


def milliseconds(f: Callable[..., object], *arguments: object) -> float:
    f(*arguments)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        f(*arguments)
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def main() -> None:
    torch.set_num_threads(1)
    x = torch.randn(BATCH, CHANNELS, SIZE, SIZE).contiguous(memory_format=torch.channels_last)
    weight, u = torch.ones(CHANNELS), torch.randn_like(x)
    g = torch.randn(BATCH, CHANNELS, SIZE // 2, SIZE // 2).contiguous(
        memory_format=torch.channels_last
    )
    print("| path | forward | backward | second backward |\n|---|---|---|---|")
    for name, module in (
        ("PyTorch's operations", norm_pool_torch),
        ("C kernels", norm_pool_c),
    ):
        x_hat, _, place, mean, r = module.forward(x, weight, GROUPS, EPS)
        normed = norm_pool_torch.Normed(x, x_hat, place, mean, r, GROUPS)
        _, m, a = module.backward(normed, g)
        first = milliseconds(module.forward, x, weight, GROUPS, EPS)
        second = milliseconds(module.backward, normed, g)
        third = milliseconds(module.twice, normed, g, m, a, u)
        print(f"| {name} | {first:.2f} | {second:.2f} | {third:.2f} |", flush=True)


if __name__ == "__main__":
    main()
