"""Streaming: the first two blocks of a network in strips of rows, from the raw sample.

The output of the first block is often the largest tensor of all. Where no layer of the first block
is updated, it is never there as a whole: one pass over the sample gives the statistics of the first
norm, a second one makes a window of rows of the first block, and from it the winners and the
statistics of the second. The first conv runs twice, or once if there is no norm behind it.

Where the second conv is updated, its output is kept for the norm behind it, and a third pass in the
backward half gives the rows of its input again, of which each window adds to the weight gradient.
"""

from typing import Any

from pmeta.compiler.ir import LANES, NOTHING, Instr, Ref, instr
from pmeta.compiler.lower.emitter import Emitter
from pmeta.compiler.lower.forward import StageForward
from pmeta.compiler.lower.rows import (
    Block,
    RowBlock,
    act_kind,
    affine,
    block_of,
    conv_rows,
    group_stat,
)


def blocks(e: Emitter) -> tuple[Block, Block] | None:
    """The two blocks that can be streamed, None if they cannot."""
    stages = e.model.stages
    if len(stages) < 3 or e.model.convert or stages[0].source != -1:
        return None
    first, second = (block_of(e, s) for s in (0, 1))
    if first is None or second is None or stages[1].source != stages[0].value:
        return None
    alone = all(stages[0].value not in later.reads() for later in stages[2:])
    g = second.geom
    reach = g.dh * (g.kh - 1) + 1 - g.sh  # rows of a window that the next one needs again
    plain = all(e.nodes[t].act in ("relu", "relu6") for t in first.acts) and len(first.acts) <= 1
    again = second.s in e.tiling.again or g.groups > 1 or second.norm is None
    frozen = not e.needs[stages[0].value] and not (e.needs[second.conv] and again)
    return (first, second) if alone and plain and frozen and reach >= g.ph else None


def stream(e: Emitter, pair: tuple[Block, Block], rows: int, parts: int) -> None:
    """Emit two blocks; `rows` of the second's output a round, the first's channels in `parts`."""
    kept = e.needs[pair[1].conv]
    e.streamed = frozenset(block.s for block in pair[: 1 if kept else 2])
    streamer = _Streamer(e, *pair, rows, parts)
    streamer.statistics()
    if kept:
        streamer.keep_second()
        return
    second = RowBlock(e, pair[1], rows)
    streamer.beginning()
    streamer.rounds(second.winners(streamer.window, window=True))
    second.end()


