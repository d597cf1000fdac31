"""Group norm pooled first, three ways: PyTorch's operations, torch.compile, C kernels.

    python benchmarks/norm_pool.py

The passes of 4Conv's first block on five images: 32 channels, 84x84, channels last, one thread.
Milliseconds, the best of 20.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta.fast import norm_pool_c, norm_pool_torch

BATCH, CHANNELS, SIZE, GROUPS, EPS = 5, 32, 84, 8, 1e-5


def forward(x: Tensor, groups: int, eps: float) -> tuple[Tensor, ...]:
    """As norm_pool_torch.forward with rising weights, without operations that a compiler cannot
    look into."""
    height, width = x.shape[2:]
    rows = x.permute(0, 2, 3, 1).reshape(len(x), height * width, -1)
    mean_c, squares = rows.mean(1), (rows * rows).mean(1)
    mean = over_group(mean_c, groups)
    r = ((over_group(squares, groups) - mean * mean).clamp(min=0) + eps).rsqrt()
    best = x[:, :, 0 : height - 1 : 2, 0 : width - 1 : 2]
    place = torch.zeros_like(best, dtype=torch.uint8)
    for k in (1, 2, 3):
        other = x[:, :, k // 2 : height - 1 + k // 2 : 2, k % 2 : width - 1 + k % 2 : 2]
        larger = other > best
        place, best = (
            torch.where(larger, k, place).to(torch.uint8),
            torch.where(larger, other, best),
        )
    return (best - at(mean)) * at(r), (mean_c - mean) * r, place, mean, r


def backward(
    g: Tensor, x: Tensor, x_hat: Tensor, place: Tensor, mean: Tensor, r: Tensor, groups: int
) -> Tensor:
    """As norm_pool_torch.backward for even sizes, likewise."""
    n = x.shape[2] * x.shape[3]
    m, a = over_group(g.sum((2, 3)), groups) / n, over_group((g * x_hat).sum((2, 3)), groups) / n
    of_x = -a * r * r
    here = (torch.arange(x.shape[2]) % 2 * 2)[:, None] + torch.arange(x.shape[3]) % 2
    there = wide(place) == here
    return at(of_x) * x + at(-m * r - of_x * mean) + torch.where(there, wide(g * at(r)), 0.0)


def over_group(t: Tensor, groups: int) -> Tensor:
    b, c = t.shape
    return t.view(b, groups, -1).mean(-1, keepdim=True).expand(b, groups, c // groups).reshape(b, c)


def at(t: Tensor) -> Tensor:
    return t[:, :, None, None]


def wide(t: Tensor) -> Tensor:
    return t.repeat_interleave(2, 2).repeat_interleave(2, 3)


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
        g_x, m, a = module.backward(normed, g)
        first = milliseconds(module.forward, x, weight, GROUPS, EPS)
        second = milliseconds(module.backward, normed, g)
        third = milliseconds(module.twice, normed, g, m, a, u)
        print(f"| {name} | {first:.2f} | {second:.2f} | {third:.2f} |", flush=True)
    start = time.perf_counter()
    one, two = torch.compile(forward, dynamic=False), torch.compile(backward, dynamic=False)
    torch.testing.assert_close(one(x, GROUPS, EPS)[0], x_hat, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(two(g, x, x_hat, place, mean, r, GROUPS), g_x, rtol=1e-4, atol=1e-4)
    seconds = time.perf_counter() - start
    first, second = (
        milliseconds(one, x, GROUPS, EPS),
        milliseconds(two, g, x, x_hat, place, mean, r, GROUPS),
    )
    print(
        f"| torch.compile, after {seconds:.0f} s of compiling | {first:.2f} | {second:.2f} | not "
        "written |"
    )


if __name__ == "__main__":
    main()
