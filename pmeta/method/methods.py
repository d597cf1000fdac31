"""The compared methods and the ablations (Sec. 4.1, Tables 4 and 7), as rows of data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """What a method updates, learns and drops."""

    title: str
    update: str = "all"
    """Layers that the inner loop updates: all, the head (the output layer), the body (all
    others), or none."""
    learn_alpha: bool = False
    """Meta-train a step size for each layer and step (Eq. 8), or keep them at their first value."""
    sparse_alpha: bool = False
    """Drive step sizes to zero with the memory-weighted Lasso (Eq. 9)."""
    scores: str = "none"
    """Where gamma comes from: none (1 everywhere), attention (Eqs. 10 and 11), or static (alpha^Ch
    of Table 4)."""
    clip_ratio_fw: float | None = 0.3
    """rho of the forward attention; None turns the forward attention off."""
    clip_ratio_bw: float | None = 0.0
    """rho of the backward attention; None turns the backward attention off."""
    sparse_fw: str = "w"
    """What gamma_fw multiplies: w, the weight gradient g(w_l), or x, the input x_{l-1} itself
    (Table 7)."""
    sparse_bw: str = "w"
    """What gamma_bw multiplies: w, the weight gradient g(w_l), or y, the gradient g(y_l) itself
    (Table 7)."""

    @property
    def stored_rho(self) -> float | None:
        """rho that bounds what is stored of the inputs; None where they are stored whole."""
        clipped = self.scores == "attention" and self.sparse_fw == "w"
        return self.clip_ratio_fw if clipped else None

    def __post_init__(self) -> None:
        for flag in ("clip_ratio_fw", "clip_ratio_bw"):
            rho = getattr(self, flag)
            if rho is not None and not 0 <= rho < 1:
                raise ValueError(
                    f"clip ratio rho must be in [0, 1), got {flag}={rho}: at 1 no channel is left "
                    "to update."
                )
        for flag, value, known in (
            ("update", self.update, ("all", "head", "body", "none")),
            ("scores", self.scores, ("none", "attention", "static")),
            ("sparse_fw", self.sparse_fw, ("w", "x")),
            ("sparse_bw", self.sparse_bw, ("w", "y")),
        ):
            if value not in known:
                raise ValueError(f"{flag} must be one of {', '.join(known)}, got {value!r}.")
        if self.scores != "attention" and (self.sparse_fw, self.sparse_bw) != ("w", "w"):
            raise ValueError(
                "sparse_fw='x' and sparse_bw='y' multiply by attention scores: set "
                "scores='attention'."
            )


METHODS = {
    "maml": Method("MAML"),
    "anil": Method("ANIL", update="head"),
    "boil": Method("BOIL", update="body"),
    "maml++": Method("MAML++", learn_alpha=True),
    "pmeta-lr": Method("p-Meta (LR)", learn_alpha=True, sparse_alpha=True),
    "pmeta": Method(
        "p-Meta (LR+attention)", learn_alpha=True, sparse_alpha=True, scores="attention"
    ),
}
"""Those that the paper compares."""
ALL = {**METHODS, "protonet": Method("ProtoNet", update="none")}
"""And what a user may pick instead: no inner step at all, a head from prototypes."""


def method(name: str) -> Method:
    """A compared method by its name on the command line.

    >>> method("pmeta-lr").title
    'p-Meta (LR)'
    """
    if name not in ALL:
        raise ValueError(f"method must be one of {', '.join(ALL)}, got {name!r}.")
    return ALL[name]
