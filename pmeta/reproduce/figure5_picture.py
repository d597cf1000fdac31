"""The picture of figure 5: a row for each number of shots, a panel for each step."""

import json
import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmeta.base.files import write_atomically
from pmeta.report.picture import save
from pmeta.reproduce import evaluations, figure5
from pmeta.reproduce.cells import FIGURE5, TITLES
from pmeta.reproduce.queue import Options, run_folder
from pmeta.reproduce.results import FORMAT
from pmeta.training.run_folder import Run, plain

UPDATED, FROZEN, ALIKE = "#0072b2", "#bbbbbb", "#d55e00"


def collect(options: Options) -> dict[str, Any]:
    """What was measured, in the format that is written as JSON."""
    series = [_series(name, options) for name in FIGURE5]
    data = [dataset.title for dataset in options.datasets.values()]
    splits = {s["split"] for s in series if "split" in s}
    head = {"name": "figure5", "title": TITLES["figure5"], "scale": options.scale, "data": data[:1]}
    return {**FORMAT, **head, "split": " and ".join(sorted(splits)) or None, "series": series}


def _series(name: str, options: Options) -> dict[str, Any]:
    run, shots = run_folder(options.out, name, options.seeds[0]), 1 if "1shot" in name else 5
    for split in ("test", "val"):
        measured = evaluations.read(figure5.path_of(run, split), figure5.Measured)
        if measured:
            known = {"shots": shots, "run": f"runs/{run.name}", "tasks": Run(run).tasks_done()}
            return {**known, **measured, "missing": None}
    return {"shots": shots, "run": f"runs/{run.name}", "missing": "not run yet"}


def write(options: Options) -> None:
    """OUT/figure5.json, .svg and .png, if anything is new; no picture of nothing."""
    measured, path = collect(options), options.out / "figure5.json"
    text = json.dumps(plain(measured), indent=2) + "\n"
    if path.exists() and path.read_text() == text:
        return
    if any(not s["missing"] for s in measured["series"]):
        picture = draw(measured)
        for kind in ("svg", "png"):
            save(picture, path.with_suffix(f".{kind}"))
    write_atomically(path, text.encode())


def draw(measured: dict[str, Any]) -> Figure:
    """Bars are means over tasks (left) and pairs of samples (right), whiskers one deviation."""
    series = [s for s in measured["series"] if not s["missing"]]
    steps = max(len(s["ratios"]) for s in series)
    width = 2.05 * (steps + 1) + 0.4
    figure = Figure(figsize=(width, 2.35 * len(series) + 0.9), layout="constrained")
    grid = figure.subplots(len(series), steps + 1, squeeze=False, sharey=True)
    for axes, s in zip(grid, series, strict=True):
        for k, ax in enumerate(axes[:-1]):
            _panel(ax, s["layers"], s["ratios"][k], s["ratios_std"][k], s["updated"][k], UPDATED)
            ax.set_title(f"step {k + 1}", fontsize=9)
        _panel(axes[-1], s["layers"], s["cosine"], s["cosine_std"], s["updated"][0], ALIKE)
        axes[-1].set_title("similarity of scores, step 1", fontsize=9)
        axes[0].set_ylabel(f"5-way {s['shots']}-shot\nshare of weights updated", fontsize=9)
    for ax in grid[:-1].flat:
        ax.tick_params(labelbottom=False)
    lines = [
        line
        for part in _caption(measured, series)
        for line in textwrap.wrap(part, round(14 * width))
    ]
    figure.suptitle("\n".join(lines), fontsize=8.5, x=0.01, ha="left")
    return figure


def _panel(
    ax: Axes,
    layers: list[str],
    mean: list[float],
    std: list[float],
    updated: list[bool],
    color: str,
) -> None:
    """A bar for each layer; if not updated, none at the left, grey at the right."""
    low = [min(s, m) for m, s in zip(mean, std, strict=True)]
    high = [min(s, 1 - m) for m, s in zip(mean, std, strict=True)]
    colors = [color if alive else FROZEN for alive in updated]
    ax.bar(layers, mean, color=colors, width=0.75)
    ax.errorbar(layers, mean, [low, high], fmt="none", ecolor="black", elinewidth=0.9, capsize=2)
    for x, (m, alive) in enumerate(zip(mean, updated, strict=True)):
        if not alive and m == 0:
            ax.text(x, 0.02, "0", ha="center", color="0.55", fontsize=7)
    ax.set_ylim(0, 1.02)
    ax.set_xticks(range(len(layers)), layers, rotation=90, fontsize=8)
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _caption(measured: dict[str, Any], series: list[dict[str, Any]]) -> tuple[str, str]:
    s = series[0]
    return (
        "Left: share of each layer's weights that a step updates, "
        f"mean ± std over {s['eval_tasks']} unseen tasks "
        f"({', '.join(measured['data'])}, {measured['split']}); 0: its step size is zero.",
        "Right: cosine similarity of the scores of two random samples, "
        f"mean ± std over {s['pairs']} pairs; "
        "grey: not updated at step 1; fc has no attention.",
    )
