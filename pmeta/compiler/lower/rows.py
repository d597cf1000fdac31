"""Blocks of conv, norm and max-pool in strips of rows: only the winners are there as a whole.

A strip has all channels, so that its patches are gathered once; the statistics of the norm add up
from strip to strip, and the winners of the max-pool are normalized when the last is known.
"""

from typing import Any, NamedTuple

from pmeta.compiler.fuse import Tail
from pmeta.compiler.ir import ACTS, NOTHING, Instr, Ref, instr
from pmeta.compiler.lower.emitter import Emitter
from pmeta.compiler.read_model import Node
from pmeta.device.model_file import Geom


class Block(NamedTuple):
    """A conv, its norm if there is one, and the max-pool behind it."""

    s: int
    """The number of its stage."""
    conv: int
    norm: int | None
    pool: int
    acts: tuple[int, ...]
    geom: Geom
    """Of the conv."""
    window: Geom
    """Of the max-pool."""


def block_of(e: Emitter, s: int) -> Block | None:
    """Stage s as such a block, None if it is none."""
    stage = e.model.stages[s]
    tail = Tail.of(e.nodes, stage)
    normed = tail.pooled_first(e.nodes)
    order = normed.order[1:] if normed else tail.without_norm(e.nodes)
    if stage.head is None or order is None or e.nodes[stage.head].geom is None:
        return None
    norm, (pool, *acts) = normed.order[0] if normed else None, order
    geom, window = e.nodes[stage.head].geom, e.nodes[pool].geom
    assert geom is not None
    assert window is not None
    apart = window.ph == 0 and window.dh * (window.kh - 1) < window.sh
    inside = (window.ho - 1) * window.sh + window.dh * (window.kh - 1) < window.h
    if any(e.nodes[t].kind != "act" for t in acts) or not (apart and inside):
        return None
    return Block(s, stage.head, norm, pool, tuple(acts), geom, window)


def rows_forward(e: Emitter, block: Block, rows: int) -> None:
    """Emit one block whose input is there as a whole; `rows` of its output a round."""
    e.streamed |= {block.s}
    by_rows = RowBlock(e, block, rows)
    x, g = e.values[e.model.stages[block.s].source], block.geom
    body = by_rows.winners(x.whole(g.c_in * g.h * g.w * 4))
    e.emit_rounds(body, -(-g.ho // by_rows.conv_rows))
    by_rows.end()


def conv_rows(e: Emitter, b: Block, y: Ref, x: Ref, channels: int, **named: int) -> Instr:
    """The conv of a block, so many rows of it."""
    node, strip = e.nodes[b.conv], e.strip(b.s, named["rows"] * b.geom.wo)
    at = named.get("channel", 0)
    bias = e.param(node.bias)
    return instr(
        "conv",
        node.name,
        y=y,
        x=x,
        bias=bias._replace(at=bias.at + at * 4) if node.bias else NOTHING,
        patches=e.patches(node, strip),
        **e.weights(node, first=at),
        geom=b.conv,
        channels=channels,
        strip=strip,
        **named,
    )


def act_kind(act: Node) -> dict[str, Any]:
    """Which activation an instruction computes."""
    return {"kind": ACTS.index(act.act), "slope": act.slope}


def group_stat(e: Emitter, node: Node, geom: Geom, stat: Ref, means: Ref) -> None:
    """The statistics of the norm behind a conv, whose sums are known now."""
    c = geom.c_out
    sizes: dict[str, Any] = {
        "channels": c,
        "count": geom.ho * geom.wo,
        "per_group": c // node.groups,
    }
    e.emit("group_stat", node.name, stat=stat, means=means, eps=node.eps, **sizes)


def affine(e: Emitter, norm: Node) -> dict[str, Ref]:
    """Weight and bias of a norm."""
    return {"w": e.param(norm.weight), "bias": e.param(norm.bias)}


class RowBlock:
    """One block in strips: where its winners and sums lie, and what a strip adds to them."""

    def __init__(self, e: Emitter, block: Block, rows: int):
        self.e, self.block, self.rows = e, block, rows
        self.conv_rows = rows * block.window.sh
        self.sums = e.new("statistics", block.geom.c_out * 8) if block.norm is not None else NOTHING
        window, self.means = block.window, NOTHING
        size = window.c_in * window.ho * window.wo * 4
        self.winners_at = self.y = e.new(f"output of {e.nodes[block.conv].name}", size)
        if block.norm is not None and e.keeps_norm(block.norm):
            name = e.nodes[block.norm].name
            self.winners_at = e.kept["xhat", block.norm] = e.new(f"xhat {name}", size)
            self.means = e.kept["means", block.norm] = e.new(f"means {name}", window.c_in * 4)

    def winners(self, x: Ref, window: bool = False) -> list[Instr]:
        """Of one strip: the conv, its statistics and its winners; a window of x has its rows."""
        g, c = self.block.geom, self.block.geom.c_out
        y = self.e.new("strip", c * self.conv_rows * g.wo * 4, local=True)
        named: dict[str, Any] = {"rows": self.conv_rows, "window": window}
        body = [conv_rows(self.e, self.block, y, x, c, **named)]
        weight = NOTHING
        if self.block.norm is not None:
            rows: dict[str, Any] = {"plane": g.ho * g.wo, "width": g.wo, "rows": self.conv_rows}
            body.append(instr("moments", stat=self.sums, x=y, channels=c, **rows))
            weight = self.e.param(self.e.nodes[self.block.norm].weight)
        sizes: dict[str, Any] = {"geom": self.block.pool, "channels": c, "rows": self.rows}
        body.append(instr("maxpool", y=self.winners_at, x=y, w=weight, **sizes))
        return body

    def end(self) -> None:
        """The norm, whose statistics are known now, and the activation behind it."""
        window = self.block.window
        if self.block.norm is not None:
            self._normalise(self.e.nodes[self.block.norm])
        count = window.c_in * window.ho * window.wo
        for t in self.block.acts:
            act, mask = self.e.nodes[t], NOTHING
            if self.e.needs[act.inputs[0]]:
                mask = self.e.kept["mask", t] = self.e.new("mask", -(-count // 8))
            self.e.emit("act", x=self.y, mask=mask, count=count, **act_kind(act))
        self.e.values[self.e.model.stages[self.block.s].value] = self.y

    def _normalise(self, norm: Node) -> None:
        group_stat(self.e, norm, self.block.geom, self.sums, self.means)
        window = self.block.window
        refs: dict[str, Any] = {
            "xhat": self.winners_at,
            "y": self.y,
            "stat": self.sums,
            **affine(self.e, norm),
        }
        sizes: dict[str, Any] = {
            "channels": window.c_in,
            "width": window.ho * window.wo,
            "rows": 1,
            "window": 1,
        }
        self.e.emit("normalise", norm.name, **refs, **sizes)
