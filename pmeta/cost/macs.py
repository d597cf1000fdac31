"""Multiply-accumulates of inference and of an adaptation step (App. A, Eq. 18). Plain Python."""

from collections.abc import Collection, Sequence

from pmeta.cost.ops import Op, Ratio, attended, below, channels, m, ratio_of_layers, reached


def layer_macs(
    ops: Sequence[Op],
    update: Collection[str] = (),
    mu_fw: Ratio = 1.0,
    mu_bw: Ratio = 1.0,
    attention: bool = False,
) -> dict[str, tuple[float, float]]:
    """MACs a sample of each layer, forward and backward (Eq. 18; attention's count as backward).

    A group norm takes 5 MACs an element forward, 2 for the input gradient, 1 for the weight
    gradient: with these the paper's figures come out. An input gradient costs what the forward pass
    costs, strides or not.
    """
    fw, bw = ratio_of_layers(ops, mu_fw), ratio_of_layers(ops, mu_bw)
    hit = reached(ops, update)
    with_scores = attended(ops, update) if attention else set()
    counts = {}
    for op in (op for op in ops if op.name):
        forward, g_x, g_w = _macs(op, fw[op.name], bw[op.name])
        backward = g_w if op.name in update else 0.0
        # Eq. 18 counts g(x) at the first updated layer too, the text before it does not; Table 3
        # (fc) follows the one and Table 2 (conv) the other.
        if below(op, hit) or (op.kind == "fc" and op.name in update):
            backward += g_x
        if op.name in with_scores:
            backward += m(op.x) + m(op.y) + 2 * sum(c**2 for c in channels(op))
        counts[op.name] = forward, backward
    return counts


def _macs(op: Op, mu_fw: float, mu_bw: float) -> tuple[float, float, float]:
    """MACs a sample of y, g(x) and g(w)."""
    if op.kind == "norm":  # one weight a channel: no more survive than the smaller ratio says
        return 5 * m(op.x), 2 * m(op.x), min(mu_fw, mu_bw) * m(op.x)
    forward = op.weight * m(op.y[:-1] if op.kind == "fc" else op.y[1:])  # H_O W_O m(w)
    return forward, forward, mu_fw * mu_bw * forward


def macs(
    ops: Sequence[Op],
    update: Collection[str] = (),
    mu_fw: Ratio = 1.0,
    mu_bw: Ratio = 1.0,
    attention: bool = False,
) -> float:
    """MACs a sample of one adaptation step (Eq. 18), of inference where nothing is updated."""
    return sum(
        forward + backward
        for forward, backward in layer_macs(ops, update, mu_fw, mu_bw, attention).values()
    )
