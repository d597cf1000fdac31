"""The inner loop (Eqs. 1, 3, 4, 6, 13 and 14): one step for all methods, on all tasks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from pmeta.method.attention import Gammas
from pmeta.method.learned import Meta
from pmeta.method.methods import Method
from pmeta.method.prototypes import LOG_SCALE, count_classes, prototype_head
from pmeta.method.weight_gradient import scale, weight_gradients
from pmeta.network.layers import Layer, Network, Weights
from pmeta.network.tape import Edits, Kept, forward, unchanged

Loss = Callable[[Any, Any], Tensor]
"""From the network's output and the targets of B samples to the loss of each. (B,)"""
Scores = dict[str, tuple[Tensor | None, Tensor | None]]
"""gamma_fw and gamma_bw of the layers that were updated, by name; None where there is no
attention."""


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:  # (B, n_way), (B,) -> (B,)
    """The loss of classification."""
    return F.cross_entropy(logits, y, reduction="none")


def mse(output: Tensor, y: Tensor) -> Tensor:  # (B, ...), (B, ...) -> (B,)
    """The loss of regression: the mean over a sample's outputs of the squared error."""
    return (output - y).square().flatten(1).mean(1)


class Adapted(NamedTuple):
    """What K inner steps give."""

    w: Weights
    scores: list[Scores]
    """Of each step, in order."""


