"""Step sizes over layers and steps as they evolved (Eq. 6), and the share of each layer's weights that is updated (Fig. 5)."""

from collections.abc import Callable, Sequence
from typing import Any

from pmeta.cost.bound import max_mu_fw
from pmeta.cost.ops import Op, channels
from pmeta.report.html import Markup, data, el
from pmeta.report.plot import WIDTH, rect, svg, text
from pmeta.report.run import RunRecord

Matrix = Sequence[Sequence[float]]  # (K, L)
MOMENTS = 8
"""How many stages of the training stand side by side."""


def heat_map(
    matrix: Matrix, layers: Sequence[str], largest: float, show: Callable[[float], str], title: str
) -> Markup:
    """Layers down, steps across; the more colour the larger, and no colour at zero."""
    left = 8 + 6.2 * max(map(len, layers))
    width, height = min(68.0, (WIDTH - left - 2) / len(matrix)), 18.0 if len(layers) <= 12 else 14.0
    parts = [
        text(left + (k + 0.5) * width, 11, str(k + 1), "middle", "tick") for k in range(len(matrix))
    ]
    parts.append(text(left - 6, 11, "step", "end", "label"))
    for l, name in enumerate(layers):
        y = 18 + l * height
        parts.append(text(left - 6, y + height / 2 + 3.5, name, "end", "tick"))
        for k, row in enumerate(matrix):
            strength = _strength(row[l], largest)
            kind = "heat" if row[l] > 0 else "heat zero"
            tip = f"{title} of {name} at step {k + 1}: {row[l]:.4g}"
            place = (left + k * width + 1, y + 1, width - 2, height - 2)
            parts.append(rect(*place, tip, fill_opacity=strength, class_=kind, data_kl=f"{k},{l}"))
            ink = "on" if strength > 0.5 else "value"
            parts.append(
                text(left + (k + 0.5) * width, y + height / 2 + 3.5, show(row[l]), "middle", ink)
            )
    return svg(parts, 20 + height * len(layers), title)


def _strength(value: float, largest: float) -> float:
    """Opacity: by the square root, so that small step sizes do not look like zero."""
    return 0.1 + 0.9 * (value / largest) ** 0.5 if value > 0 else 0.0


def step_size_text(a: float) -> str:
    """Three digits behind the point, and none of the zeros that say nothing.

    >>> step_size_text(0.0252), step_size_text(0.0), step_size_text(1.5), step_size_text(0.0001)
    ('.025', '·', '1.5', '<.001')
    """
    return (
        "·"
        if a <= 0
        else f"{a:.3g}"
        if a >= 1
        else "<.001"
        if a < 0.0005
        else f"{a:.3f}".lstrip("0")
    )


def step_sizes(run: RunRecord, chosen: dict[str, Any]) -> Markup:
    """The step sizes of a model, with a slider through the training where scripts run."""
    history = [
        [m["tasks"], [[float(f"{a:.3g}") for a in row] for row in m["alpha"]]] for m in run.metrics
    ]
    largest = _largest(run)
    at = [m["tasks"] for m in run.metrics].index(chosen["tasks"])
    slider = el(
        "input",
        type="range",
        min=0,
        max=len(history) - 1,
        value=at,
        aria_label="stage of the training",
    )
    control = el(
        "label", slider, " ", el("output", f"{chosen['tasks']:,} tasks"), class_="slider", hidden=""
    )
    picture = heat_map(chosen["alpha"], run.layers, largest, step_size_text, "step size")
    values = data({"history": history, "largest": largest}, class_="history")
    return el("div", control if len(history) > 1 else None, picture, values, class_="alpha")


def _largest(run: RunRecord) -> float:
    return max(a for m in run.metrics for row in m["alpha"] for a in row) or 1.0


def stages(run: RunRecord) -> Markup:
    """The step sizes at some validations from the first to the last, side by side."""
    last = len(run.metrics) - 1
    picked = sorted({round(i * last / (MOMENTS - 1)) for i in range(MOMENTS)}) if last else [0]
    largest = _largest(run)
    thumbs = []
    for m in (run.metrics[i] for i in picked):
        is_best = run.best is not None and m["tasks"] == run.best["tasks"]
        caption = f"{m['tasks']:,}" + (" best" if is_best else "")
        thumbs.append(
            el(
                "figure",
                _thumb(m["alpha"], run.layers, largest, m["tasks"]),
                el("figcaption", caption),
            )
        )
    return el("div", thumbs, class_="stages")


def _thumb(alpha: Matrix, layers: Sequence[str], largest: float, tasks: int) -> Markup:
    height, width = (7, 11) if len(layers) <= 12 else (4, 11)
    parts = []
    for k, row in enumerate(alpha):
        for l, a in enumerate(row):
            kind = "heat" if a > 0 else "heat zero"
            tip = f"{layers[l]}, step {k + 1}: {a:.4g}"
            parts.append(
                rect(
                    k * width,
                    l * height,
                    width - 1,
                    height - 1,
                    tip,
                    fill_opacity=_strength(a, largest),
                    class_=kind,
                )
            )
    size = (width * len(alpha), height * len(layers))
    return svg(parts, size[1], f"step sizes at {tasks} tasks", size[0])


def update_ratios(run: RunRecord) -> tuple[Matrix, bool]:
    """Share of the weights of layer l that step k updates, and whether it was measured; else it is the most it can be."""
    measured = [e for e in run.evaluations if _fits(e.get("update_ratios"), run)]
    if measured:
        return max(measured, key=lambda e: e["tasks"])["update_ratios"], True
    most = largest_shares(run)
    alpha = run.chosen["alpha"] if run.chosen else []
    return [
        [most[name] if a > 0 else 0.0 for name, a in zip(run.layers, row, strict=True)]
        for row in alpha
    ], not run.attention


def _fits(ratios: Any, run: RunRecord) -> bool:
    return bool(ratios) and all(len(row) == len(run.layers) for row in ratios)


def largest_shares(run: RunRecord) -> dict[str, float]:
    """The largest share of each layer's weights that clipped scores can leave, whatever the data."""
    shares = dict.fromkeys(run.layers, 1.0)
    if run.attention:
        named = [op for op in run.ops or () if op.name]
        shares |= {
            op.name: _largest_share(op, run.row.clip_ratio_fw, run.row.clip_ratio_bw)
            for op in named[:-1]
        }
    return shares


def _largest_share(op: Op, rho_fw: float | None, rho_bw: float | None) -> float:
    fw, bw = (
        max_mu_fw(c, rho) if rho is not None else 1.0
        for c, rho in zip(channels(op), (rho_fw, rho_bw), strict=True)
    )
    return min(fw, bw) if op.kind == "norm" else fw * bw
