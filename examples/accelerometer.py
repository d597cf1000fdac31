"""Gestures from an accelerometer: windows of three axes, a 1-D network, a file for the device.

The gestures are made up: each is a wave of its own on every axis, shaken and noisy. Put windows of
your own in the place of `window`.
"""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

import pmeta
from pmeta import device

AXES, LENGTH, GESTURES, SHOTS = 3, 64, 4, 5


def window(gesture: int, random: torch.Generator) -> Tensor:
    """One recording of a gesture. (AXES, LENGTH)"""
    own = torch.Generator().manual_seed(gesture)
    rate, phase, size = torch.rand(3, AXES, 1, generator=own)
    start, noise = torch.rand(1, generator=random), torch.randn(AXES, LENGTH, generator=random)
    t = torch.arange(LENGTH) / LENGTH + 0.2 * start
    wave = (0.5 + size) * torch.sin(2 * math.pi * ((1 + 5 * rate) * t + phase))
    return wave + 0.3 * noise


def task(i: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four gestures that no other task has, five windows of each to learn from and to test."""
    random = torch.Generator().manual_seed(i)
    y = torch.arange(GESTURES).repeat_interleave(SHOTS)
    x, query = (
        torch.stack([window(GESTURES * i + int(label), random) for label in y]) for _ in range(2)
    )
    return x, y, query, y


def main(out: Path = Path("runs/accelerometer"), tasks: int = 2000) -> float:
    """Meta-train, export, adapt on the device; the accuracy there on gestures never seen before."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv1d(AXES, 16, 5, stride=2), nn.GroupNorm(4, 16), nn.ReLU()),
        *(nn.Conv1d(16, 32, 5, stride=2), nn.GroupNorm(4, 32), nn.ReLU()),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, GESTURES)),
    )
    example = torch.zeros(1, AXES, LENGTH)
    learner = pmeta.Learner(model, example, inner_steps=3, alpha_0=0.3, memory_budget="50%")
    unseen = [task(10**5 + i) for i in range(20)]
    epoch, rates = max(1, tasks // 5), {"lr": 3e-3, "alpha_lr": 1e-2}
    learner.fit(task, unseen, out / "run", n_tasks=tasks, epoch_tasks=epoch, **rates)
    learner.export(out / "gestures.pmeta")
    print(learner.cost(samples=GESTURES * SHOTS))

    engine, hits = device.load(out / "gestures.pmeta"), 0.0
    for x, y, query_x, query_y in unseen:
        engine.adapt(x.numpy(), y.numpy())
        hits += float((engine.predict(query_x.numpy()).labels == query_y.numpy()).mean())
    print(f"{hits / len(unseen):.0%} of the windows of new gestures are recognised on the device")
    return hits / len(unseen)


if __name__ == "__main__":
    main()