@dataclass(frozen=True)
class InnerLoop:
    """K steps of w_l <- w_l - alpha_l^k (gamma_l * g(w_l)) on a support set (Eq. 14)."""

    net: Network
    method: Method
    loss: Loss = cross_entropy
    batch: int | None = None
    """Samples in a micro-batch of gradient accumulation (Sec. 3.5.1), which share their scores;
    None: the whole support set."""
    vectorised: bool = True
    """Accumulate over all micro-batches in one pass, which gives the same update; else, and always
    where a batch norm makes a sample depend on its micro-batch, one pass for each."""
    second_order: bool = False
    """Keep the graph, so that the outer loop can differentiate through the gradients; else they
    count as constants."""
    recompute: bool = False
    """Hold the graph of one step at a time, and compute each step a second time when the outer loop
    comes back to it: a K-th of the memory for a fifth to a third more time."""
    pool_first: bool = True
    """Compute a norm only where the max-pool behind it looks: the same in half the time; False is
    for comparison."""

    classes: int | None = None
    """With a head from prototypes: how many it tells apart; None: those of the support set."""

    def __post_init__(self) -> None:
        if self.batch is not None and self.batch < 1:
            raise ValueError(
                f"a micro-batch has at least 1 sample, got batch={self.batch}: leave it out for "
                "the whole set."
            )

    def adapt(self, meta: Meta, support: tuple[Any, Any]) -> Adapted:
        """The weights after K steps on `support` = (x, y), and the scores used on the way."""
        self.check(meta, support)
        return self.steps(meta, support)

    def check(self, meta: Meta, support: tuple[Any, Any]) -> None:
        """Raise ValueError for a support set or step sizes that cannot be."""
        _check(self.net, meta, support)
        self.check_targets(meta, support)

    def check_targets(self, meta: Meta, samples: tuple[Any, Any]) -> None:
        """Raise ValueError for samples that are complex, and for labels that are no outputs."""
        x, y = samples
        if isinstance(x, Tensor) and x.is_complex():
            raise ValueError(
                f"samples are real numbers, got {x.dtype}: give real and imaginary parts as "
                "channels (torch.view_as_real)."
            )
        is_label = isinstance(y, Tensor) and not y.is_floating_point()
        if self.loss is cross_entropy and is_label and not meta.head:
            _check_labels(y, self.net.head.c_out)

    def steps(self, meta: Meta, support: tuple[Any, Any]) -> Adapted:
        """`adapt` without a look at what it is given."""
        scores, kept = [], Kept(self._unchanging(meta), {})
        w = self.start(meta, support, kept)
        for k in range(len(meta.alpha)):
            w, used = self.step(meta, w, k, support, kept)
            scores.append(used)
        return Adapted(w, scores)

    def start(self, meta: Meta, support: tuple[Any, Any], kept: Kept | None = None) -> Weights:
        """The weights before the first step: the learned ones, or with the head made from
        prototypes in one more pass over the support set."""
        if not meta.head:
            return meta.w
        (x, y), head = support, self.net.head
        classes = self.classes or count_classes(y)
        blank = {
            name: p.detach().new_zeros(classes, *p.shape[1:])
            for name, p in self.net.model.named_parameters()
            if name in head.params
        }
        w = {**meta.w, **blank}
        _, tape = forward(self.net, w, x, [head], pool_first=self.pool_first, kept=kept)
        own = prototype_head(tape[head.name].x, y, classes, meta.head[LOG_SCALE])
        return {**w, **dict(zip(head.params, own, strict=True))}

    def _unchanging(self, meta: Meta) -> frozenset[str]:
        """The layers that run before the first one that any step updates: theirs is the same output
        in every step.

        None where a parameter of no layer is updated, since nobody knows what reads it."""
        ever = meta.mask.any(0).tolist()
        first = ever.index(True) if True in ever else 0
        kinds = [layer.kind for layer in self.net.layers]
        if ("param", True) in zip(kinds, ever, strict=True):
            first = 0
        return frozenset(layer.name for layer in self.net.layers[:first])

    def path(
        self,
        meta: Meta,
        support: tuple[Any, Any],
        before: Callable[[], None] = lambda: None,
    ) -> list[Weights]:
        """The weights before the first step and after each, without a graph or a look at what it is
        given.

        `before` is called before the start and before each step."""
        meta, loop = meta.map(Tensor.detach), replace(self, second_order=False)
        before()
        path = [self.start(meta, support)]
        for k in range(len(meta.alpha)):
            before()
            path.append(loop.step(meta, path[-1], k, support)[0])
        return path

    def step(
        self, meta: Meta, w: Weights, k: int, support: tuple[Any, Any], kept: Kept | None = None
    ) -> tuple[Weights, Scores]:
        """One step k from the weights w; `kept` holds what earlier steps on the same support set
        have computed for this one."""
        alive = zip(self.net.layers, meta.mask[k].tolist(), strict=True)
        live = [layer for layer, updated in alive if updated]
        if not live:
            return w, {}
        x, y = support
        at_once = self.batch is None or (self.vectorised and not self.net.mixes_samples)
        gammas = Gammas(self.net, self.method, meta.attention, self.batch if at_once else None)
        size = len(x) if at_once else self.batch or 1
        kept = kept if at_once else None
        parts = [
            self._gradients(w, gammas, live, (x[i : i + size], y[i : i + size]), len(x), kept)
            for i in range(0, len(x), size)
        ]
        g_w = parts[0][0]
        for more, _ in parts[1:]:
            g_w = {name: g + more[name] for name, g in g_w.items()}
        new = dict(w)
        for layer, alpha in zip(self.net.layers, meta.alpha[k].unbind(), strict=True):
            for name in layer.params if layer in live else ():
                new[name] = w[name] - alpha * g_w[name]  # Eq. 14
        return new, _joined([used for _, used in parts])

    def _gradients(
        self,
        w: Weights,
        gammas: Gammas,
        live: list[Layer],
        part: tuple[Any, Any],
        n: int,
        kept: Kept | None,
    ) -> tuple[Weights, Scores]:
        """gamma * g(w_l) of the live layers on one part of a support set of n samples."""
        tied = [layer for layer in live if layer.kind != "param"]
        alone = [layer.name for layer in live if layer.kind == "param"]
        if not self.second_order:
            w = {name: t.detach() for name, t in w.items()}
        constant = [name for name in alone if not w[name].requires_grad]
        w = {**w, **{name: w[name].detach().requires_grad_() for name in constant}}
        hooks: list[RemovableHandle] = []
        with torch.enable_grad():
            edits = self._edits(gammas, hooks)
            output, tape = forward(self.net, w, part[0], tied, edits, self.pool_first, kept)
            total = _sum_of_losses(self.loss(output, part[1]), len(part[0])) / n
            inputs = [tape[layer.name].y for layer in tied] + [w[name] for name in alone]
            with tape.gate.shut():
                g = torch.autograd.grad(
                    total, inputs, create_graph=self.second_order, allow_unused=True
                )
        for hook in hooks:
            hook.remove()  # the outer backward pass comes through here too
        _check_used(tied, alone, g)
        g_w = dict(zip(alone, g[len(tied) :], strict=True))
        scores: Scores = {}
        for layer, g_y in zip(tied, g[: len(tied)], strict=True):
            stored = tape[layer.name] if self.second_order else tape[layer.name].detached()
            gamma_fw = gamma_bw = None
            if self.method.sparse_fw == "w":
                gamma_fw = gammas(layer, "fw", stored.seen)
            if self.method.sparse_bw == "w":
                gamma_bw = gammas(layer, "bw", g_y, stored.share)
            g_l = weight_gradients(layer, stored.x, g_y, gamma_fw, gamma_bw)  # Eq. 13
            g_w.update(zip(layer.params, g_l, strict=True))
            scores[layer.name] = (gamma_fw, gamma_bw)
        return g_w, scores

    def _edits(self, gammas: Gammas, hooks: list[RemovableHandle]) -> Edits:
        """What happens to x_{l-1} and, by hooks, to g(y_l) on their way.

        Nothing, but for the ablations of Table 7."""

        def edit_x(layer: Layer, x: Tensor) -> Tensor:
            return scale(layer, x, gammas(layer, "fw", x))

        def edit_y(layer: Layer, y: Tensor) -> Tensor:
            # a hook on y itself may come after autograd.grad has taken its gradient
            passed_on = y.view_as(y)
            hooks.append(passed_on.register_hook(lambda g: scale(layer, g, gammas(layer, "bw", g))))
            return passed_on

        return Edits(
            edit_x if self.method.sparse_fw == "x" else unchanged,
            edit_y if self.method.sparse_bw == "y" else unchanged,
        )


