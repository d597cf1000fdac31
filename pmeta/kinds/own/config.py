"""The settings of `Learner.fit`, as its run folder keeps them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pmeta.method.methods import Method
from pmeta.training.settings import AdamSettings, by, check_counts


@dataclass(frozen=True)
class OwnConfig(AdamSettings):
    """Meta-train a model and tasks of one's own, in Python."""

    kind = "own"

    model: str = ""
    """The class of the model."""
    val_tasks: int = 1
    """Tasks of each validation."""
    recompute: bool = False
    """Where memory is short: hold one inner step at a time."""
    scores: Literal["none", "attention", "static"] = "none"
    """Where gamma comes from."""
    sparse_fw: Literal["w", "x"] = "w"
    """What gamma_fw multiplies (Table 7)."""
    sparse_bw: Literal["w", "y"] = "w"
    """What gamma_bw multiplies (Table 7)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "val_tasks")

    def method_row(self) -> Method:
        """The method with what this run changes in it."""
        return replace(
            super().method_row(),
            scores=self.scores,
            sparse_fw=self.sparse_fw,
            sparse_bw=self.sparse_bw,
        )

    def setup(self, sample: Sequence[int]) -> str:
        """The shape of a sample, and the class of the model."""
        return f"{by(sample)}, {self.model}"


NAMED: dict[str, OwnConfig] = {}
"""None: `pmeta train` has no live model."""
