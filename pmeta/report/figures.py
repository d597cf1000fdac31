"""Pictures of results: accuracy against memory, learning curves, step sizes over layers and steps (Fig. 5)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from pmeta.method.methods import METHODS
from pmeta.report.palette import COLORS
from pmeta.report.read import read_run


def run_pictures(path: Path) -> None:
    """The learning curve, and the step sizes of the best model, as pictures in the run folder."""
    run = read_run(path, [])
    learning_curves([(run.row.title, run.metrics)], path / "curve.png")
    if run.best and run.chosen:
        step_sizes(run.chosen["alpha"], run.layers, path / "step_sizes.png")


def accuracy_against_memory(results: Sequence[dict[str, Any]], path: Path) -> None:
    """One point with its CI95 for each method: up and left is better."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for r in results:
        color = COLORS[r["method"]]
        axes.errorbar(
            1000 * r["memory_mb"],
            r["accuracy"],
            r["ci95"],
            fmt="o",
            ms=8,
            capsize=3,
            color=color,
            label=METHODS[r["method"]].title,
        )
    axes.set(xlabel="peak memory of adaptation (kB)", ylabel="accuracy on unseen tasks (%)")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)


def learning_curves(runs: Sequence[tuple[str, Sequence[dict[str, Any]]]], path: Path) -> None:
    """Validation accuracy with CI95 over tasks, for runs given as (label, metrics); titles of methods have their colours."""
    colors = {METHODS[name].title: color for name, color in COLORS.items()}
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for label, metrics in runs:
        tasks, accuracy, ci95 = (
            [m[key] or 0.0 for m in metrics] for key in ("tasks", "val_accuracy", "val_ci95")
        )
        (line,) = axes.plot(tasks, accuracy, marker=".", label=label, color=colors.get(label))
        low, high = (
            [a + sign * c for a, c in zip(accuracy, ci95, strict=True)] for sign in (-1, 1)
        )
        axes.fill_between(tasks, low, high, alpha=0.15, color=line.get_color())
    axes.set(xlabel="tasks trained on", ylabel="validation accuracy (%)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)


def step_sizes(alpha: Sequence[Sequence[float]], layers: Sequence[str], path: Path) -> None:
    """alpha_l^k as a heat map, steps down and layers across; a step size of zero is left white."""
    figure = Figure(
        figsize=(0.62 * len(layers) + 1.6, 0.42 * len(alpha) + 1.4), layout="constrained"
    )
    axes = figure.add_subplot()
    masked = [[value if value > 0 else float("nan") for value in row] for row in alpha]
    image = axes.imshow(masked, cmap="viridis", vmin=0, aspect="auto")
    axes.set_xticks(range(len(layers)), layers, rotation=45, ha="right")
    axes.set_yticks(range(len(alpha)), [f"step {k + 1}" for k in range(len(alpha))])
    figure.colorbar(image, ax=axes, label="step size α")
    for k, row in enumerate(alpha):
        for l, value in enumerate(row):
            text = f"{value:.3f}".lstrip("0") if value > 0 else "0"
            axes.text(
                l,
                k,
                text,
                ha="center",
                va="center",
                fontsize=7,
                color="0.6" if value <= 0 else "white",
            )
    figure.savefig(path, dpi=150)