def _check_labels(y: Tensor, outputs: int) -> None:
    """Those that cross-entropy leaves out, -100, may be there."""
    bad = y[((y < 0) & (y != -100)) | (y >= outputs)]
    if len(bad):
        raise ValueError(
            f"a label is one of the {outputs} outputs of the network, 0 to {outputs - 1}, got "
            f"{int(bad[0])}: number the classes of a task from 0."
        )


def _sum_of_losses(losses: Tensor, n: int) -> Tensor:
    if losses.shape != (n,):
        raise ValueError(
            f"the loss function gives the loss of each of the {n} samples, shape ({n},), got "
            f"{tuple(losses.shape)}: leave its mean over samples to the inner loop (in PyTorch "
            "reduction='none')."
        )
    return losses.sum()


def _check_used(tied: list[Layer], alone: list[str], g: tuple[Tensor | None, ...]) -> None:
    names = [layer.name for layer in tied] + alone
    unused = [name for name, part in zip(names, g, strict=True) if part is None]
    if unused:
        raise ValueError(
            "the loss must depend on every layer that is updated, it does not on "
            f"{', '.join(unused)}: set mask to False there."
        )


def _joined(parts: list[Scores]) -> Scores:
    """The scores of all micro-batches below each other, detached. (rows, C)"""

    def join(gammas: list[Tensor | None]) -> Tensor | None:
        kept = [g.detach() for g in gammas if g is not None]
        return torch.cat(kept) if kept else None

    return {
        name: (join([p[name][0] for p in parts]), join([p[name][1] for p in parts]))
        for name in parts[0]
    }


def _check(net: Network, meta: Meta, support: tuple[Any, Any]) -> None:
    x, y = support
    if len(x) == 0 or len(x) != len(y):
        raise ValueError(
            f"a support set has as many targets as samples, at least one, got {len(x)} samples, "
            f"{len(y)} targets."
        )
    if meta.alpha.dim() != 2 or meta.alpha.shape[1] != len(net.layers) or len(meta.alpha) == 0:
        raise ValueError(
            "alpha has a row for each step, at least one, and a column for each of the "
            f"{len(net.layers)} layers, got shape {tuple(meta.alpha.shape)}."
        )
    if meta.mask.shape != meta.alpha.shape:
        raise ValueError(
            f"mask says for each step size of alpha, shape {tuple(meta.alpha.shape)}, whether it "
            f"may update its layer, got shape {tuple(meta.mask.shape)}."
        )
    own = net.head.params if meta.head else ()
    if {*meta.w, *own} != dict(net.model.named_parameters()).keys():
        raise ValueError(
            "the weights have the names of the model's parameters, got others: take them from "
            "net.weights()."
        )
    if (meta.alpha < 0).any():
        k, l = (meta.alpha < 0).nonzero()[0].tolist()
        raise ValueError(
            f"step sizes must not be negative, got alpha={float(meta.alpha[k, l]):g} for layer "
            f"{net.layers[l].name!r} at step {k + 1}: set it to 0 to leave the layer as it is."
        )
