"""What a kind of run measures: words, units, which way is better; kept in the run's folder."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

COSTS = ("memory_mb", "exact_memory_mb", "gmac")
"""What adapting took in a validation, the mean over its tasks."""


@dataclass(frozen=True)
class Figure:
    """A number of a validation, as a table or a picture names it."""

    words: str
    unit: str = ""
    better: Literal["", "higher", "lower"] = ""


TO_ADAPT = "{memory_mb:.2f} MB to adapt (exact: {exact_memory_mb:.2f} MB)"
COST_FIGURES = {
    "memory_mb": Figure("memory to adapt, paper's accounting", "MB", "lower"),
    "exact_memory_mb": Figure("memory to adapt, exact accounting", "MB", "lower"),
    "gmac": Figure("computation of a step", "GMAC", "lower"),
}


TASKS = {"tasks": Figure("tasks trained on", "tasks")}
"""What most kinds count."""


@dataclass(frozen=True)
class Figures:
    """All that the validations of a run measure."""

    known: dict[str, Figure]
    """By the keys of metrics.jsonl; `val_` is of validation tasks."""
    score: str
    """The key by which the best model is chosen."""
    ci95: str
    """The key of its interval; empty: it has none."""
    line: str
    """What is printed of a validation."""
    best_line: str
    """What is printed of the best one so far."""
    reached: str
    """What is printed of the best one at the end."""
    count: str = "tasks"
    """The key that says how far the training was."""

    def is_better(self, record: dict[str, Any], best: dict[str, Any]) -> bool:
        """Whether a validation is better than the best before it; none: it is."""
        if not best:
            return True
        if self.known[self.score].better == "lower":
            return record[self.score] < best[self.score]
        return record[self.score] > best[self.score]

    def as_json(self) -> dict[str, Any]:
        """For RUN/figures.json."""
        known = {key: asdict(figure) for key, figure in {**TASKS, **self.known}.items()}
        named = {"score": self.score, "ci95": self.ci95, "count": self.count}
        return {**named, "figures": known}


CLASSIFIER = Figures(
    {
        "loss": Figure("loss on training tasks", "", "lower"),
        "train_accuracy": Figure("accuracy on training tasks", "%", "higher"),
        "val_accuracy": Figure("accuracy", "%", "higher"),
        "val_ci95": Figure("interval of the accuracy", "%"),
        **COST_FIGURES,
    },
    score="val_accuracy",
    ci95="val_ci95",
    line="{tasks:>7} tasks  loss {loss:.3f}  train {train_accuracy:.1f} %  "
    "val {val_accuracy:.2f} ± {val_ci95:.2f} %  memory {memory_mb:.2f} MB",
    best_line="best val {val_accuracy:.1f} %",
    reached="{val_accuracy:.2f} ± {val_ci95:.2f} % on validation after {tasks} tasks, " + TO_ADAPT,
)
"""Of whatever tells classes apart."""
REGRESSION = Figures(
    {
        "loss": Figure("loss on training tasks", "", "lower"),
        "val_loss": Figure("loss", "", "lower"),
        "val_ci95": Figure("interval of the loss"),
        **COST_FIGURES,
    },
    score="val_loss",
    ci95="val_ci95",
    line="{tasks:>7} tasks  loss {loss:.4f}  val loss {val_loss:.4f} ± {val_ci95:.4f}  "
    "memory {memory_mb:.2f} MB",
    best_line="best val loss {val_loss:.4f}",
    reached="loss {val_loss:.4f} ± {val_ci95:.4f} on validation after {tasks} tasks, " + TO_ADAPT,
)
"""Of whatever gives numbers."""
