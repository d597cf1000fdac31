"""The program of one inner step on one sample (Sec. 3.2 to 3.5): forward, backward down to the first updated layer, update.

Only what the gradients need is kept from forward to backward: of updated layers the input, of it only the channels with
gamma_fw != 0; of group norms the normalized input; of activations one bit, of pooling windows the place of the maximum.
"""

from dataclasses import dataclass
from math import prod

from pmeta.compiler.emitter import Builder
from pmeta.compiler.ir import Choices, Instr, Model, Ref, Unit
from pmeta.compiler.lower_backward import stage_backward
from pmeta.compiler.lower_forward import compact, stage_forward
from pmeta.compiler.memory_plan import Buffer


@dataclass
class Program:
    """The instructions for one set of updated layers (none: inference). Buffers have their uses, offsets not yet."""

    forward: list[Unit]
    backward: list[Unit]
    update: list[Unit]
    merge: list[Unit]
    """Behind the last sample of a micro-batch whose samples share their scores."""
    buffers: list[Buffer]
    output: Ref
    g_output: Ref | None
    acc: dict[str, Ref]
    """Accumulators, zeroed before a step: gradients by parameter; sums of one micro-batch."""
    end: int = 0
    """The last time."""

    def __post_init__(self) -> None:
        """Times: a unit of instructions after the other, the loss between the forward and the backward half."""
        loss = Unit(1, [Instr("loss", tuple(r for r in (self.output, self.g_output) if r), ())])
        self.units = [*self.forward, loss, *self.backward, *self.merge, *self.update]
        for t, unit in enumerate(self.units):
            for instr in unit.body:
                for ref in instr.refs:
                    if ref.buffer is not None:
                        ref.buffer.uses.append((t, ref.size + ref.step * (unit.rounds - 1)))
        self.end = len(self.units)


def program(model: Model, live: frozenset[str], choices: Choices) -> Program:
    """The program that updates the layers `live`."""
    b = Builder(model, live, choices)
    if model.convert:
        words = prod(model.input_shape)
        plane = prod(model.input_shape[1:]) if len(model.input_shape) > 1 else words
        b.values[-1] = b.new("input", words * 4)
        b.emit([Instr("copy", (b.values[-1], Ref(None, model.input_at)), (words, plane))])
    for s, stage in enumerate(model.stages):
        stage_forward(b, s, stage)
        for value in stage.reads():
            if all(value not in later.reads() for later in model.stages[s + 1 :]):
                compact(b, value)
    last = model.stages[-1]
    output = b.values[last.value]._replace(size=prod(last.shape) * 4, step=0)
    forward, b.units, g_output = b.units, [], None
    if live:
        g_output = b.grads[last.value] = b.new("g(output)", output.size)
        for s, stage in reversed(list(enumerate(model.stages))):
            if b.needs[stage.value]:
                stage_backward(b, s, stage)
    return Program(forward, b.units, b.updates, b.merges, b.buffers, output, g_output, b.acc)
