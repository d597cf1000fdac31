"""A picture of the plans of an export: the arena against the computation of a step."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from pmeta.report.picture import ACCENT, FAINT, INK, around, canvas, name_axes, round_numbers

STYLES = {"float32": "-", "float16": "--", "int8": ":"}
Plan = tuple[int, int]
"""Arena bytes and MACs."""


def frontier_picture(
    plans: Mapping[str, Sequence[Plan]], budget: int | None = None, chosen: Plan | None = None
) -> Figure:
    """Plans by how they store, the budget as a line, the plan that was taken as a dot."""
    figure, axes = canvas(220)
    every = [plan for own in plans.values() for plan in own]
    x, y = [arena / 1e3 for arena, _ in every], [macs / 1e6 for _, macs in every]
    for store, own in plans.items():
        sizes, macs = [arena / 1e3 for arena, _ in own], [m / 1e6 for _, m in own]
        axes.step(sizes, macs, where="pre", color=INK, linestyle=STYLES[store], label=store)
        axes.plot(sizes, macs, "o", color=INK, markersize=5)
    if len(plans) > 1:
        axes.legend(frameon=False, fontsize=8)
    if budget is not None:
        axes.axvline(budget / 1e3, color=FAINT, linestyle="--", linewidth=1)
    if chosen is not None:
        axes.plot(chosen[0] / 1e3, chosen[1] / 1e6, "o", color=ACCENT, markersize=9)
    axes.set_xlim(*around([*x, *([budget / 1e3] if budget is not None else [])]))
    axes.set_ylim(0, around(y, 0.15)[1])
    round_numbers(axes.xaxis, axes.yaxis)
    name_axes(axes, "arena of an adaptation, kB", "MMACs of a step, one sample")
    return figure
