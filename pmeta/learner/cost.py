"""What adapting a model costs: the device's bytes first, the paper's accounting beside them."""

from dataclasses import dataclass

from pmeta.cost.adaptation import Cost


@dataclass(frozen=True)
class LearnerCost(Cost):
    """Bytes of the device, and the figures of the cost model."""

    arena_bytes: int | None
    """What the device takes to adapt, one sample at a time; None for a model that it cannot run."""
    maml_arena_bytes: int | None
    """The same where every step updates all layers."""
    updated: int
    """Step sizes above zero."""
    of: int
    """Step sizes in all: steps times layers."""
    advice: str = ""
    """What to change where nothing is saved."""

    def __str__(self) -> str:
        device = "not for the device"
        if self.arena_bytes is not None and self.maml_arena_bytes is not None:
            device = (
                f"{self.arena_bytes:,} bytes on the device to adapt "
                f"({self.arena_bytes / self.maml_arena_bytes:.0%} of MAML's "
                f"{self.maml_arena_bytes:,})"
            )
        lines = [
            device,
            f"{self.updated} of {self.of} step sizes are above zero",
            f"in the paper's accounting {self.memory_mb:.3f} MB (exact: "
            f"{self.exact_memory_mb:.3f} MB), {1000 * self.gmac:.1f} MMACs a step",
        ]
        return "\n".join([*lines, self.advice] if self.advice else lines)