class _Streamer:
    def __init__(self, e: Emitter, first: Block, second: Block, rows: int, parts: int):
        self.e, self.first, self.second, self.rows, self.parts = e, first, second, rows, parts
        g = second.geom
        self.conv_rows = rows * second.window.sh
        self.new_rows = self.conv_rows * g.sh
        self.keep = g.dh * (g.kh - 1) + 1 - g.sh
        self.held = self.keep + self.new_rows
        c, width = first.geom.c_out, first.window.wo
        self.window = e.new("window of rows", c * self.held * width * 4)
        self.stat = e.new("statistics", c * 8) if first.norm is not None else NOTHING
        self.seen = NOTHING
        """Means of the first block's output, where they are gathered on the way."""

    def statistics(self) -> None:
        """Of the first norm, if there is one: the first pass over the sample."""
        if self.first.norm is None:
            return
        g, rows = self.first.geom, self.new_rows * self.first.window.sh
        body = []
        for k in range(self.parts):
            tile = self._tile(rows)
            body.append(self._conv(tile, k, rows, 0))
            channels = g.c_out // self.parts
            stat = self.stat.after(k * channels * 8, channels * 8)
            sizes: dict[str, Any] = {"channels": channels, "plane": g.ho * g.wo, "width": g.wo}
            body.append(instr("moments", stat=stat, x=tile, rows=rows, **sizes))
        self.e.emit_rounds(body, -(-g.ho // rows))
        group_stat(self.e, self.e.nodes[self.first.norm], g, self.stat, NOTHING)

    def _tile(self, rows: int) -> Ref:
        """A part of the channels of the first conv, so many rows of it."""
        g = self.first.geom
        return self.e.new("strip", g.c_out // self.parts * rows * g.wo * 4, local=True)

    def _conv(self, y: Ref, k: int, rows: int, first: int) -> Instr:
        """Part k of the first conv's channels."""
        g = self.first.geom
        channels = g.c_out // self.parts
        named = {"rows": rows, "first": first, "channel": k * channels}
        return conv_rows(self.e, self.first, y, self.e.values[-1], channels, **named)

    def _first_rows(self, first: int, rows: int, place: int) -> list[Instr]:
        """Rows of the first block's output from `first` on, into its window from `place` on."""
        g, window = self.first.geom, self.first.window
        channels, size = g.c_out // self.parts, self.held * window.wo * 4
        conv_rows, body = rows * window.sh, []
        where: dict[str, Any] = {"rows": rows, "window": self.held, "place": place}
        for k in range(self.parts):
            tile = self._tile(conv_rows)
            body.append(self._conv(tile, k, conv_rows, first * window.sh))
            named: dict[str, Any] = {
                "y": self.window.after(k * channels * size, channels * size),
                "x": tile,
            }
            if self.first.norm is None:
                count = channels * conv_rows * g.wo
                kinds = [act_kind(self.e.nodes[t]) for t in self.first.acts]
                body += [instr("act", x=tile, mask=NOTHING, count=count, **kind) for kind in kinds]
            else:
                weight = self.e.param(self.e.nodes[self.first.norm].weight)
                if weight is not NOTHING:
                    named["w"] = weight._replace(at=weight.at + k * channels * 4)
            sizes: dict[str, Any] = {"geom": self.first.pool, "channels": channels, "first": first}
            body.append(instr("maxpool", **named, **sizes, **where))
        width: dict[str, Any] = {"channels": g.c_out, "width": window.wo}
        if self.first.norm is not None:
            act: dict[str, Any] = {self.e.nodes[t].act: True for t in self.first.acts}
            norm = self.e.nodes[self.first.norm]
            refs: dict[str, Any] = {
                "xhat": self.window,
                "y": self.window,
                "stat": self.stat,
                **affine(self.e, norm),
            }
            body.append(instr("normalise", norm.name, **refs, **width, **where, **act))
        if self.seen is not NOTHING:
            new = self.window.after(place * window.wo * 4, self._strip_bytes(rows))
            plane = window.ho * window.wo
            strip: dict[str, Any] = {"rows": rows, "first": first, "window": self.held}
            refs = {"stat": self.seen, "x": new}
            body.append(instr("moments", **refs, **width, plane=plane, **strip, means=True))
        return body

    def _strip_bytes(self, rows: int) -> int:
        """From the first to the last number of some rows of all channels in the window."""
        c, width = self.first.geom.c_out, self.first.window.wo
        return ((c - 1) * self.held + rows) * width * 4

    def beginning(self) -> None:
        """The rows that the first window needs before the new ones of its round."""
        padding = self.second.geom.ph
        if self.keep > padding:
            self.e.emit_rounds(self._first_rows(0, self.keep - padding, padding), 1)

    def keep_second(self) -> None:
        """The second conv's output as a whole, and the operations behind it as in any plan."""
        e, second = self.e, self.second
        stage = e.model.stages[second.s]
        tail = StageForward(e, second.s, stage)
        behind = tail.instructions(head=False)
        assert second.norm is not None
        xhat, g = e.kept["xhat", second.norm], second.geom
        scores = e.model.gammas.get((e.nodes[second.conv].name, "fw"))
        if scores and scores.kind == "module":
            self.seen = e.seen = e.new("means", g.c_in * 4)
        self.beginning()
        whole = xhat.whole(g.c_out * g.ho * g.wo * 4)
        named: dict[str, Any] = {"rows": self.conv_rows, "window": True, "whole": True}
        self.rounds([conv_rows(e, second, whole, self.window, g.c_out, **named)])
        e.emit_rounds(behind, tail.rounds)
        e.streams_again = self._weight_gradient

    def _weight_gradient(self, gy: Ref, gamma_bw: Ref, acc: Ref, gamma_fw: Ref) -> None:
        """The rows of the first block once more, of which each window adds to the gradient."""
        e, g = self.e, self.second.geom
        self.window = e.new("window of rows", self.window.size)
        self.seen = NOTHING
        self.beginning()
        strip = e.strip(self.second.s, self.conv_rows * g.wo)
        lanes = -(-g.c_out // LANES) * LANES
        patches = e.new("patches", (g.depth + lanes) * strip * 4, local=True)
        refs = {"acc": acc, "gy": gy, "x": self.window, "patches": patches}
        scores = {"gamma_fw": gamma_fw, "gamma_bw": gamma_bw}
        sizes: dict[str, Any] = {"geom": self.second.conv, "strip": strip, "rows": self.conv_rows}
        name = e.nodes[self.second.conv].name
        self.rounds([instr("conv_bw_w", name, **refs, **scores, **sizes)])

    def rounds(self, work: list[Instr]) -> None:
        """New rows of the first block, and what is done with them."""
        g = self.second.geom
        body = [*self._first_rows(self.keep - g.ph, self.new_rows, self.keep), *work]
        shape: dict[str, Any] = {"channels": self.first.geom.c_out, "width": self.first.window.wo}
        if self.keep:
            moved: dict[str, Any] = {"window": self.held, "keep": self.keep}
            body.append(instr("shift", x=self.window, **shape, **moved))
        count = -(-g.ho // self.conv_rows)
        self.e.emit_rounds(body, count)
