"""A program under construction: its buffers, its instructions, and which values need a gradient."""

from math import prod

from pmeta.compiler.fuse import Stage
from pmeta.compiler.ir import LANES, NOTHING, Choices, Instr, Model, Ref, Unit
from pmeta.compiler.memory_plan import Buffer
from pmeta.compiler.read_model import Node
from pmeta.device.format import FLAGS, float_bits


class Builder:
    """What the forward and the backward half of a program share."""

    def __init__(self, model: Model, live: frozenset[str], choices: Choices):
        self.m, self.live, self.choices = model, live, choices
        self.nodes = model.nodes
        self.units: list[Unit] = []
        self.updates: list[Unit] = []
        self.merges: list[Unit] = []
        """What ends a micro-batch: scores from all its samples, and its gradients times these."""
        self.buffers: list[Buffer] = []
        self.values: dict[int, Ref] = {-1: Ref(None, model.input_at)}
        """Where each value that still is needed lies."""
        self.kept: dict[tuple, Ref] = {}
        """What the forward half leaves for the backward half: ("xhat", node) and the like."""
        self.grads: dict[int, Ref] = {}
        self.acc: dict[str, Ref] = {}
        self.needs = self.needs_gradient()

    def needs_gradient(self) -> dict[int, bool]:
        """Which values need a gradient: those with an updated layer at or below them."""
        needs = {-1: False}
        for i, node in enumerate(self.nodes):
            needs[i] = node.name in self.live or any(needs[v] for v in node.inputs)
        return needs

    def updated_readers(self, value: int) -> list[int]:
        return [
            s.head
            for s in self.m.stages
            if s.head is not None and s.source == value and self.nodes[s.head].name in self.live
        ]

    def cap(self, head: int) -> int:
        """Channels of the layer's input that are stored, 0 for all of them in place."""
        node, score = self.nodes[head], self.m.scores.get((self.nodes[head].name, "fw"))
        source = self.source(head)
        alone = len(self.updated_readers(source)) == 1
        sparse = score is not None and score.kept < score.channels and not self.shares(node)
        return (
            score.kept
            if score and sparse and alone and source >= 0 and node.name in self.live
            else 0
        )

    def source(self, head: int) -> int:
        v = self.nodes[head].inputs[0]
        return v if v < 0 else self.m.root[v]

    def new(self, name: str, size: int, step: int = 0, persistent: bool = False) -> Ref:
        self.buffers.append(Buffer(name, persistent))
        return Ref(self.buffers[-1], size=size, step=step)

    def emit(self, body: list[Instr], rounds: int = 1) -> None:
        self.units.extend([Unit(1, [i]) for i in body] if rounds == 1 else [Unit(rounds, body)])

    def param(self, node: Node, which: int, step: int = 0) -> Ref:
        name = node.params[which] if node.params else ""
        return Ref(None, self.m.address[name], step=step) if name else NOTHING

    def copied_shape(self, stage: Stage) -> tuple[int, ...]:
        first = self.nodes[stage.tail[0]]
        return (first.geom.c_in, first.geom.h, first.geom.w) if first.geom else first.shape

    def keeps_norm(self, t: int) -> bool:
        return self.nodes[t].name in self.live or self.needs[self.nodes[t].inputs[0]]

    def full(self, name: str, shape: tuple[int, ...], rounds: int) -> Ref:
        size = prod(shape) * 4 // rounds
        return self.new(name, size, size if rounds > 1 else 0)

    def strip(self, s: int, pixels: int) -> int:
        return min(self.choices.strip.get(s, LANES), -(-pixels // LANES) * LANES)

    def fc_input(self, node: Node) -> tuple[int, int]:
        """(C, rows) of the layer's input."""
        rows = prod(node.shape[:-1])
        v = node.inputs[0]
        return prod(self.nodes[v].shape if v >= 0 else self.m.input_shape) // rows, rows

    def index_bytes(self, node: Node, rounds: int) -> int:
        assert node.geom is not None
        g = node.geom
        n = g.c_in // rounds * g.ho * g.wo
        return -(-n // 4) if g.kh * g.kw <= 4 else n

    def input_size(self, node: Node) -> tuple[int, int, bool]:
        """(channels, numbers a channel, whether rows come first) of a conv's or fc's input."""
        if node.geom:
            return node.geom.c_in, node.geom.h * node.geom.w, False
        c, t = self.fc_input(node)
        return c, t, True

    def gamma(self, node: Node, side: str, x: Ref, n: int, rows: bool) -> Ref:
        """gamma of one side from the tensor x (channels, n), Eqs. 10 and 11; NOTHING stands for 1, or for one to come."""
        score = self.m.scores.get((node.name, side))
        if score is None:
            return NOTHING
        if score.kind == "static":
            return Ref(None, score.at)
        c = score.channels
        gamma, scratch = self.new(f"gamma {side} {node.name}", c * 4), self.new("score", 3 * c * 4)
        flags = FLAGS["rows"] * rows + FLAGS["backward"] * (side == "bw")
        p = (c, n, float_bits(score.threshold))
        if not self.shares(node):
            self.emit(
                [
                    Instr(
                        "score", (gamma, x, Ref(None, score.at), scratch), p, flags, layer=node.name
                    )
                ]
            )
            return gamma
        total = self.acc[f"z {side} {node.name}"] = self.new(
            f"z {side} {node.name}", c * 4, persistent=True
        )
        self.emit(
            [
                Instr(
                    "score_sum", (total, x, Ref(None, score.at), scratch), p, flags, layer=node.name
                )
            ]
        )
        order, p = self.new("order", c * 4), (c, 1, p[2])
        self.merges.append(
            Unit(1, [Instr("score_mean", (gamma, total, order), p, layer=node.name)])
        )
        self.kept["shared", node.name, side] = gamma
        return NOTHING

    def shares(self, node: Node) -> bool:
        """Whether the layer's scores come from all samples of a micro-batch."""
        return self.m.shares and any(
            s.kind == "module" for (name, _), s in self.m.scores.items() if name == node.name
        )

    def accumulator(self, node: Node, which: int, layout: tuple[int, int, int]) -> Ref:
        """The accumulator of one parameter, (groups, depth, filters), and the update that empties it (Eq. 14)."""
        name = node.params[which]
        if not name:
            return self.new(f"unused {node.name}", prod(layout) * 4)
        self.acc[name] = self.new(f"acc {name}", prod(layout) * 4, persistent=True)
        w = Ref(None, self.m.address[name])
        self.updates.append(
            Unit(1, [Instr("update", (w, self.acc[name]), layout, layer=node.name)])
        )
        return self.merged(node, which, layout) if self.shares(node) else self.acc[name]

    def merged(self, node: Node, which: int, layout: tuple[int, int, int]) -> Ref:
        """The gradients of one micro-batch without gamma, which they are multiplied by before they are accumulated."""
        name, size = node.params[which], prod(layout)
        fw, bw = (self.kept.get(("shared", node.name, side), NOTHING) for side in ("fw", "bw"))
        part = self.acc[f"part {name}"] = self.new(f"part {name}", size * 4, persistent=True)
        if which == 1:
            factors, p = (bw, NOTHING), (1, size, 1, 1)
        elif node.kind == "norm":
            factors, p = (fw, bw), (size, 1, 1, 1)
        elif node.kind == "fc":
            factors, p = (bw, fw), (1, node.shape[-1], size // node.shape[-1], 1)
        else:
            assert node.geom is not None
            factors, p = (fw, bw), (*layout, node.geom.kh * node.geom.kw)
        self.merges.append(
            Unit(1, [Instr("merge", (self.acc[name], part, *factors), p, layer=node.name)])
        )
        return part

    def geom(self, s: int) -> int:
        """Geometries are numbered by their node; the writer packs them."""
        head = self.m.stages[s].head
        assert head is not None
        return head
