"""The program of one inner step on one sample (Sec. 3.2 to 3.5).

Forward, backward down to the first updated layer, update. Only what the gradients need is kept
from forward to backward: of updated layers the input, of it only the channels with gamma_fw != 0;
of group norms the normalized input; of activations one bit, of pooling windows the place of the
maximum.
"""

from math import prod

from pmeta.compiler.ir import Model, Program, Tiling
from pmeta.compiler.lower.backward import stage_backward
from pmeta.compiler.lower.emitter import Emitter
from pmeta.compiler.lower.forward import compact, stage_forward
from pmeta.compiler.lower.rows import block_of, rows_forward
from pmeta.compiler.lower.stream import blocks, stream


def program(model: Model, live: frozenset[str], tiling: Tiling) -> Program:
    """The program that updates the layers `live`."""
    e = Emitter(model, live, tiling)
    if model.convert:
        _convert_input(e)
    pair = blocks(e) if tiling.stream else None
    if pair and tiling.stream:
        stream(e, pair, *tiling.stream)
    for s, stage in enumerate(model.stages):
        if pair and s < len(pair):
            continue
        block = block_of(e, s) if s in tiling.by_rows else None
        if block:
            rows_forward(e, block, tiling.rows)
        else:
            stage_forward(e, s, stage)
        for value in stage.reads():
            if model.last_reader[value] == s:
                compact(e, value)
    last = model.stages[-1]
    output = e.values[last.value].whole(prod(last.shape) * 4)
    forward, e.units, g_output = e.units, [], None
    if live:
        g_output = e.grads[last.value] = e.new("g(output)", output.size)
        for s, stage in reversed(list(enumerate(model.stages))):
            if e.needs[stage.value]:
                stage_backward(e, s, stage)
    return Program(forward, e.units, e.updates, e.merges, e.buffers, output, g_output, e.acc)


def _convert_input(e: Emitter) -> None:
    shape = e.model.input_shape
    count = prod(shape)
    sample, e.values[-1] = e.values[-1], e.new("input", count * 4)
    plane = prod(shape[1:]) if len(shape) > 1 else count
    e.emit("copy", y=e.values[-1], x=sample, count=count, plane=plane)
