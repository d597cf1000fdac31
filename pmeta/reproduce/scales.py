"""How long to train and evaluate: smoke checks the plumbing, short is a night, paper is all."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pmeta.kinds.pictures.config import NAMED as IMAGES
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.policies.config import NAMED as POLICIES
from pmeta.kinds.policies.config import RLConfig
from pmeta.reproduce.cells import Training

CELLS_DIFFER_IN = (
    *("method", "backbone", "n_shot", "norm", "pool", "scores"),
    *("clip_ratio_fw", "clip_ratio_bw", "sparse_fw", "sparse_bw"),
    *("env", "data", "out", "seed", "tasks", "workers", "device"),
)
"""What --set may not change: the cells' own settings, and what has an option of its own."""
POLICIES_DIFFER_IN = (*CELLS_DIFFER_IN, "memory_budget", "budget_accounting", "freeze_at")
"""The same of reinforcement learning."""


@dataclass(frozen=True)
class Scale:
    """Changes to the paper's settings, and the size of an evaluation."""

    images: dict[str, Any] = field(default_factory=dict)
    tasks: dict[int, int] = field(default_factory=dict)
    """Of trainings on images, by the number of shots; none: the paper's."""
    resnet12: dict[str, Any] | None = field(default_factory=dict)
    """Further changes for ResNet12; None: it is not trained."""
    rl: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By environment."""
    eval_tasks: int = 5000
    eval_query: int = 15
    rl_eval_tasks: int = 400
    figure_tasks: int = 100


SMOKE_POLICY = {"epochs": 1, "meta_batch": 2, "episodes": 2, "horizon": 5, "val_tasks": 2}
SCALES = {
    "smoke": Scale(
        images={
            "image_size": 28,
            "channels": 4,
            "groups": 2,
            "n_query": 1,
            "inner_steps": 2,
            "meta_batch": 1,
            "val_tasks": 2,
        },
        tasks={1: 2, 5: 2},
        resnet12={"channels": 2},
        rl=dict.fromkeys(("navigation", "cheetah-velocity"), SMOKE_POLICY),
        eval_tasks=4,
        eval_query=1,
        rl_eval_tasks=2,
        figure_tasks=3,
    ),
    "short": Scale(
        images={"n_query": 5, "meta_batch": 2, "val_tasks": 50},
        tasks={1: 1600, 5: 800},
        resnet12=None,
        rl={
            "navigation": {"epochs": 60, "val_every": 6},
            "cheetah-velocity": {"epochs": 20, "meta_batch": 20, "val_every": 4, "val_tasks": 20},
        },
        eval_tasks=1000,
        rl_eval_tasks=100,
    ),
    "paper": Scale(),
}


def configuration(
    training: Training, scale: str, data: str, tasks: int | None, given: Sequence[str] = ()
) -> ImageConfig | RLConfig:
    """The settings of a run: the paper's, changed by the scale, by --tasks and --set, and by what
    makes the cell."""
    chosen = SCALES[scale]
    if training.is_rl:
        policy = POLICIES[training.base]
        changes = chosen.rl.get(policy.env, {}) | _given(given, RLConfig, "rl.")
        return dataclasses.replace(policy, **changes | training.changes)
    base = IMAGES[training.base]
    changes = dict(chosen.images) | (chosen.resnet12 or {} if base.backbone == "resnet12" else {})
    n = tasks or chosen.tasks.get(base.n_shot)
    if n:
        changes |= {"tasks": n, "epoch_tasks": min(base.epoch_tasks, max(1, n // 8))}
    return dataclasses.replace(
        base, **changes | _given(given, ImageConfig, "") | training.changes, data=data
    )


def _given(words: Sequence[str], kind: type, prefix: str) -> dict[str, Any]:
    """The settings that --set changes: `n_query=5` for images, `rl.epochs=100` for reinforcement
    learning."""
    own = POLICIES_DIFFER_IN if prefix else CELLS_DIFFER_IN
    fields = {f.name: f for f in dataclasses.fields(kind) if f.name not in own}
    changes = {}
    for word in words:
        name, equals, text = word.partition("=")
        if name.startswith("rl.") != bool(prefix):
            continue
        name = name.removeprefix("rl.")
        if not equals or name not in fields:
            raise ValueError(
                f"--set takes NAME=VALUE, or rl.NAME=VALUE, got {word!r}; the names are "
                f"{', '.join(fields)}."
            )
        changes[name] = _value(word, text, fields[name])
    return changes


def _value(word: str, text: str, setting: Any) -> Any:
    """The value of a setting from its text, of the type that its default has."""
    if text == "None" and "None" in str(setting.type):
        return None
    try:
        if isinstance(setting.default, bool):
            return {"true": True, "false": False}[text.lower()]
        return type(setting.default)(text)
    except (ValueError, KeyError):
        raise ValueError(
            f"--set {word}: {text!r} is no {type(setting.default).__name__}."
        ) from None
