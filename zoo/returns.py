"""The policies at the paper's own length, as in its Table 3: returns, costs and step sizes.

    python zoo/returns.py

Each run's best policy adapts to the same unseen tasks; differences to MAML++ are taken task by
task. Writes docs/results/cheetah.json, .md and the picture of p-Meta's step sizes; the curves are
those of benchmarks/rl_curves.py.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from table import MAML_PLUS, RESULTS, RUNS, arena, paired

from pmeta.method.methods import METHODS
from pmeta.paper import TABLE3
from pmeta.report.picture import save
from pmeta.report.steps import step_sizes
from pmeta.rl.config import RLConfig
from pmeta.rl.evaluate import summarise
from pmeta.rl.restore import each_task
from pmeta.training import workers
from pmeta.training.run_folder import Run, write_json
from pmeta.zoo.card_text import table

METHODS_SHOWN = (MAML_PLUS, "pmeta")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of paper-cheetah-*")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--workers", type=int, default=workers.default_workers())
    args = parser.parse_args()
    path = args.out / "cheetah.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for method in METHODS_SHOWN:
        run = args.runs / f"paper-cheetah-{method}"
        if (run / "best.safetensors").exists():
            known[method] = measured(run, args.tasks, args.workers, args.out)
            write_json(path, known)
    path.with_suffix(".md").write_text(text(known) + "\n")


def measured(run: Path, tasks: int, processes: int, out: Path) -> dict[str, Any]:
    """What the best policy of a run does on unseen tasks; the picture of its step sizes."""
    config, best, last = Run(run).settings(RLConfig), Run(run).best(), Run(run).load("last")
    names, results = workers.run(each_task, (str(run), tasks, 1, 0), processes)
    summary = summarise(results)
    print(f"{run.name}: {summary.after:.2f} ± {summary.after_ci95:.2f}", flush=True)
    if config.method_row().sparse_alpha:
        alpha = best.tensors["alpha"].tolist()
        save(step_sizes(alpha, names), out / f"cheetah-{config.method}-step-sizes.png")
    kept = ["tasks", "before", "after", "after_ci95", "first_half", "first_half_ci95"]
    kept += ["memory_mb", "exact_memory_mb", "gmac"]
    return {
        "trained": last.info["tasks"] // config.meta_batch if last else 0,
        "planned": config.epochs,
        "chosen_at": best.info["tasks"] // config.meta_batch,
        **{key: getattr(summary, key) for key in kept},
        **arena(run),
        "returns": [[r.before, r.after] for r in results],
    }


def is_finished(row: dict[str, Any]) -> bool:
    return row["trained"] >= row["planned"]


def text(known: dict[str, Any]) -> str:
    """The table."""
    head = ["", "epoch", "return before -> after one step", "gain of the step"]
    head += ["difference to MAML++", "after, first half of the steps"]
    head += ["memory, paper's accounting", "C engine", "GMACs", "the paper"]
    rows = []
    base = known.get(MAML_PLUS, {})
    for method in (method for method in METHODS_SHOWN if method in known):
        r = known[method]
        before, after = map(list, zip(*r["returns"], strict=True))
        is_comparable = (
            method != MAML_PLUS and base.get("tasks") == r["tasks"] and is_finished(base)
        )
        others = [of_base for _, of_base in base["returns"]] if is_comparable else []
        unfinished = "" if is_finished(r) else f", trained to {r['trained']} as yet"
        rows.append(
            [
                METHODS[method].title,
                f"{r['chosen_at']} of {r['planned']}{unfinished}",
                f"{r['before']:.1f} -> {r['after']:.1f} ± {r['after_ci95']:.1f}",
                paired(after, before),
                paired(after, others) if is_comparable else "",
                f"{r['first_half']:.1f} ± {r['first_half_ci95']:.1f}",
                f"{r['memory_mb']:.2f} MB",
                f"{r['arena_mb']:.2f} MB",
                f"{r['gmac']:.2f}",
                f"{TABLE3['cheetah-velocity'][method]}",
            ]
        )
    return table(head, rows)


if __name__ == "__main__":
    main()
