"""The policies at the paper's own length, as in its Table 3: returns, costs and step sizes.

    python zoo/returns.py cheetah
    python zoo/returns.py navigation

Each run's best policy adapts to the same unseen tasks; differences to MAML++ are taken task by
task, within a seed and, where there are several, with each task's mean over them. Writes
docs/results/cheetah.json, .md and, of seed 0, the picture of p-Meta's step sizes, or
navigation.json and so on. A run whose best policy is the same as in that file is not measured
again.
"""

import argparse
import hashlib
import json
import statistics
from pathlib import Path
from typing import Any

from table import MAML_PLUS, RESULTS, RUNS, arena, paired

from pmeta.kinds import policies
from pmeta.kinds.policies.config import RLConfig
from pmeta.kinds.policies.evaluate import TaskReturn, summarise
from pmeta.method.methods import METHODS
from pmeta.paper import TABLE3
from pmeta.report.picture import save
from pmeta.report.steps import step_sizes
from pmeta.training import workers
from pmeta.training.restored import Asked, all_results
from pmeta.training.run_folder import Run, write_json
from pmeta.training.workers import Group
from pmeta.zoo.card_text import table

METHODS_SHOWN = {
    "cheetah": (MAML_PLUS, "pmeta"),
    "navigation": ("maml", MAML_PLUS, "pmeta-lr", "pmeta"),
}
IN_PAPER = {"cheetah": "cheetah-velocity", "navigation": "navigation"}
SEEDS = range(5)
"""Of which there may be runs."""
WORST = 0.02
"""The share of the tasks that a second mean leaves out."""


def run_of(task: str, method: str, seed: int) -> str:
    """The name of a run's folder, as zoo/paper.sh gives it."""
    return f"paper-{task}-{method}" + (f"-seed{seed}" if seed else "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=METHODS_SHOWN)
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of paper-TASK-METHOD")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--workers", type=int, default=workers.default_workers())
    args = parser.parse_args()
    path = args.out / f"{args.task}.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name in (run_of(args.task, m, s) for m in METHODS_SHOWN[args.task] for s in SEEDS):
        if (args.runs / name / "best.safetensors").exists():
            known[name] = measured(args, name, known.get(name, {}))
            write_json(path, known)
    tables = [by_run(args.task, known), by_method(args.task, known)]
    path.with_suffix(".md").write_text("\n\n".join(filter(None, tables)) + "\n")


def each_task(group: Group, asked: Asked) -> tuple[list[str], list[TaskReturn]]:
    """The names of the layers, and what each task gives, in order."""
    restored = policies.restore(group, asked)
    results = all_results(group, restored.unseen(group), "adapting")
    return [layer.name for layer in restored.net.layers], results


def measured(args: argparse.Namespace, name: str, known: dict[str, Any]) -> dict[str, Any]:
    """What the best policy of a run does on unseen tasks, and the picture of its step sizes; what
    is known of it where it is the same policy."""
    run = args.runs / name
    config, best, last = Run(run).settings(RLConfig), Run(run).best(), Run(run).load("last")
    trained = {
        "trained": last.info["tasks"] // config.meta_batch if last else 0,
        "planned": config.epochs,
        "chosen_at": best.info["tasks"] // config.meta_batch,
    }
    sha256 = hashlib.sha256((run / "best.safetensors").read_bytes()).hexdigest()
    if (known.get("sha256"), known.get("tasks")) == (sha256, args.tasks):
        return {**known, **trained}
    asked = Asked(str(run), tasks=args.tasks, seed=0)
    names, results = workers.run(each_task, (asked,), args.workers)
    summary = summarise(results)
    print(f"{name}: {summary.after:.2f} ± {summary.after_ci95:.2f}", flush=True)
    if config.method_row().sparse_alpha and not config.seed:
        alpha = best.tensors["alpha"].tolist()
        picture = name.removeprefix("paper-") + "-step-sizes.png"
        save(step_sizes(alpha, names), args.out / picture)
    kept = ["tasks", "before", "after", "after_ci95", "after_median"]
    kept += ["first_half", "first_half_ci95", "memory_mb", "exact_memory_mb", "gmac"]
    return {
        "sha256": sha256,
        **trained,
        **{key: getattr(summary, key) for key in kept},
        **arena(run),
        "returns": [[r.before, r.after] for r in results],
    }


