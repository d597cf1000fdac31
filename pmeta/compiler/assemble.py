"""Programs as they stand in the file: offsets for buffers, numbers for geometries and layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pmeta.compiler.ir import Instr, Model, Program, Ref, Unit
from pmeta.device.instructions import NONE, RawInstr
from pmeta.device.model_file import Geom, RawProgram


@dataclass
class Assembled:
    """The tables of a file that hold programs."""

    programs: list[RawProgram] = field(default_factory=list)
    instrs: list[RawInstr] = field(default_factory=list)
    geoms: list[Geom] = field(default_factory=list)


def assemble(
    model: Model, programs: Sequence[Program], state: int, layers: Mapping[str, int]
) -> Assembled:
    """The tables of programs whose memory is planned; `layers` numbers the layers by name."""
    assembler = _Assembler(layers)
    for p in programs:
        assembler.add(p, state)
    made = assembler.made
    made.geoms = [geom for n in assembler.geoms if (geom := model.nodes[n].geom)]
    return made


class _Assembler:
    def __init__(self, layers: Mapping[str, int]):
        self.made = Assembled()
        self.layers = layers
        self.geoms: dict[int, int] = {}
        """The number of a geometry by its node."""

    def add(self, p: Program, state: int) -> None:
        first = len(self.made.instrs)
        forward, backward, update, merge = (
            self._section(units) for units in (p.forward, p.backward, p.update, p.merge)
        )
        acc = [ref.buffer for ref in p.acc.values() if ref.buffer]
        output = _address(p.output)
        self.made.programs.append(
            RawProgram(
                first=first,
                forward=forward,
                backward=backward,
                update=update,
                output=output,
                g_output=_address(p.g_output) if p.g_output else output,
                acc=min((b.offset for b in acc), default=state),
                acc_bytes=sum(max(size for _, size in b.uses) for b in acc),
                arena_bytes=p.arena_bytes,
                merge=merge,
            )
        )

    def _section(self, units: Sequence[Unit]) -> int:
        """Append units; how many instructions they are."""
        before = len(self.made.instrs)
        for unit in units:
            if unit.rounds > 1:
                sizes = {"rounds": unit.rounds, "body": len(unit.body)}
                self.made.instrs.append(RawInstr("loop", parameters=sizes))
            self.made.instrs.extend(self._raw(i) for i in unit.body)
        return len(self.made.instrs) - before

    def _raw(self, i: Instr) -> RawInstr:
        parameters = dict(i.parameters)
        if "geom" in parameters:
            parameters["geom"] = self.geoms.setdefault(parameters["geom"], len(self.geoms))
        if "layer" in parameters:
            parameters["layer"] = self.layers[parameters["layer"]]
        at = {name: _address(ref) for name, ref in i.operands.items()}
        steps = {name: ref.step for name, ref in i.operands.items() if at[name] != NONE}
        return RawInstr(i.op, at, steps, parameters, i.flags)


def _address(ref: Ref) -> int:
    return ref.at if ref.buffer is None else ref.buffer.offset + ref.skip
