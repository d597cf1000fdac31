"""What meta-training learns (Alg. 2): the weights, the step sizes and the attention parameters."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pmeta.method.attention import check_scored, has_scores, init_attention, init_static
from pmeta.method.methods import Method
from pmeta.method.prototypes import init_scale
from pmeta.network.layers import Network, Weights

HEADS = ("learned", "prototype")


@dataclass(frozen=True)
class Meta:
    """All that meta-training learns, and the mask of what may be updated."""

    w: Weights
    alpha: Tensor
    """Step sizes alpha_l^k >= 0. (K, L)"""
    attention: Weights
    """Parameters w^atten of the attention modules, or alpha^Ch."""
    mask: Tensor
    """False where layer l is never updated at step k: its gradient is not even computed. (K, L)"""
    head: Weights = field(default_factory=dict)
    """ln s of a head from prototypes, whose weights are then not in `w`; empty: it is learned."""

    def parameters(self) -> dict[str, Tensor]:
        """Every tensor that the outer loop trains, by name."""
        w = {f"w/{name}": t for name, t in self.w.items()}
        return {
            **w,
            "alpha": self.alpha,
            **{f"attention/{name}": t for name, t in self.attention.items()},
            **{f"head/{name}": t for name, t in self.head.items()},
        }

    def with_parameters(self, parameters: dict[str, Tensor]) -> "Meta":
        """The same with other tensors in place of those of `parameters()`."""
        w = {name: parameters[f"w/{name}"] for name in self.w}
        attention = {name: parameters[f"attention/{name}"] for name in self.attention}
        head = {name: parameters[f"head/{name}"] for name in self.head}
        return replace(self, w=w, alpha=parameters["alpha"], attention=attention, head=head)

    def map(self, f: Callable[[Tensor], Tensor]) -> "Meta":
        """The same with `f` applied to every trained tensor."""
        return self.with_parameters({name: f(t) for name, t in self.parameters().items()})

    def updates(self) -> Tensor:
        """alpha-hat: which layers are updated at which step. (K, L)"""
        return self.mask & (self.alpha.detach() > 0)

    def without_steps_below(self, limit: float | None) -> "Meta":
        """The same, where step sizes below a limit update nothing; None: as they are."""
        if limit is None:
            return self
        if not limit >= 0:
            raise ValueError(f"--least-step must be at least 0, got {limit}.")
        left = self.updates() & (self.alpha.detach() >= limit)
        if not left.any():
            raise ValueError(
                f"all step sizes are below {limit:g}, the largest is {self.alpha.max():.3g}: "
                "give a smaller --least-step."
            )
        return replace(self, mask=left)


def init_meta(
    net: Network,
    method: Method,
    inner_steps: int,
    alpha_0: float,
    generator: torch.Generator,
    head: str = "learned",
    head_scale: float = 10.0,
    head_alpha_0: float | None = None,
) -> Meta:
    """The start of meta-training: the model's own weights, step sizes alpha_0, and attention that
    changes little yet. `head`: learned, or from prototypes, whose scores have `head_scale`;
    `head_alpha_0`: its step sizes, None: like all others."""
    check_head(net, method, head)
    if inner_steps < 1:
        raise ValueError(
            f"inner_steps must be at least 1, got {inner_steps}: without a step nothing is adapted."
        )
    if not 0 < alpha_0 < math.inf:
        raise ValueError(
            f"the first step size alpha_0 must be positive and finite, got {alpha_0}: a zero step "
            "updates nothing."
        )
    is_head = torch.tensor([layer == net.head for layer in net.layers])
    mask = {
        "all": torch.ones_like(is_head),
        "head": is_head,
        "body": ~is_head,
        "none": torch.zeros_like(is_head),
    }[method.update].repeat(inner_steps, 1)
    attended = [layer for layer in net.layers if has_scores(net, layer)]
    attention: Weights = {}
    check_scored(attended, method)
    if method.scores == "attention":
        attention = init_attention(attended, generator)
    if method.scores == "static":
        attention = init_static(attended)
    own = net.head.params if head == "prototype" else ()
    w = {name: t for name, t in net.weights().items() if name not in own}
    like = next(iter(w.values()))
    first = like.new_tensor([(head_alpha_0 or alpha_0) if h else alpha_0 for h in is_head])
    return Meta(
        w,
        first * mask.to(like),
        {name: t.to(like) for name, t in attention.items()},
        mask.to(like.device),
        {name: t.to(like) for name, t in init_scale(net, head_scale).items()} if own else {},
    )


def check_head(net: Network, method: Method, head: str) -> None:
    """Raise ValueError for a head that cannot be, or that the method cannot do with."""
    if head not in HEADS:
        raise ValueError(f"head must be one of {', '.join(HEADS)}, got {head!r}.")
    if head == "learned" and method.update == "none":
        raise ValueError(
            f"{method.title} takes no inner step, so that a learned head would learn nothing of a "
            "task: give --head prototype."
        )
    if head == "prototype" and (net.head.kind != "fc" or len(net.head.params) != 2):
        raise ValueError(
            "a head from prototypes is a linear layer with a bias, the last layer here is "
            f"{net.head.name!r} of kind {net.head.kind}: end the model with nn.Linear."
        )
    if head == "prototype" and net.mixes_samples:
        raise ValueError(
            "a head from prototypes takes one sample at a time, a batch norm mixes samples: use "
            "group norm."
        )
