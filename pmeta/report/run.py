"""One run as the report sees it: settings, validations, evaluations, its network. No torch."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pmeta.cost.adaptation import cost
from pmeta.cost.bound import bound_mu_fw
from pmeta.cost.networks import four_conv, mlp, resnet12
from pmeta.cost.ops import Op, layer_names, m
from pmeta.cost.setup import POLICIES
from pmeta.method.methods import ALL, Method
from pmeta.paper import ADAPTATION, BACKBONES, MLPS, TABLE2, TABLE3
from pmeta.rl.config import RLConfig
from pmeta.training.config import ImageConfig

ENV_TITLES = {"navigation": "2D navigation", "cheetah-velocity": "Half-Cheetah velocity"}
ABLATED = ("scores", "clip_ratio_fw", "clip_ratio_bw", "sparse_fw", "sparse_bw", "norm", "pool")
GLYPHS = (1, 28, 28)  # pixels of the embedded set, unless it is enlarged


class Score(NamedTuple):
    """How well a model adapts, and what that costs."""

    value: float
    """Accuracy in percent, or return."""
    ci95: float | None
    memory_mb: float
    exact_memory_mb: float | None
    gmac: float
    source: str
    """What it was measured on."""


class PaperScore(NamedTuple):
    """The same as the paper prints it."""

    value: float
    memory_mb: float
    gmac: float


@dataclass(frozen=True)
class RunRecord:
    """All that a run folder says."""

    path: Path
    config: Any
    settings: dict[str, Any]
    """config.json as it is."""
    metrics: list[dict[str, Any]]
    best: dict[str, Any] | None
    evaluations: list[dict[str, Any]]
    failed: str = ""
    """The error that ended it, where `pmeta reproduce` noted one."""
    own: tuple[list[str], tuple[Op, ...], int] | None = None
    """Layers, operations and support samples of a network of the user's own, as network.json has
    them."""
    calibration: dict[str, Any] | None = None
    """Of its best model, by `pmeta train` or `pmeta calibrate`."""

    @property
    def is_rl(self) -> bool:
        return isinstance(self.config, RLConfig)

    @property
    def method(self) -> str:
        return self.config.method

    @cached_property
    def row(self) -> Method:
        return self.config.method_row()

    @property
    def title(self) -> str:
        """The method, and what this run changes in it."""
        return ", ".join([ALL[self.method].title, *self.changes])

    @property
    def changes(self) -> list[str]:
        """What the run changes in its method, as in the paper's ablations."""
        values = {n: getattr(self.config, n) for n in ABLATED if hasattr(self.config, n)}
        changed = {name: v for name, v in values.items() if v != getattr(ImageConfig, name)}
        return [f"{name} = {value}" for name, value in changed.items()]

    @property
    def finished(self) -> bool:
        return bool(self.metrics) and self.metrics[-1]["tasks"] >= self.config.tasks

    @property
    def done(self) -> int:
        """Tasks up to the last validation."""
        return self.metrics[-1]["tasks"] if self.metrics else 0

    @property
    def setup(self) -> str:
        """What is learned with which network: runs of one set-up can be compared."""
        c = self.config
        if isinstance(c, RLConfig):
            return f"{ENV_TITLES[c.env]}, {c.episodes} episodes of {c.horizon} steps"
        if c.kind == "own":
            size = "x".join(map(str, self.own[1][0].x)) if self.own else ""
            return f"{size}, {c.model}"
        if c.model:
            size = "x".join(map(str, self.own[1][0].x)) if self.own else ""
            data = Path(c.data).name or c.data
            return f"{data} {size}, {c.model}, {c.n_way}-way {c.n_shot}-shot".lstrip()
        height, width = self.image[1:] if self.image else (c.image_size, c.image_size)
        size = f"{height}x{width}" if height else "images as they are"
        backbone = BACKBONES[c.backbone] + ("" if c.channels == 32 else f" ({c.channels} channels)")
        return f"{Path(c.data).name or c.data} {size}, {backbone}, {c.n_way}-way {c.n_shot}-shot"

    @cached_property
    def image(self) -> tuple[int, int, int] | None:
        """(C, H, W) of a sample; None as long as nothing says so: a best model does."""
        if isinstance(self.config, RLConfig) or self.config.model:
            return None
        if self.best:
            c, h, w = self.best["input"]
            return c, h, w
        size = self.config.image_size
        if self.config.data == "glyphs":
            return (1, size, size) if size else GLYPHS
        return None

    @property
    def samples(self) -> int:
        c = self.config
        if c.kind == "own":
            return self.own[2] if self.own else 1
        return c.episodes if isinstance(c, RLConfig) else c.n_way * c.n_shot

    @property
    def kept_words(self) -> int:
        """Observations, actions and rewards of all episodes, kept for the baseline."""
        if not self.is_rl or not self.ops:
            return 0
        return self.samples * (m(self.ops[0].x) + m(self.ops[-1].y) + self.ops[0].x[0])

    @cached_property
    def ops(self) -> tuple[Op, ...] | None:
        """The network for the cost model; None where the size of its input is not known yet."""
        if isinstance(self.config, RLConfig):
            return mlp(*POLICIES[MLPS[self.config.env]], steps=self.config.horizon)
        if self.config.model:
            return self.own[1] if self.own else None
        return network(self.config, self.image) if self.image else None

    @cached_property
    def layers(self) -> list[str]:
        """The columns of alpha. A policy has a step size for its deviation, too."""
        if isinstance(self.config, RLConfig):
            return [*layer_names(self.ops or ()), "log_std"]
        if self.config.model:
            return self.own[0] if self.own else []
        return layer_names(network(self.config, self.image or (3, 84, 84)))

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The validation of the best model, or the last one as long as there is none."""
        at = self.best["tasks"] if self.best else self.done
        return next((v for v in self.metrics if v["tasks"] == at), None)

    @property
    def masks(self) -> list[list[str]]:
        """The layers that each step of the chosen model updates."""
        names = self.layers[:-1] if self.is_rl else self.layers
        alpha = self.chosen["alpha"] if self.chosen else []
        return [[name for name, a in zip(names, row, strict=False) if a > 0] for row in alpha]

    @property
    def attention(self) -> bool:
        return self.row.scores == "attention"

    @property
    def mu_fw(self) -> dict[str, float]:
        """The most that mu_fw can be, whatever the data."""
        return bound_mu_fw(self.ops or (), self.row.stored_rho)

    @cached_property
    def inference_gmac(self) -> float | None:
        return cost(self.ops, [[]], self.samples).inference_gmac if self.ops else None

    @cached_property
    def score(self) -> Score | None:
        """From an evaluation at batch 1 on tasks of the run's own kind, else the validation."""
        own = [e for e in self.evaluations if self._is_own(e)]
        if own:
            e = max(own, key=lambda e: (e.get("split", "test") == "test", e["tasks"]))
            return score_of(e, f"{e.get('split', 'test')}, {e['tasks']:,} tasks")
        if not self.chosen:
            return None
        what = "best validation" if self.best else "last validation, layers not chosen yet"
        return score_of(self.chosen, f"{what}, {self.config.val_tasks:,} tasks")

    def _is_own(self, evaluation: dict[str, Any]) -> bool:
        data = evaluation.get("data", "") in ("", getattr(self.config, "data", ""))
        asked = {key: evaluation.get(key) for key in ("n_way", "n_shot")}
        tasks = all(n in (None, getattr(self.config, key, None)) for key, n in asked.items())
        other = (evaluation.get(key) for key in ("classes", "least_step"))
        plain = evaluation.get("batch", 1) == 1 and all(value is None for value in other)
        return data and tasks and plain

    @property
    def paper(self) -> PaperScore | None:
        """The paper's figures for the same, if it has them."""
        own = getattr(self.config, "model", "")
        return None if self.changes or own else paper_score(self.config, self.image, self.method)


