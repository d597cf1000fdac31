"""Memory along the layers (App. A): what the forward pass stores for the backward pass."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmeta.cost.memory import forward_walk, peak_words, stored_words
from pmeta.cost.ops import MB, WORD, Op, layer_names, weight_words
from pmeta.report.picture import FAINT, INK, LIGHT, beside, box, canvas, name_axes, round_numbers
from pmeta.report.run import RunRecord
from pmeta.report.words import bytes_text


@dataclass(frozen=True)
class Walk:
    """The forward pass of one sample in the step that takes the most, batch 1."""

    ops: tuple[Op, ...]
    update: tuple[str, ...]
    mu_fw: dict[str, float]
    attention: bool
    samples: int
    kept_words: int
    """Of the episodes, which the exact accounting counts."""

    @property
    def accumulators(self) -> float:
        """Words of the gradients that are summed up from sample to sample."""
        return weight_words(self.ops, self.update) if self.samples > 1 else 0.0

    @property
    def stored_mb(self) -> float:
        """What all layers keep for the backward pass."""
        return sum(self.stored_words()) * WORD / MB

    def stored_words(self) -> list[float]:
        """What each operation keeps for the backward pass."""
        return stored_words(self.ops, self.update, self.mu_fw, "paper", self.attention)

    def peak_mb(self, accounting: str) -> float:
        how = (self.mu_fw, accounting, self.attention, self.kept_words)
        return peak_words(self.ops, self.update, 1, self.samples, *how) * WORD / MB


def walk_of(run: RunRecord) -> Walk | None:
    """The step that takes the most, with mu_fw at its bound; None where nothing is known yet."""
    if not run.adapts or not run.masks:
        return None
    walks = [_walk(run, run.ops, mask, run.mu_fw, run.attention) for mask in run.masks]
    return max(walks, key=lambda walk: walk.peak_mb("paper"))


def dense_walk(run: RunRecord) -> Walk | None:
    """MAML, which updates every layer of the same network."""
    return _walk(run, run.ops, layer_names(run.ops), {}, False) if run.adapts else None


def _walk(
    run: RunRecord,
    ops: tuple[Op, ...],
    mask: Collection[str],
    mu_fw: dict[str, float],
    attention: bool,
) -> Walk:
    names = tuple(name for name in layer_names(ops) if name in mask)
    kept = {name: ratio for name, ratio in mu_fw.items() if name in mask}
    scores = attention and bool(set(names) & set(layer_names(ops)[:-1]))
    return Walk(ops, names, kept, scores, run.network.samples, run.network.kept_words)


def memory_along_layers(walk: Walk, top_mb: float) -> Figure:
    """Bands of what is stored, from there on; above them the buffer that the operation works in."""
    unit, factor = ("MB", 1.0) if top_mb >= 1 else ("kB", 1000.0)
    figure, axes = canvas(230)
    axes.set_xlim(0, len(walk.ops))
    axes.set_ylim(0, top_mb * factor * 1.08)
    round_numbers(axes.yaxis)
    _name_blocks(axes, walk.ops)
    name_axes(axes, "forward pass, from the input to the output", f"memory of one sample ({unit})")
    _bands(axes, walk, WORD / MB * factor)
    _working(axes, walk, WORD / MB * factor)
    peak = walk.peak_mb("paper")
    axes.axhline(peak * factor, color=INK, lw=1, ls=(0, (4, 3)))
    at = (len(walk.ops), peak * factor)
    beside(axes, f"peak {bytes_text(peak)}", at, (0, 5), ha="right", weight="bold")
    return figure


def _bands(axes: Axes, walk: Walk, scaled: float) -> None:
    """What is stored: a band for each layer, from its place to the end of the pass."""
    stored = walk.stored_words()
    end, below = len(walk.ops), walk.accumulators
    if below:
        box(axes, (0, 0, end, below * scaled), LIGHT["sum"], 1)
    for i, (op, words) in enumerate(zip(walk.ops, stored, strict=True)):
        if not words:
            continue
        kind = op.kind if op.name else "bits"
        name = f"input of {op.name}" if op.name else f"bits of {op.kind}"
        size = bytes_text(words * WORD / MB)
        place = (i, below * scaled, end - i, words * scaled)
        box(axes, place, LIGHT[kind], 1, "band", ec=LIGHT["card"])
        _inside(axes, place, (f"{name}, {size}", size), kind)
        below += words


def _inside(axes: Axes, place: tuple[float, ...], texts: Sequence[str], kind: str) -> None:
    """The first text that has room in a band."""
    x, y, width, height = place
    (left, bottom), (right, top) = axes.transData.transform([(x, y), (x + width, y + height)])
    fitting = [text for text in texts if 6 * len(text) < right - left]
    if top - bottom >= 11 and fitting:
        style = {"ha": "right", "va": "center", "fontsize": 10.5}
        color = "#10242f" if kind == "norm" else "#fffffe"
        middle = (x + width, y + height / 2)
        beside(axes, fitting[0], middle, (-4, -0.5), color=color, **style)


def _working(axes: Axes, walk: Walk, scaled: float) -> None:
    """The buffer of each operation, above all that is stored by then."""
    for moment in forward_walk(walk.ops, walk.update, walk.mu_fw, "paper", walk.attention):
        base = (moment.stored + walk.accumulators) * scaled
        box(axes, (moment.op, base, 1, moment.working * scaled), LIGHT["work"], 1)


def _name_blocks(axes: Axes, ops: Sequence[Op]) -> None:
    """The first conv or fc layer of each block, below the axis."""
    blocks: dict[str, int] = {}
    for i, op in enumerate(ops):
        if op.kind in ("conv", "fc"):
            blocks.setdefault(op.name.split(".")[0], i)
    axes.set_xticks(list(blocks.values()), list(blocks), ha="left", color=FAINT)
    axes.get_xticklabels()[-1].set_horizontalalignment(
        "right" if ops[-1].name in blocks else "left"
    )
