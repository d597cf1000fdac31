"""A conv's backward half in parts of its filters: the gradient of its output is never whole."""

from typing import Any

from pmeta.compiler.fuse import Stage
from pmeta.compiler.ir import LANES, NOTHING, Instr, Ref, instr
from pmeta.compiler.lower.emitter import Emitter, Size
from pmeta.compiler.lower.store import flags


class HeadParts:
    """What each round adds to the gradients of a conv's weights and input."""

    def __init__(self, e: Emitter, s: int, stage: Stage, rounds: int):
        assert stage.head is not None
        self.e, self.s, self.stage, self.rounds = e, s, stage, rounds
        self.node = e.nodes[stage.head]
        assert self.node.geom is not None
        self.geom = self.node.geom
        self.channels = self.geom.c_out // rounds
        self.size = Size(self.geom.c_in, self.geom.h * self.geom.w)
        self.stored = e.stored_channels(stage.head)
        packed = stage.source in e.packed
        value = e.values[stage.source]
        self.x = value if packed else value.whole(self.size.bytes(self.stored))
        self.packed = flags(e) if packed else {}

    def gamma_fw(self) -> Ref:
        kept = self.e.kept.get(("gamma", self.stage.head or 0))
        return kept or self.e.gamma(self.node, "fw", self.x, self.size)

    def gradients(self, tile: Ref, gamma_fw: Ref, gamma_bw: Ref) -> list[Instr]:
        """Of the weights, if they are updated, and of the input, if it is needed."""
        body = []
        if self.node.name in self.e.live:
            body += self._weight_gradient(tile, gamma_fw, gamma_bw)
        if self.stage.source >= 0 and self.e.needs[self.stage.source]:
            body.append(self._input_gradient(tile))
        return body

    def _weight_gradient(self, tile: Ref, gamma_fw: Ref, gamma_bw: Ref) -> list[Instr]:
        e, g, node, channels = self.e, self.geom, self.node, self.channels
        strip, lanes = e.strip(self.s, g.ho * g.wo), -(-channels // LANES) * LANES
        patches = e.new("patches", (g.depth + lanes) * strip * 4, local=True)
        acc = e.accumulator(node, node.weight, (1, g.depth, g.c_out))
        if gamma_bw != NOTHING:
            gamma_bw = gamma_bw._replace(size=channels * 4, step=channels * 4)
        refs = {"acc": acc, "gy": tile, "x": self.x, "gamma_fw": gamma_fw, "gamma_bw": gamma_bw}
        sizes: dict[str, Any] = {"channels": channels, "strip": strip, "geom": self.stage.head}
        sizes |= {"stored": self.stored or 0, **self.packed}
        body = [instr("conv_bw_w", node.name, **refs, patches=patches, **sizes)]
        if node.bias:
            acc = e.accumulator(node, node.bias, (1, g.c_out, 1))
            refs = {"acc": acc.part(channels * 4), "gy": tile, "gamma_bw": gamma_bw}
            plane: dict[str, Any] = {"channels": channels, "plane": g.ho * g.wo}
            body.append(instr("bias_bw", node.name, **refs, **plane))
        return body

    def _input_gradient(self, tile: Ref) -> Instr:
        e, g, source = self.e, self.geom, self.stage.source
        add, size = source in e.grads, self.size.bytes()
        gx = e.grads[source] if add else e.new(f"g(value {source})", size)
        gx = e.grads[source] = gx.whole(size)
        strip = e.strip(self.s, g.h * g.w)
        patches = e.new("patches", self.channels * g.kh * g.kw * (strip + 4) * 4, local=True)
        refs = {"gx": gx, "gy": tile, "patches": patches, **e.weights(self.node, self.channels)}
        sizes: dict[str, Any] = {"channels": self.channels, "strip": strip, "add": add}
        return instr("conv_bw_x", self.node.name, **refs, **sizes, geom=self.stage.head)


def head_by_parts(
    e: Emitter, head: HeadParts, tile: Ref, body: list[Instr], again: list[Instr]
) -> None:
    """Emit a stage's tail and head in one loop; `tile` is where the tail leaves g(y), `again` what
    leaves it there once more.

    Attention looks at g(y) of all channels first, so that it takes two loops."""
    c, gamma_fw, gamma_bw = head.geom.c_out, NOTHING, NOTHING
    if head.node.name in e.live:
        gamma_fw = head.gamma_fw()
        scores = e.model.gammas.get((head.node.name, "bw"))
        if scores and scores.kind == "module":
            means = e.new("means", head.channels * 4, head.channels * 4)
            sizes: dict[str, Any] = {
                "channels": head.channels,
                "plane": head.geom.ho * head.geom.wo,
            }
            e.emit_rounds(
                [*body, instr("moments", stat=means, x=tile, **sizes, means=True)], head.rounds
            )
            gamma_bw, body = e.gamma(head.node, "bw", means.whole(c * 4), Size(c, 1)), again
        else:
            gamma_bw = e.gamma(head.node, "bw", NOTHING, Size(c, 1))
    e.emit_rounds([*body, *head.gradients(tile, gamma_fw, gamma_bw)], head.rounds)
