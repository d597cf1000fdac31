"""Storage: what the backward half needs of x and xhat lies packed, in two bytes a number or one.

A record is one channel, or one row of an fc layer's or layer norm's input: its scale and shift,
then its numbers. An input is packed in place once nothing reads it forward any more. The normalized
input of a norm is packed part by part as it is made, so that it is never there as a whole, unless
it runs in one part. Weight gradients read records where they lie; a norm's are unpacked part by
part, and become its input gradient there. What is computed again, or streamed, stays float32.
"""

from math import prod
from typing import Any

from pmeta.base.number_types import LEAST
from pmeta.compiler.ir import NOTHING, Instr, Ref, instr
from pmeta.compiler.lower.emitter import Emitter, Size
from pmeta.compiler.packing import FLAGS, ITEM

HEAD = 8
"""Bytes of scale and shift."""


def packs(e: Emitter, numbers: int) -> bool:
    """Whether a record of so many numbers is packed."""
    return e.model.store != "float32" and numbers >= LEAST


def record_bytes(e: Emitter, numbers: int) -> int:
    return HEAD + -(-numbers * ITEM[FLAGS[e.model.store]] // 4) * 4


def flags(e: Emitter) -> dict[str, Any]:
    """Of the instructions that read or write records."""
    flag = FLAGS[e.model.store]
    return {flag: True} if flag else {}


def packed_input(e: Emitter, value: int) -> Size | None:
    """The size of a value whose updated readers find it packed; None: it stays as it is.

    The head reads its input again at once, a conv that runs again needs it whole, and so does a
    product."""
    heads, readers = e.updated_readers(value), e.model.heads_of.get(value, [])
    sizes = {e.input_size(e.nodes[head]) for head in heads}
    if len(sizes) != 1 or value < 0 or value in e.factors:
        return None
    again = any(stage.head in readers and e.runs_again(stage) for stage in e.model.stages)
    if again or e.model.last_layer in [e.nodes[head].name for head in heads]:
        return None
    (size,) = sizes
    return size if packs(e, size.channels if size.rows_first else size.plane) else None


def pack_input(e: Emitter, value: int, size: Size) -> None:
    """Pack a value in place, of it only the channels with gamma_fw != 0 if its reader has such."""
    heads = e.updated_readers(value)
    x = e.values[value].whole(size.bytes())
    for head in heads:
        e.kept["gamma", head] = e.gamma(e.nodes[head], "fw", x, size)
    stored = e.stored_channels(heads[0])
    gamma = e.kept["gamma", heads[0]] if stored else NOTHING
    kept = stored or size.channels
    records, numbers = (size.plane, kept) if size.rows_first else (kept, size.plane)
    y = e.values[value] = x.whole(records * record_bytes(e, numbers))
    name, sizes = e.nodes[heads[0]].name, size._asdict()
    e.emit("pack", name, y=y, x=x, gamma=gamma, stored=stored or 0, **sizes, **flags(e))
    e.packed.add(value)


class Records:
    """The normalized input of norm t in records, as many as one round has."""

    def __init__(self, e: Emitter, t: int, shape: tuple[int, ...], rounds: int):
        self.e, self.t, self.node, self.rounds = e, t, e.nodes[t], rounds
        records = self.node.groups if self.node.kind == "layer_norm" else shape[0]
        self.records, self.numbers = records // rounds, prod(shape) // records
        self.named = {"channels": self.records, "plane": self.numbers, **flags(e)}
        self.size = self.records * record_bytes(e, self.numbers)

    @property
    def pack_them(self) -> bool:
        return packs(self.e, self.numbers)

    def pack(self, xhat: Ref) -> list[Instr]:
        """What packs one part: in place, or elsewhere where it is gone after its round.

        Scores look at the means of its channels."""
        e, name = self.e, self.node.name
        here = xhat.buffer is not None and not xhat.buffer.local
        y = xhat if here else e.new(f"xhat {name}", self.size)
        y = e.kept["xhat", self.t] = y.parts(self.size, self.rounds)
        e.packed_norms.add(self.t)
        body = [instr("pack", name, y=y, x=xhat, **self.named)]
        scores = e.model.gammas.get((name, "fw")) if name in e.live else None
        if scores and scores.kind == "module" and ("means", self.t) not in e.kept:
            size = self.records * 4
            means = e.kept["means", self.t] = e.new(f"means {name}", size).parts(size, self.rounds)
            sizes: dict[str, Any] = {"channels": self.records, "plane": self.numbers}
            body.insert(0, instr("moments", name, stat=means, x=xhat, **sizes, means=True))
        return body

    def pack_rows(self) -> None:
        """Emit the same for a layer norm, whose scores look at its rows."""
        e, node, xhat = self.e, self.node, self.e.kept["xhat", self.t]
        if node.name in e.live:
            size = Size(self.numbers, self.records, rows_first=True)
            e.kept["gamma", self.t] = e.gamma(node, "fw", xhat, size)
        y = e.kept["xhat", self.t] = xhat.whole(self.size)
        e.packed_norms.add(self.t)
        e.emit("pack", node.name, y=y, x=xhat, **self.named)

    def unpack(self, y: Ref) -> Instr:
        x = self.e.kept["xhat", self.t].parts(self.size, self.rounds)
        return instr("unpack", self.node.name, y=y, x=x, **self.named)
