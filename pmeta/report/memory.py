"""Memory along the layers (App. A): what each layer stores in the forward pass for the backward pass, as it piles up."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pmeta.cost.memory import forward_walk, peak_words, stored_words
from pmeta.cost.ops import MB, WORD, Op, Ratio, layer_names, weight_words
from pmeta.report.comparison import bytes_text
from pmeta.report.html import Markup
from pmeta.report.plot import WIDTH, Scale, line, nice_ticks, number, rect, svg, text
from pmeta.report.run import RunRecord


@dataclass(frozen=True)
class Walk:
    """The forward pass of one sample in the step that takes the most, batch 1."""

    ops: tuple[Op, ...]
    update: tuple[str, ...]
    mu_fw: tuple[tuple[str, float], ...]
    attention: bool
    samples: int
    kept_words: int
    """Of the episodes, which the exact accounting counts."""

    @property
    def ratios(self) -> Ratio:
        return dict(self.mu_fw)

    @property
    def accumulators(self) -> float:
        """Words of the gradients that are summed up from sample to sample."""
        return weight_words(self.ops, self.update) if self.samples > 1 else 0.0

    @property
    def stored_mb(self) -> float:
        """What all layers keep for the backward pass."""
        return (
            sum(stored_words(self.ops, self.update, self.ratios, "paper", self.attention))
            * WORD
            / MB
        )

    def peak_mb(self, accounting: str) -> float:
        args = (
            self.ops,
            self.update,
            1,
            self.samples,
            self.ratios,
            accounting,
            self.attention,
            self.kept_words,
        )
        return peak_words(*args) * WORD / MB


def walk_of(run: RunRecord) -> Walk | None:
    """The step of a run's model that takes the most, with mu_fw at its bound; None where nothing is known yet."""
    if not run.ops or not run.masks:
        return None
    walks = [_walk(run, run.ops, mask, run.mu_fw, run.attention) for mask in run.masks]
    return max(walks, key=lambda walk: walk.peak_mb("paper"))


def dense_walk(run: RunRecord) -> Walk | None:
    """MAML, which updates every layer of the same network."""
    return _walk(run, run.ops, layer_names(run.ops), {}, False) if run.ops else None


def _walk(
    run: RunRecord,
    ops: tuple[Op, ...],
    mask: Collection[str],
    mu_fw: dict[str, float],
    attention: bool,
) -> Walk:
    names = tuple(name for name in layer_names(ops) if name in mask)
    kept = tuple((name, ratio) for name, ratio in mu_fw.items() if name in mask)
    scores = attention and bool(set(names) & set(layer_names(ops)[:-1]))
    return Walk(ops, names, kept, scores, run.samples, run.kept_words)


def memory_along_layers(walk: Walk, top_mb: float) -> Markup:
    """Bands of what is stored, from where it is stored on; on top of them the buffer that the operation works in."""
    unit, factor = ("MB", 1.0) if top_mb >= 1 else ("kB", 1000.0)
    scaled = WORD / MB * factor
    height = 230
    x, y = Scale(0, len(walk.ops), 36, WIDTH - 6), Scale(0, top_mb * factor * 1.08, height - 38, 24)
    parts = [line(x.start, y(v), x.end, y(v), "rule") for v in nice_ticks(0, y.high)]
    parts += [
        text(x.start - 5, y(v) + 3.5, number(v), "end", "tick") for v in nice_ticks(0, y.high)
    ]
    parts += _bands(walk, x, y, scaled)
    parts += _working(walk, x, y, scaled)
    peak = walk.peak_mb("paper")
    parts.append(line(x.start, y(peak * factor), x.end, y(peak * factor), "peak"))
    parts.append(text(x.end, y(peak * factor) - 5, f"peak {bytes_text(peak)}", "end", "strong"))
    parts += _names(walk.ops, x, height)
    parts.append(text(2, 11, f"memory of one sample ({unit})", class_="label"))
    parts.append(
        text(
            (x.start + x.end) / 2,
            height - 5,
            "forward pass, from the input to the output",
            "middle",
            "label",
        )
    )
    return svg(parts, height, f"memory along the layers, peak {bytes_text(peak)}")


def _bands(walk: Walk, x: Scale, y: Scale, scaled: float) -> list[Markup]:
    """What is stored: a band for each layer, from its place to the end of the pass."""
    stored = stored_words(walk.ops, walk.update, walk.ratios, "paper", walk.attention)
    below, parts = walk.accumulators, []
    if below:
        title = f"gradients of the updated weights: {bytes_text(below * WORD / MB)}"
        parts.append(
            rect(
                x.start,
                y(below * scaled),
                x.end - x.start,
                y.start - y(below * scaled),
                title,
                class_="k-sum",
            )
        )
    for i, (op, words) in enumerate(zip(walk.ops, stored, strict=True)):
        if not words:
            continue
        kind = op.kind if op.name else "bits"
        name = f"input of {op.name}" if op.name else f"bits of {op.kind}"
        height = words * scaled / y.high * (y.start - y.end)
        top = y((below + words) * scaled)
        size = bytes_text(words * WORD / MB)
        parts.append(rect(x(i), top, x.end - x(i), height, f"{name}: {size}", class_=f"k-{kind}"))
        fitting = [label for label in (f"{name}, {size}", size) if 6 * len(label) < x.end - x(i)]
        if height >= 11 and fitting:
            parts.append(text(x.end - 4, top + height / 2 + 3.5, fitting[0], "end", "inside"))
        below += words
    return parts


def _working(walk: Walk, x: Scale, y: Scale, scaled: float) -> list[Markup]:
    """The buffer of each operation, above all that is stored by then."""
    parts = []
    for moment in forward_walk(walk.ops, walk.update, walk.ratios, "paper", walk.attention):
        base = (moment.stored + walk.accumulators) * scaled
        top = y(base + moment.working * scaled)
        op = walk.ops[moment.op]
        title = f"at {op.name or op.kind}: {bytes_text(moment.working * WORD / MB)} to work in"
        parts.append(rect(x(moment.op), top, x(1) - x(0), y(base) - top, title, class_="k-work"))
    return parts


def _names(ops: Sequence[Op], x: Scale, height: float) -> list[Markup]:
    """The first conv or fc layer of each block, below the axis."""
    parts, seen = [line(x.start, height - 38, x.end, height - 38, "axis")], set()
    for i, op in enumerate(ops):
        block = op.name.split(".")[0]
        if op.kind in ("conv", "fc") and block not in seen:
            seen.add(block)
            last = i == len(ops) - 1
            parts.append(line(x(i), height - 38, x(i), height - 33, "axis"))
            parts.append(
                text(
                    x(i + 1) if last else x(i),
                    height - 22,
                    block,
                    "end" if last else "start",
                    "tick",
                )
            )
    return parts
