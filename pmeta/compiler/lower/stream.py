"""Streaming: the first two blocks of a network in strips of rows, from the raw sample.

The output of the first block is often the largest tensor of all. Where no layer of the two blocks
needs a gradient of its input, it is never there as a whole: one pass over the sample gives the
statistics of the first norm, a second one makes a window of rows of the first block, and from it
the winners and the statistics of the second. The first conv runs twice; nothing else changes.
"""

from typing import Any, NamedTuple

from pmeta.compiler.fuse import Tail
from pmeta.compiler.ir import ACTS, NOTHING, Instr, Ref, Unit, instr
from pmeta.compiler.lower.emitter import Emitter
from pmeta.compiler.read_model import Node
from pmeta.device.format import Geom


class Block(NamedTuple):
    """A conv, its norm and the max-pool behind it."""

    s: int
    """The number of its stage."""
    conv: int
    norm: int
    pool: int
    acts: tuple[int, ...]
    geom: Geom
    """Of the conv."""
    window: Geom
    """Of the max-pool."""


def blocks(e: Emitter) -> tuple[Block, Block] | None:
    """The two blocks that can be streamed, None if they cannot."""
    stages = e.model.stages
    if len(stages) < 3 or e.model.convert or stages[0].source != -1:
        return None
    first, second = (_block(e, s) for s in (0, 1))
    if first is None or second is None or stages[1].source != stages[0].value:
        return None
    alone = all(stages[0].value not in later.reads() for later in stages[2:])
    g = second.geom
    reach = g.dh * (g.kh - 1) + 1 - g.sh  # rows of a window that the next one needs again
    plain = all(e.nodes[t].act in ("relu", "relu6") for t in first.acts) and len(first.acts) <= 1
    frozen = not e.needs[stages[0].value] and not e.needs[second.conv]
    return (first, second) if alone and plain and frozen and reach >= g.ph else None


def _block(e: Emitter, s: int) -> Block | None:
    stage = e.model.stages[s]
    tail = Tail.of(e.nodes, stage).pooled_first(e.nodes)
    if stage.head is None or tail is None or e.nodes[stage.head].geom is None:
        return None
    norm, pool, *acts = tail.order
    geom, window = e.nodes[stage.head].geom, e.nodes[pool].geom
    assert geom is not None
    assert window is not None
    apart = window.ph == 0 and window.dh * (window.kh - 1) < window.sh
    inside = (window.ho - 1) * window.sh + window.dh * (window.kh - 1) < window.h
    if any(e.nodes[t].kind != "act" for t in acts) or not (apart and inside):
        return None
    return Block(s, stage.head, norm, pool, tuple(acts), geom, window)