def score_of(found: dict[str, Any], source: str) -> Score:
    """From a line of metrics.jsonl, or from an evaluation."""
    value = next(
        found[key] for key in ("val_accuracy", "val_after", "accuracy", "after") if key in found
    )
    ci95 = next((found[key] for key in ("val_ci95", "ci95", "after_ci95") if key in found), None)
    return Score(
        value, ci95, found["memory_mb"], found.get("exact_memory_mb"), found["gmac"], source
    )


def network(config: ImageConfig, image: tuple[int, int, int]) -> tuple[Op, ...]:
    """The operations of a run's network."""
    groups = 0 if config.norm == "none" else config.groups
    if config.backbone == "4conv":
        ops = four_conv(config.n_way, image, config.channels, groups, config.embedding)
    else:
        widths = tuple(config.channels * 2**b for b in range(1, 5))
        ops = resnet12(config.n_way, image, widths, groups)
    return tuple(_variant(op, config) for op in ops)


def _variant(op: Op, config: ImageConfig) -> Op:
    if op.kind == "maxpool" and config.pool == "average":
        return dataclasses.replace(op, kind="pool")
    if op.kind == "norm" and config.norm == "batch":
        return dataclasses.replace(op, groups=1)
    return op


def paper_score(
    config: ImageConfig | RLConfig, image: Sequence[int] | None, method: str
) -> PaperScore | None:
    """What the paper prints for a method in this set-up (Tables 2 and 3), if it has it.

    Data are MiniImageNet if their name says so."""
    if isinstance(config, RLConfig):
        usual = (config.episodes, config.horizon) == (20, 200)
        value, key = TABLE3[config.env][method], (MLPS[config.env], 20)
    else:
        key = (config.backbone, config.n_shot)
        network = (config.n_way, config.channels, config.norm, config.pool)
        usual = network == (5, 32, "group", "max") and tuple(image or ()) == (3, 84, 84)
        usual = usual and key in TABLE2 and "mini" in Path(config.data).name.lower()
        value = TABLE2[key][method][0] if usual else 0.0
    if not usual:
        return None
    gmac, memory_mb = ADAPTATION[key][method]
    return PaperScore(value, memory_mb, gmac)
