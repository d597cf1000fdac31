"""Step sizes over layers and steps as they evolved (Eq. 6), and the shares updated (Fig. 5)."""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from pmeta.cost.bound import max_mu_fw
from pmeta.cost.ops import Op, channels
from pmeta.report.picture import (
    ACCENT,
    FAINT,
    INK,
    LETTER,
    LIGHT,
    RULE,
    WIDTH,
    box,
    canvas,
    row_label,
)
from pmeta.report.run import RunRecord
from pmeta.report.words import share_text, step_size_text

Matrix = Sequence[Sequence[float]]  # (K, L)
MOMENTS, ABREAST = 8, 4
"""How many stages of the training are shown, and how many of them side by side."""


def step_sizes(alpha: Matrix, layers: Sequence[str], largest: float = 0.0) -> Figure:
    """alpha_l^k, the more colour the larger, as a share of the largest there is."""
    return _heat_map(alpha, layers, largest or largest_of([alpha]), step_size_text)


def shares(ratios: Matrix, layers: Sequence[str]) -> Figure:
    """The share of the weights of each layer that each step updates."""
    return _heat_map(ratios, layers, 1.0, share_text)


def largest_of(alphas: Sequence[Matrix]) -> float:
    """The largest step size; 1 where there is none above zero."""
    largest = max(a for alpha in alphas for row in alpha for a in row)
    return largest if largest > 0 else 1.0


def _heat_map(
    matrix: Matrix, layers: Sequence[str], largest: float, show: Callable[[float], str]
) -> Figure:
    """Layers down, steps across; the more colour the larger, and grey at zero."""
    left = 8 + LETTER * max(map(len, layers))
    width = min(68.0, (WIDTH - left - 2) / len(matrix))
    cell = 18.0 if len(layers) <= 12 else 14.0
    right = WIDTH - left - width * len(matrix)
    figure, axes = canvas(20 + cell * len(layers), left, right, 18, 2)
    _plain(axes, len(matrix), len(layers))
    row_label(axes, -9 / cell, "step", size=12)
    for k in range(len(matrix)):
        axes.text(k + 0.5, -9 / cell, str(k + 1), ha="center", va="center", color=FAINT, size=11.5)
    for l, name in enumerate(layers):
        row_label(axes, l + 0.5, name)
        for k, row in enumerate(matrix):
            place = (k + 1 / width, l + 1 / cell, 1 - 2 / width, 1 - 2 / cell)
            box(axes, place, *_color(row[l], largest))
            ink = INK if strength(row[l], largest) <= 0.7 else LIGHT["page"]
            color = ink if row[l] > 0 else FAINT
            middle = (k + 0.5, l + 0.52)
            axes.text(
                *middle, show(row[l]), ha="center", va="center", color=color, size=11.5, zorder=1
            )
    return figure


def _plain(axes: Axes, across: float, down: float) -> None:
    """No lines and no ticks; rows are counted downwards."""
    axes.set_xlim(0, across)
    axes.set_ylim(down, 0)
    axes.set_axis_off()


def _color(value: float, largest: float) -> tuple[str, float]:
    """The more colour the larger, and grey at zero."""
    return (ACCENT, strength(value, largest)) if value > 0 else (RULE, 0.5)


def strength(value: float, largest: float) -> float:
    """Opacity: by the square root, so that small step sizes do not look like zero."""
    return 0.1 + 0.9 * min(value / largest, 1.0) ** 0.5 if value > 0 else 0.0


def moments(run: RunRecord) -> list[tuple[str, Matrix]]:
    """The step sizes at some validations from the first to the last, each with its name."""
    last = len(run.metrics) - 1
    picked = sorted({round(i * last / (MOMENTS - 1)) for i in range(MOMENTS)})
    chosen = [(run.at(run.metrics[i]), run.metrics[i]["alpha"]) for i in picked]
    return [(f"{at:,}{' best' * (at == run.best)}", alpha) for at, alpha in chosen]


def evolution(stages: Sequence[tuple[str, Matrix]], layers: Sequence[str]) -> Figure:
    """Step sizes at several stages of the training, side by side, as small heat maps."""
    largest = largest_of([alpha for _, alpha in stages])
    cell = 9.0 if len(layers) <= 12 else 5.0
    across, down = WIDTH / ABREAST, cell * len(layers) + 24
    rows = -(-len(stages) // ABREAST)
    figure, axes = canvas(down * rows, 0, 0, 0, 0)
    _plain(axes, WIDTH, down * rows)
    for i, (name, alpha) in enumerate(stages):
        x, y = across * (i % ABREAST), down * (i // ABREAST)
        width = (across - 14) / len(alpha)
        cells = [(k, l) for k in range(len(alpha)) for l in range(len(layers))]
        places = [(x + 7 + k * width, y + l * cell, width - 1, cell - 1) for k, l in cells]
        colors = [_color(alpha[k][l], largest) for k, l in cells]
        axes.add_collection(PolyCollection([_corners(*place) for place in places], fc=colors))
        axes.text(x + across / 2, y + down - 12, name, ha="center", color=FAINT, size=11.5)
    return figure


def _corners(x: float, y: float, width: float, height: float) -> list[tuple[float, float]]:
    return [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]


def update_ratios(run: RunRecord) -> tuple[Matrix, bool]:
    """Shares of layer l that step k updates: measured (True), or the most they can be."""
    measured = [e for e in run.evaluations if _fits(e.get("update_ratios"), run)]
    if measured:
        return max(measured, key=lambda e: e["tasks"])["update_ratios"], True
    most = largest_shares(run)
    return [
        [most[name] if a > 0 else 0.0 for name, a in zip(run.layers, row, strict=True)]
        for row in run.alpha
    ], not run.attention


def _fits(ratios: Any, run: RunRecord) -> bool:
    return bool(ratios) and all(len(row) == len(run.layers) for row in ratios)


def largest_shares(run: RunRecord) -> dict[str, float]:
    """The largest share of each layer that clipped scores can leave, whatever the data."""
    shares = dict.fromkeys(run.layers, 1.0)
    if run.row and run.attention:
        named = [op for op in run.ops if op.name]
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
