"""Where the return of 2D navigation is lost: by the distance of the goal from the start.

    python zoo/goals.py

Reads docs/results/navigation.json, which `python zoo/returns.py navigation` writes, and draws the
goals of its tasks again; each figure is a mean over the seeds that all methods have finished.
"""

import json
from itertools import pairwise

import numpy as np
from returns import METHODS_SHOWN, RESULTS, RUNS, finished_seeds, run_of

from pmeta.kinds.policies.best import restore
from pmeta.kinds.policies.train import TEST
from pmeta.method.methods import METHODS

BOUNDS = (0.0, 0.2, 0.4, 0.5, 0.71)
"""Of the distances that share a row; the goals lie in a square of half width 0.5."""


def main() -> None:
    known = json.loads((RESULTS / "navigation.json").read_text())
    methods, seeds = METHODS_SHOWN["navigation"], finished_seeds("navigation", known)
    runs = {m: [known[run_of("navigation", m, seed)] for seed in seeds] for m in methods}
    tasks = runs[methods[0]][0]["tasks"]
    _, env, _, _ = restore(str(RUNS / run_of("navigation", methods[0], seeds[0])))
    seeded = (np.random.SeedSequence(0, spawn_key=(TEST, 0, i)) for i in range(tasks))
    goals = np.concatenate([env.sample_tasks(1, np.random.default_rng(s)) for s in seeded])
    far = np.hypot(*goals.T)
    print("| distance of the goal | tasks | before |", *(f"{METHODS[m].title} |" for m in methods))
    print("|---" * (3 + len(methods)) + "|")
    for low, high in [*pairwise(BOUNDS), (BOUNDS[0], BOUNDS[-1])]:
        row = (low <= far) & (far < high)
        returns = {m: np.array([r["returns"] for r in runs[m]])[:, row] for m in methods}
        before = np.mean([each[..., 0].mean() for each in returns.values()])
        after = " | ".join(f"{returns[m][..., 1].mean():.1f}" for m in methods)
        print(f"| {low:g} to {high:g} | {row.sum()} | {before:.1f} | {after} |")


if __name__ == "__main__":
    main()