def is_finished(row: dict[str, Any]) -> bool:
    return bool(row) and row["trained"] >= row["planned"]


def after(row: dict[str, Any]) -> list[float]:
    """The return of each task after adaptation."""
    return [after for _, after in row["returns"]]


def by_run(task: str, known: dict[str, Any]) -> str:
    """The table with a row for each run."""
    head = ["", "seed", "epoch", "return before -> after one step", "gain of the step"]
    head += ["difference to MAML++", "median", "after, first half of the steps"]
    head += ["memory, paper's accounting", "C engine", "GMACs", "the paper"]
    rows = []
    for method, seed in ((m, s) for m in METHODS_SHOWN[task] for s in SEEDS):
        r = known.get(run_of(task, method, seed))
        if r is None:
            continue
        base = known.get(run_of(task, MAML_PLUS, seed), {})
        is_comparable = method != MAML_PLUS and is_finished(base) and base["tasks"] == r["tasks"]
        unfinished = "" if is_finished(r) else f", trained to {r['trained']} as yet"
        rows.append(
            [
                METHODS[method].title,
                f"{seed}",
                f"{r['chosen_at']} of {r['planned']}{unfinished}",
                f"{r['before']:.1f} -> {r['after']:.1f} ± {r['after_ci95']:.1f}",
                paired(after(r), [before for before, _ in r["returns"]]),
                paired(after(r), after(base)) if is_comparable else "",
                f"{r['after_median']:.1f}",
                f"{r['first_half']:.1f} ± {r['first_half_ci95']:.1f}",
                f"{r['memory_mb']:.2f} MB",
                f"{r['arena_mb']:.2f} MB",
                f"{r['gmac']:.2f}",
                f"{TABLE3[IN_PAPER[task]][method]}",
            ]
        )
    return table(head, rows)


def finished_seeds(task: str, known: dict[str, Any]) -> list[int]:
    """The seeds that every method has finished."""

    def is_whole(seed: int) -> bool:
        runs = [known.get(run_of(task, method, seed), {}) for method in METHODS_SHOWN[task]]
        return all(map(is_finished, runs))

    return [seed for seed in SEEDS if is_whole(seed)]


def without_worst(returns: list[float]) -> float:
    """The mean of the tasks without the worst of them: a few that go astray lead a mean."""
    return statistics.mean(sorted(returns)[round(WORST * len(returns)) :])


def by_method(task: str, known: dict[str, Any]) -> str:
    """The table with the mean over the seeds that every method has finished; none for one seed."""
    seeds = finished_seeds(task, known)
    if len(seeds) < 2:
        return ""
    of = {m: [known[run_of(task, m, seed)] for seed in seeds] for m in METHODS_SHOWN[task]}
    means = {m: [statistics.mean(t) for t in zip(*map(after, of[m]), strict=True)] for m in of}
    head = ["", *(f"seed {seed}" for seed in seeds), "mean", "deviation between seeds"]
    head += ["difference to MAML++, CI95 over tasks", "to MAML++, seed by seed"]
    head += [f"without the worst {100 * WORST:g} % of the tasks", "median", "the paper"]
    rows = []
    for m, runs in of.items():
        returns = [r["after"] for r in runs]
        apart = [f"{a - r['after']:+.1f}" for a, r in zip(returns, of[MAML_PLUS], strict=True)]
        is_base = m == MAML_PLUS
        rows.append(
            [
                METHODS[m].title,
                *(f"{a:.1f}" for a in returns),
                f"{statistics.mean(returns):.1f}",
                f"{statistics.stdev(returns):.1f}",
                "" if is_base else paired(means[m], means[MAML_PLUS]),
                "" if is_base else ", ".join(apart),
                f"{statistics.mean(without_worst(after(r)) for r in runs):.1f}",
                f"{statistics.mean(r['after_median'] for r in runs):.1f}",
                f"{TABLE3[IN_PAPER[task]][m]}",
            ]
        )
    return table(head, rows)


if __name__ == "__main__":
    main()
