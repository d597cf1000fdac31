"""One run as the report sees it: what its folder says of it, and what was measured. No torch."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pmeta.cost.adaptation import cost
from pmeta.cost.bound import bound_mu_fw
from pmeta.cost.ops import Op
from pmeta.method.methods import ALL, Method
from pmeta.report.shapes import Figures, Network, PaperScore
from pmeta.training.figures import Figure


class Costs(NamedTuple):
    """What adapting takes."""

    memory_mb: float
    exact_memory_mb: float | None
    gmac: float


class Score(NamedTuple):
    """How well a model adapts."""

    value: float
    ci95: float | None
    costs: Costs | None
    """None: there is nothing to adapt to."""
    source: str
    """What it was measured on."""


@dataclass(frozen=True)
class RunRecord:
    """All that a run folder says."""

    path: Path
    settings: dict[str, Any]
    """config.json."""
    network: Network
    figures: Figures
    metrics: list[dict[str, Any]]
    best: int | None
    """How far the training was at its best model."""
    evaluations: list[dict[str, Any]]
    failed: str = ""
    """The error that ended it, where `pmeta reproduce` noted one."""
    calibration: dict[str, Any] | None = None
    """Of its best model, by `pmeta train` or `pmeta calibrate`."""

    @property
    def method(self) -> str:
        """Its name; empty where it is none of ours."""
        name = self.settings.get("method")
        return name if isinstance(name, str) and name in ALL else ""

    @property
    def row(self) -> Method | None:
        """How it adapts; None: not at all."""
        return self.network.method

    @property
    def title(self) -> str:
        """The method, and what this run changes in it."""
        return ", ".join([self.figures.title, *self.figures.changes])

    @property
    def setup(self) -> str:
        """What is learned with which network: runs of one set-up can be compared."""
        return self.figures.setup

    @property
    def measure(self) -> Figure:
        """What its score is called."""
        return self.figures.figures[self.figures.score]

    def at(self, record: dict[str, Any]) -> int:
        """How far the training was at a validation."""
        return int(record[self.figures.count])

    def so_far(self, count: int) -> str:
        """How far that is, in words: "1,200 tasks"."""
        return f"{count:,} {self.figures.counted.unit}"

    @property
    def finished(self) -> bool:
        return bool(self.metrics) and self.done >= self.figures.total

    @property
    def done(self) -> int:
        """How far the training was at the last validation."""
        return self.at(self.metrics[-1]) if self.metrics else 0

    @property
    def ops(self) -> tuple[Op, ...]:
        return self.network.ops

    @property
    def layers(self) -> list[str]:
        """The columns of alpha. Some belong to no operation, as the deviation of a policy."""
        return self.network.layers

    @property
    def adapts(self) -> bool:
        """Whether there is a support set to adapt to, and so step sizes and costs."""
        return self.network.samples > 0

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The validation of the best model, or the last one as long as there is none."""
        at = self.done if self.best is None else self.best
        return next((v for v in self.metrics if self.at(v) == at), None)

    @property
    def alpha(self) -> list[list[float]]:
        """The step sizes of the chosen model; none where it is not adapted."""
        return self.chosen.get("alpha", []) if self.chosen else []

    @property
    def masks(self) -> list[list[str]]:
        """The layers that each step of the chosen model updates."""
        known = {op.name for op in self.ops}
        named = [
            [(name, a) for name, a in zip(self.layers, row, strict=True) if name in known]
            for row in self.alpha
        ]
        return [[name for name, a in row if a > 0] for row in named]

    @property
    def attention(self) -> bool:
        return self.row is not None and self.row.scores == "attention"

    @property
    def mu_fw(self) -> dict[str, float]:
        """The most that mu_fw can be, whatever the data."""
        return bound_mu_fw(self.ops, self.row.stored_rho if self.row else None)

    @cached_property
    def inference_gmac(self) -> float:
        return cost(self.ops, [[]], self.network.samples).inference_gmac if self.adapts else 0.0

    @cached_property
    def score(self) -> Score | None:
        """From an evaluation at batch 1 on tasks of the run's own kind, else the validation."""
        own = [e for e in self.evaluations if self._is_own(e)]
        if own:
            e = max(own, key=lambda e: (e.get("split", "test") == "test", e["tasks"]))
            return self.score_of(e, f"{e.get('split', 'test')}, {e['tasks']:,} tasks")
        if not self.chosen:
            return None
        not_yet = "last validation, layers not chosen yet"
        what = not_yet if self.best is None else "best validation"
        ci95 = self.chosen.get(self.figures.ci95)
        return Score(self.chosen[self.figures.score], ci95, self._costs(self.chosen), what)

    def _is_own(self, evaluation: dict[str, Any]) -> bool:
        asked = {key: evaluation.get(key) for key in ("data", "n_way", "n_shot")}
        tasks = all(n in (None, "", self.settings.get(key)) for key, n in asked.items())
        other = (evaluation.get(key) for key in ("classes", "least_step"))
        return tasks and evaluation.get("batch", 1) == 1 and all(value is None for value in other)

    def score_of(self, evaluation: dict[str, Any], source: str = "") -> Score:
        """What an evaluation found."""
        key = self.figures.evaluated
        ci95 = next((evaluation[k] for k in (f"{key}_ci95", "ci95") if k in evaluation), None)
        return Score(evaluation[key], ci95, self._costs(evaluation), source)

    def _costs(self, found: dict[str, Any]) -> Costs | None:
        if not self.adapts:
            return None
        return Costs(found["memory_mb"], found.get("exact_memory_mb"), found["gmac"])

    @property
    def paper(self) -> PaperScore | None:
        """The paper's figures for the same, if it has them."""
        return None if self.figures.changes else self.figures.paper.get(self.method)
