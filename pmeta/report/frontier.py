"""A picture of the plans of an export: the arena against the computation of a step."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from pmeta.report.picture import ACCENT, FAINT, INK, around, canvas, name_axes, round_numbers


def frontier_picture(
    plans: Sequence[tuple[int, int]], budget: int | None = None, chosen: int | None = None
) -> Figure:
    """Plans as (arena bytes, MACs), the budget as a line, the plan that was taken as a dot."""
    figure, axes = canvas(220)
    x, y = [arena / 1e3 for arena, _ in plans], [macs / 1e6 for _, macs in plans]
    axes.step(x, y, where="pre", color=INK, linewidth=1.5)
    axes.plot(x, y, "o", color=INK, markersize=5)
    if budget is not None:
        axes.axvline(budget / 1e3, color=FAINT, linestyle="--", linewidth=1)
    if chosen is not None:
        axes.plot(x[chosen], y[chosen], "o", color=ACCENT, markersize=9)
    axes.set_xlim(*around([*x, *([budget / 1e3] if budget is not None else [])]))
    axes.set_ylim(0, around(y, 0.15)[1])
    round_numbers(axes.xaxis, axes.yaxis)
    name_axes(axes, "arena of an adaptation, kB", "MMACs of a step, one sample")
    return figure
