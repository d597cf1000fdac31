"""Programs in the file: symbols become numbers, buffers offsets."""

from pmeta.compiler.assemble import assemble
from pmeta.compiler.ir import NOTHING, Buffer, Instr, Model, Program, Ref, Unit, instr
from pmeta.compiler.read_model import Node
from pmeta.device.model_file import Geom

GEOM = Geom(2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1)


def conv(node: int, y: Ref) -> Instr:
    patches = Ref(Buffer("patches", offset=64))
    bias = NOTHING._replace(step=4)
    refs = {"y": y, "x": Ref(None, 8), "w": Ref(None, 0), "bias": bias, "patches": patches}
    return Instr("conv", refs, {"geom": node, "channels": 1, "strip": 16})


def test_symbols_become_numbers() -> None:
    nodes = [Node("act", (-1,), (2, 1, 1)), *[Node("conv", (-1,), (2, 1, 1), geom=GEOM)] * 2]
    y = Ref(Buffer("y", offset=32), size=4, step=4)
    acc = Ref(Buffer("acc", persistent=True, offset=16), size=8)
    update = instr("update", w=Ref(None, 0), acc=acc, layer="b", groups=1, depth=2, filters=1)
    p = Program(
        forward=[Unit(2, [conv(2, y)]), Unit(1, [conv(1, y)]), Unit(1, [conv(2, y)])],
        backward=[],
        update=[Unit(1, [update])],
        merge=[],
        buffers=[],
        output=y,
        g_output=None,
        acc={"b.weight": acc},
        arena_bytes=128,
    )
    made = assemble(Model(nodes, [], {}, {}, (2, 1, 1)), [p], 16, {"a": 0, "b": 1})
    assert [i.op for i in made.instrs] == ["loop", "conv", "conv", "conv", "update"]
    assert made.instrs[0].parameters == {"rounds": 2, "body": 1}
    assert [i.parameters["geom"] for i in made.instrs[1:4]] == [0, 1, 0]  # in the order of use
    assert made.geoms == [GEOM, GEOM]
    assert made.instrs[4].parameters["layer"] == 1
    assert made.instrs[1].at["y"] == 32
    assert "bias" not in made.instrs[1].step  # what is not there does not move on
    (raw,) = made.programs
    assert (raw.first, raw.forward, raw.backward, raw.update, raw.merge) == (0, 4, 0, 1, 0)
    assert (raw.output, raw.g_output, raw.acc, raw.acc_bytes, raw.arena_bytes) == (
        32,
        32,
        16,
        8,
        128,
    )
