"""Recomputation: a conv runs again in the backward half, a few channels at a time.

The input gradient of a norm needs the conv's whole output. Where the norm stands before a max-pool,
the winners, the statistics and the places of the winners are enough to begin with; the rest is
computed once more, and its gradient goes into the accumulators at once, so that neither is ever
there as a whole.
"""

from typing import Any

from pmeta.compiler.fuse import Stage
from pmeta.compiler.ir import LANES, NOTHING, Instr, Ref, instr
from pmeta.compiler.lower.emitter import Emitter, Size


def head_again(
    e: Emitter, s: int, stage: Stage, g: Ref, sums: tuple[Ref, Ref], rounds: int
) -> None:
    """Emit the backward half of a stage's conv; `g` is the gradient of the pooled norm.

    `sums` are the mean of g and the sum of g xhat, by channel."""
    _Again(e, s, stage, g, rounds).emit(*sums)


class _Again:
    def __init__(self, e: Emitter, s: int, stage: Stage, g: Ref, rounds: int):
        assert stage.head is not None
        self.e, self.s, self.stage, self.g, self.rounds = e, s, stage, g, rounds
        self.norm, self.pool, *_ = e.tail(stage).order
        self.node = e.nodes[stage.head]
        geom, window = self.node.geom, e.nodes[self.pool].geom
        assert geom is not None
        assert window is not None
        self.geom, self.window = geom, window
        self.channels = geom.c_out // rounds
        size = Size(geom.c_in, geom.h * geom.w)
        self.x = e.values[stage.source].whole(size.bytes())
        self.size = size

    def emit(self, mean: Ref, products: Ref) -> None:
        e, c, node = self.e, self.geom.c_out, self.node
        norm, window = e.nodes[self.norm], self.window
        coef = e.new(f"coefficients {norm.name}", c * 16)
        refs = {"coef": coef, "stat": e.kept["stat", self.norm].whole(c * 8)}
        refs |= {"means": e.kept["means", self.norm].whole(c * 4), "w": e.param(norm.weight)}
        sizes = {"channels": c, "plane": window.h * window.w, "pooled": window.ho * window.wo}
        per_group = c // norm.groups
        sums = {"mean": mean, "products": products}
        e.emit("norm_coef", norm.name, **refs, **sums, **sizes, per_group=per_group)
        gamma_fw = gamma_bw = NOTHING
        if node.name in e.live:
            gamma_fw = e.gamma(node, "fw", self.x, self.size)
            gamma_bw = e.gamma(node, "bw", coef.whole(c * 4), Size(c, 1))
        tile = e.new("part", self.channels * window.h * window.w * 4, local=True)
        body = [self._conv(tile), self._norm_pool(tile, coef)]
        if node.name in e.live:
            body += self._weight_gradient(tile, gamma_fw, gamma_bw)
        if self.stage.source >= 0 and e.needs[self.stage.source]:
            body.append(self._input_gradient(tile))
        e.emit_rounds(body, self.rounds)

    def _conv(self, tile: Ref) -> Instr:
        strip = self.e.strip(self.s, self.geom.ho * self.geom.wo)
        patches = self.e.patches(self.node, strip)
        refs = {"y": tile, "x": self.x, "patches": patches}
        refs |= self.e.weights(self.node, self.channels)
        refs["bias"] = self.e.param(self.node.bias, self.channels * 4)
        sizes: dict[str, Any] = {"channels": self.channels, "strip": strip}
        return instr("conv", self.node.name, **refs, **sizes, geom=self.stage.head)

    def _norm_pool(self, tile: Ref, coef: Ref) -> Instr:
        channels, window = self.channels, self.window
        gy = self.g.parts(channels * window.ho * window.wo * 4, self.rounds)
        index = self.e.kept["index", self.pool].parts(window.index_bytes(channels), self.rounds)
        rows = coef._replace(size=(3 * self.geom.c_out + channels) * 4, step=channels * 4)
        refs: dict[str, Any] = {"x": tile, "gy": gy, "index": index, "coef": rows}
        sizes: dict[str, Any] = {"channels": channels, "stride": self.geom.c_out}
        return instr("norm_pool_bw", **refs, **sizes, geom=self.pool)

    def _weight_gradient(self, tile: Ref, gamma_fw: Ref, gamma_bw: Ref) -> list[Instr]:
        e, g, node, channels = self.e, self.geom, self.node, self.channels
        strip, lanes = e.strip(self.s, g.ho * g.wo), -(-channels // LANES) * LANES
        patches = e.new("patches", (g.depth + lanes) * strip * 4, local=True)
        acc = e.accumulator(node, node.weight, (1, g.depth, g.c_out))
        if gamma_bw != NOTHING:
            gamma_bw = gamma_bw._replace(size=channels * 4, step=channels * 4)
        refs = {"acc": acc, "gy": tile, "x": self.x, "gamma_fw": gamma_fw, "gamma_bw": gamma_bw}
        sizes: dict[str, Any] = {"channels": channels, "strip": strip, "geom": self.stage.head}
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