def stream(e: Emitter, pair: tuple[Block, Block], rows: int, parts: int) -> None:
    """Emit two blocks; `rows` of the second's output a round, the first's channels in `parts`."""
    e.streamed = frozenset(block.s for block in pair)
    streamer = _Streamer(e, *pair, rows, parts)
    streamer.statistics()
    streamer.beginning()
    streamer.rounds()
    streamer.end()


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
        self.stat = e.new("statistics", c * 8)
        self.sums = e.new("statistics", g.c_out * 8)
        window, self.means = second.window, NOTHING
        self.winners = self.y = e.new(f"output of {e.nodes[second.conv].name}", _bytes(window))
        if e.keeps_norm(second.norm):
            name = e.nodes[second.norm].name
            self.winners = e.kept["xhat", second.norm] = e.new(f"xhat {name}", _bytes(window))
            self.means = e.kept["means", second.norm] = e.new(f"means {name}", g.c_out * 4)

    def statistics(self) -> None:
        """Of the first norm: the first pass over the sample."""
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
        self._group_stat(self.first, self.stat, NOTHING)

    def _tile(self, rows: int) -> Ref:
        """A part of the channels of the first conv, so many rows of it."""
        g = self.first.geom
        return self.e.new("strip", g.c_out // self.parts * rows * g.wo * 4, local=True)

    def _conv(self, y: Ref, k: int, rows: int, first: int) -> Instr:
        """Part k of the first conv's channels."""
        g = self.first.geom
        channels = g.c_out // self.parts
        named = {"rows": rows, "first": first, "channel": k * channels}
        return self._conv_rows(self.first, y, self.e.values[-1], channels, **named)

    def _conv_rows(self, b: Block, y: Ref, x: Ref, channels: int, **named: int) -> Instr:
        node, strip = self.e.nodes[b.conv], self.e.strip(b.s, named["rows"] * b.geom.wo)
        at = named.get("channel", 0)
        w, bias = self.e.param(node.weight), self.e.param(node.bias)
        return instr(
            "conv",
            node.name,
            y=y,
            x=x,
            w=w._replace(at=w.at + at * b.geom.depth * 4),
            bias=bias._replace(at=bias.at + at * 4) if node.bias else NOTHING,
            patches=self.e.new("patches", b.geom.depth * strip * 4, local=True),
            geom=b.conv,
            channels=channels,
            strip=strip,
            **named,
        )

    def _group_stat(self, b: Block, stat: Ref, means: Ref) -> None:
        node, c = self.e.nodes[b.norm], b.geom.c_out
        sizes: dict[str, Any] = {
            "channels": c,
            "count": b.geom.ho * b.geom.wo,
            "per_group": c // node.groups,
        }
        self.e.emit("group_stat", node.name, stat=stat, means=means, eps=node.eps, **sizes)

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
            weight = self.e.param(self.e.nodes[self.first.norm].weight)
            if weight is not NOTHING:
                named["w"] = weight._replace(at=weight.at + k * channels * 4)
            sizes: dict[str, Any] = {"geom": self.first.pool, "channels": channels, "first": first}
            body.append(instr("maxpool", **named, **sizes, **where))
        act: dict[str, Any] = {self.e.nodes[t].act: True for t in self.first.acts}
        norm = self.e.nodes[self.first.norm]
        refs: dict[str, Any] = {
            "xhat": self.window,
            "y": self.window,
            "stat": self.stat,
            **self._affine(norm),
        }
        width: dict[str, Any] = {"channels": g.c_out, "width": window.wo}
        body.append(instr("normalise", norm.name, **refs, **width, **where, **act))
        return body

    def _affine(self, norm: Node) -> dict[str, Ref]:
        return {"w": self.e.param(norm.weight), "bias": self.e.param(norm.bias)}

    def beginning(self) -> None:
        """The rows that the first window needs before the new ones of its round."""
        padding = self.second.geom.ph
        if self.keep > padding:
            self.e.emit_rounds(self._first_rows(0, self.keep - padding, padding), 1)

    def rounds(self) -> None:
        """New rows of the first block, and what the second block makes of them."""
        g, window, c = self.second.geom, self.second.window, self.second.geom.c_out
        body = self._first_rows(self.keep - g.ph, self.new_rows, self.keep)
        y = self.e.new("strip", c * self.conv_rows * g.wo * 4, local=True)
        body.append(
            self._conv_rows(self.second, y, self.window, c, rows=self.conv_rows, window=True)
        )
        rows: dict[str, Any] = {"plane": g.ho * g.wo, "width": g.wo, "rows": self.conv_rows}
        body.append(instr("moments", stat=self.sums, x=y, channels=c, **rows))
        weight = self.e.param(self.e.nodes[self.second.norm].weight)
        sizes: dict[str, Any] = {"geom": self.second.pool, "channels": c, "rows": self.rows}
        body.append(instr("maxpool", y=self.winners, x=y, w=weight, **sizes))
        shape: dict[str, Any] = {"channels": self.first.geom.c_out, "width": self.first.window.wo}
        if self.keep:
            moved: dict[str, Any] = {"window": self.held, "keep": self.keep}
            body.append(instr("shift", x=self.window, **shape, **moved))
        count = -(-g.ho // self.conv_rows)
        self.e.units.append(Unit(count, body))
        assert window.ho <= count * self.rows

    def end(self) -> None:
        """The second norm, whose statistics are known now, and the activation behind it."""
        self._group_stat(self.second, self.sums, self.means)
        window, norm = self.second.window, self.e.nodes[self.second.norm]
        refs: dict[str, Any] = {
            "xhat": self.winners,
            "y": self.y,
            "stat": self.sums,
            **self._affine(norm),
        }
        sizes: dict[str, Any] = {
            "channels": window.c_in,
            "width": window.ho * window.wo,
            "rows": 1,
            "window": 1,
        }
        self.e.emit("normalise", norm.name, **refs, **sizes)
        count = window.c_in * window.ho * window.wo
        for t in self.second.acts:
            act, mask = self.e.nodes[t], NOTHING
            if self.e.needs[act.inputs[0]]:
                mask = self.e.kept["mask", t] = self.e.new("mask", -(-count // 8))
            kind: dict[str, Any] = {"kind": ACTS.index(act.act), "slope": act.slope}
            self.e.emit("act", x=self.y, mask=mask, count=count, **kind)
        self.e.values[self.e.model.stages[self.second.s].value] = self.y


def _bytes(window: Geom) -> int:
    """Of the pooled output in full."""
    return window.c_in * window.ho * window.wo * 4
