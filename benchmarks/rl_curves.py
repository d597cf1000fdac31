"""Returns over the meta epochs of runs of reinforcement learning, as a picture.

    python benchmarks/rl_curves.py runs/navigation-* -o docs/results/navigation.png

Left: the mean over the tasks trained on since the last validation, before (dotted) and after
adaptation. Right: the validation tasks, after adaptation, with CI95.
"""

import argparse
import json
import sys
from pathlib import Path

from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta.method.methods import METHODS
from pmeta.report.picture import COLORS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for run in args.runs:
        method = json.loads((run / "config.json").read_text())["method"]
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        epochs, before, after, val, ci95 = (
            [r[key] for r in records]
            for key in ("epoch", "before", "after", "val_after", "val_ci95")
        )
        color, label = COLORS[method], METHODS[method].title
        left.plot(epochs, before, ":", color=color)
        left.plot(epochs, after, color=color, label=label)
        right.plot(epochs, val, color=color, label=label)
        low, high = ([v + sign * c for v, c in zip(val, ci95, strict=True)] for sign in (-1, 1))
        right.fill_between(epochs, low, high, color=color, alpha=0.15)
    left.set(title="tasks trained on: before (dotted), after adaptation", ylabel="return")
    right.set(title="validation tasks, after adaptation, CI95")
    right.legend(fontsize=8)
    for axes in (left, right):
        axes.set(xlabel="meta epochs")
        axes.grid(alpha=0.3)
    figure.savefig(args.out, dpi=130)


if __name__ == "__main__":
    main()
