"""The reliability diagram: how often a model is right when it says how sure it is."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from pmeta.report.picture import ACCENT, FAINT, LIGHT, canvas, name_axes, round_numbers


def reliability(shots: Mapping[str, Any]) -> Figure:
    """Share of right answers over the mean probability of each bin; on the diagonal they are equal.

    The area of a point grows with the number of queries in its bin."""
    figure, axes = canvas(260)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 103)
    round_numbers(axes.xaxis, axes.yaxis)
    name_axes(axes, "how sure the model is (%)", "right answers (%)")
    axes.plot([0, 100], [0, 100], color=FAINT, lw=1.2, ls=(0, (3, 3)))
    filled = [b for b in shots["bins"] if b["count"]]
    points = [(100 * b["confidence"], 100 * b["accuracy"], b["count"]) for b in filled]
    axes.plot([x for x, _, _ in points], [y for _, y, _ in points], color=ACCENT, lw=1.6)
    most = max((count for *_, count in points), default=1)
    for x, y, count in points:
        size = 3 + 9 * (count / most) ** 0.5
        axes.plot([x], [y], "o", color=ACCENT, mec=LIGHT["card"], ms=size, zorder=4, gid="mark")
    return figure


def caption(calibration: Mapping[str, Any], shots: Mapping[str, Any]) -> str:
    """What was measured, in words."""
    rest = ", ".join(
        f"{s['n_shot']}: {100 * s['ece']:.1f} %" for s in calibration["shots"] if s is not shots
    )
    others = f" With other numbers of samples of a class: {rest}." if rest else ""
    return (
        f"On validation tasks that did not fit the temperature {shots['temperature']:.2f}. "
        f"Calibration error {100 * shots['ece']:.1f} %, without the temperature "
        f"{100 * shots['ece_before']:.1f} %.{others}"
    )


def of_training(calibration: Mapping[str, Any], n_shot: Any) -> Mapping[str, Any]:
    """The part for as many samples of a class as the run was trained with."""
    found: Sequence[Mapping[str, Any]] = calibration["shots"]
    return next((s for s in found if s["n_shot"] == n_shot), found[-1])
