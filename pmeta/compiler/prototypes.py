"""The pass over the support set that makes the head from prototypes.

It is a step that updates the head, in which the engine puts the label in place of the gradient of
the output: the accumulators then hold the sums and the numbers of samples of each class. What ends
it makes the head from these.
"""

from pmeta.compiler.ir import Model, Program, Ref, Unit, instr


def prototypes(model: Model, p: Program, scale: float) -> None:
    """Make a step that updates the head the program of the pass; `scale` is s."""
    head = model.nodes[-1]
    weight, bias = (Ref(None, model.address[name]) for name in (head.weight, head.bias))
    sums, counts = p.acc[head.weight], p.acc[head.bias]
    outputs = head.shape[-1]
    sizes = {"outputs": outputs, "inputs": sums.size // 4 // outputs, "scale": scale}
    made = instr("prototypes", head.name, w=weight, bias=bias, acc=sums, count=counts, **sizes)
    p.update = [Unit(1, [made])]
