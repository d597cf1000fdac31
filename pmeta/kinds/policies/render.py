"""Pictures of episodes before and after adaptation: paths, or velocity over time."""

from pathlib import Path
from typing import Any

import numpy as np

from pmeta.kinds.policies.cheetah import FRAME_SKIP
from pmeta.kinds.policies.outer import Batch

SHOWN, EPISODES = 6, 5
"""Tasks in a picture, and episodes of each."""
SUFFIXES = (".png", ".svg", ".pdf", ".jpg")


def check_path(path: str) -> None:
    """Refuse at once what could not be written after all tasks are done."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ValueError(f"--render names a picture ({', '.join(SUFFIXES)}), got {path!r}.")


def draw(env: str, data: Batch, path: str) -> None:
    """Write the picture of the first tasks of `data`."""
    from matplotlib.figure import Figure

    check_path(path)
    n = min(SHOWN, len(data.support))
    figure = Figure(figsize=(3 * min(n, 3), 3 * -(-n // 3)), layout="constrained")
    axes = np.atleast_1d(figure.subplots(-(-n // 3), min(n, 3), squeeze=False)).flatten()
    before, after = data.returns()
    for i, axis in enumerate(axes):
        if i >= n:
            axis.axis("off")
            continue
        (draw_paths if env == "navigation" else draw_velocities)(axis, data, i)
        axis.set_title(f"return {float(before[i]):.1f} → {float(after[i]):.1f}", fontsize=9)
    axes[0].legend(fontsize=7)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def draw_paths(axis: Any, data: Batch, i: int) -> None:
    """The first episodes of a navigation task."""
    for episodes, colour, label in (
        (data.before, "0.7", "before"),
        (data.after, "tab:blue", "after adaptation"),
    ):
        for e in range(min(EPISODES, episodes.obs.shape[1])):
            path = episodes.obs[i, e][episodes.mask[i, e].bool()]
            axis.plot(path[:, 0], path[:, 1], color=colour, lw=0.8, label=label if e == 0 else None)
    axis.plot(*data.tasks[i], "*", color="tab:red", ms=10, label="goal")
    axis.set_xlim(-0.8, 0.8)
    axis.set_ylim(-0.8, 0.8)
    axis.set_aspect("equal")


def draw_velocities(axis: Any, data: Batch, i: int) -> None:
    """Mean velocity of a Half-Cheetah task over time."""
    dt = FRAME_SKIP * 0.01
    for episodes, colour, label in (
        (data.before, "0.7", "before"),
        (data.after, "tab:blue", "after adaptation"),
    ):
        # of the torso's x
        velocity = np.diff(episodes.obs[i, :, :, 17].numpy(), axis=1).mean(axis=0) / dt
        axis.plot(dt * np.arange(1, len(velocity) + 1), velocity, color=colour, lw=1, label=label)
    axis.axhline(float(data.tasks[i, 0]), color="tab:red", ls="--", label="target")
    axis.set_xlabel("seconds", fontsize=8)
    axis.set_ylabel("m/s", fontsize=8)
