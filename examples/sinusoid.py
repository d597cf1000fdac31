"""Few-shot regression of sine waves (Finn et al. 2017, Sec. 5.1), in the cloud and on the device.

A task is a sine wave of its own amplitude and phase; ten of its points are the support set.
"""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

import pmeta
from pmeta import device


def task(i: int, points: int = 10) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Wave i: amplitude in [0.1, 5], phase in [0, pi], points in [-5, 5]."""
    random = torch.Generator().manual_seed(i)
    amplitude = 0.1 + 4.9 * torch.rand(1, generator=random)
    phase = math.pi * torch.rand(1, generator=random)
    x = 10 * torch.rand(2 * points, 1, generator=random) - 5  # (2 points, 1)
    y = amplitude * torch.sin(x - phase)
    return x[:points], y[:points], x[points:], y[points:]


def main(out: Path = Path("runs/sinusoid"), tasks: int = 20_000) -> tuple[float, float]:
    """Meta-train, export, adapt on the device; the loss of new waves before and after."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1)
    )
    learner = pmeta.Learner(
        model, torch.zeros(1, 1), inner_steps=5, loss="mse", memory_budget="50%"
    )
    unseen = [task(10**6 + i) for i in range(20)]
    learner.fit(task, unseen, out / "run", n_tasks=tasks, epoch_tasks=max(1, tasks // 10))
    learner.export(out / "sinusoid.pmeta")
    print(learner.cost(samples=10))

    engine, before, after = device.load(out / "sinusoid.pmeta"), 0.0, 0.0
    for x, y, query_x, query_y in unseen:
        engine.reset()
        before += float(((engine.scores(query_x.numpy()) - query_y.numpy()) ** 2).mean())
        engine.adapt_values(x.numpy(), y.numpy())
        after += float(((engine.scores(query_x.numpy()) - query_y.numpy()) ** 2).mean())
    before, after = before / len(unseen), after / len(unseen)
    print(f"squared error on new waves: {before:.2f} before, {after:.2f} after ten points")
    return before, after


if __name__ == "__main__":
    main()
