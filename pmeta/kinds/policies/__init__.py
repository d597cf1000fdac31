"""Few-shot reinforcement learning (Sec. 4.3)."""

from typing import TYPE_CHECKING

from pmeta.kinds.policies.config import NAMED, RLConfig
from pmeta.kinds.policies.figures import FIGURES

if TYPE_CHECKING:
    from pmeta.training.restored import Asked, Restored
    from pmeta.training.run_folder import Run
    from pmeta.training.trainer import Training
    from pmeta.training.workers import Group

__all__ = [
    "COMMON", "FIGURES", "NAMED", "NEXT", "OTHERWISE", "TAKES", "Config", "register", "restore",
    "training",
]  # fmt: skip
Config = RLConfig
COMMON = (
    "out", "env", "method", "epochs", "meta_batch", "episodes", "horizon", "inner_steps", "alpha_0",
    "alpha_lr", "memory_budget", "freeze_at", "max_kl", "val_every", "val_tasks", "seed", "workers",
)  # fmt: skip
"""Options that the short help shows."""
NEXT = "pmeta evaluate {run}"
TAKES = {
    "evaluate": ("tasks", "batch", "least_step", "seed", "render"),
    "export": ("batch", "memory_budget", "least_step", "constants", "frontier"),
}
OTHERWISE = {
    "calibrate": "certainty is of a classifier, and {run} is a policy: leave this step out.",
}


def training(group: "Group", run: "Run", config: RLConfig) -> "Training":
    """What the trainer drives."""
    from pmeta.kinds.policies.train import training

    return training(group, run, config)


def restore(group: "Group", asked: "Asked") -> "Restored":
    """The best model of a run, and unseen tasks."""
    from pmeta.kinds.policies.best import restore_run

    return restore_run(group, asked)


def register() -> None:
    """Make `pmeta/Navigation-v0` and `pmeta/CheetahVelocity-v0` known to gymnasium.make.

    Gymnasium before 1.0 did this by itself wherever pmeta was installed.
    """
    import gymnasium

    for name in ("Navigation", "CheetahVelocity"):
        if f"pmeta/{name}-v0" not in gymnasium.registry:
            made_by = f"pmeta.kinds.policies.gym_envs:{name}Env"
            gymnasium.register(f"pmeta/{name}-v0", made_by, max_episode_steps=200)
