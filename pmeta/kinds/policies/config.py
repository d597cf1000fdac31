"""The settings of a training run of policies; the paper's own (Sec. 4.3) are named."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pmeta.paper import MLPS, TABLE3, scores
from pmeta.training.settings import Settings, check, check_counts, check_not_negative

TITLES = {"navigation": "2D navigation", "cheetah-velocity": "Half-Cheetah velocity"}


@dataclass(frozen=True)
class RLConfig(Settings):
    """Meta-train a policy that adapts to a task from a few episodes."""

    kind = "policies"

    env: Literal["navigation", "cheetah-velocity"] = "navigation"
    """The tasks: walk to a goal in the plane, or run at a velocity."""
    method: Literal["maml", "anil", "boil", "maml++", "pmeta-lr", "pmeta"] = "pmeta"
    """The method to train."""
    epochs: int = 500
    """Meta epochs, each of them one outer update."""
    meta_batch: int = 20
    episodes: int = 20
    """Episodes of a task before adaptation, and as many again after it."""
    horizon: int = 200
    """Steps of an episode."""
    action_scale: float = 0.1
    """What an action is multiplied with before it is clipped: to moves of +-0.1 (navigation) or
    torques of +-1 (Half-Cheetah)."""
    discount: float = 0.99
    """Of later rewards, in the advantages alone: returns are plain sums."""
    inner_steps: int = 1
    alpha_0: float = 0.1
    max_kl: float = 0.01
    """The trust region: largest mean KL divergence of the adapted policies in one update."""
    cg_iterations: int = 5
    """Steps of conjugate gradient."""
    cg_damping: float = 1e-5
    """Added to the diagonal of the Fisher matrix."""
    fisher_episodes: int = 2
    """Episodes of each task, before and after adaptation, that the Fisher matrix is estimated from;
    the rest uses all."""
    aim: float = 0.7
    """Share of max_kl that the full step aims at: the quadratic model falls short of policies that
    adapt again."""
    backtracks: int = 15
    """Tries of the line search, each with 0.8 times the step of the last."""
    budget_accounting: Literal["arena", "exact", "paper"] = "arena"
    """What the budget counts: the bytes that our engine plans for the device, or an accounting of
    `pmeta cost`, without the episodes that are kept."""
    val_every: int = 10
    """Meta epochs between two validations."""
    val_tasks: int = 40
    """Tasks of each validation, always the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "epochs", "episodes", "horizon", "cg_iterations", "fisher_episodes")
        check_counts(self, "val_every", "val_tasks")
        check(self, "positive", "action_scale", "max_kl", "aim")
        check_not_negative(self, cg_damping="the damping off")
        if not 0 < self.discount <= 1:
            raise ValueError(
                f"--discount must be in (0, 1], got {self.discount}: it weighs later rewards."
            )
        if self.backtracks < 2:
            raise ValueError(
                f"--backtracks must be at least 2, got {self.backtracks}: the first try may make "
                "the step longer."
            )
        if self.workers > self.meta_batch:
            raise ValueError(
                f"--workers must be from 0 to --meta-batch, got {self.workers} for "
                f"{self.meta_batch} tasks: a process without a task has nothing to do."
            )

    @property
    def tasks(self) -> int:
        """Tasks to train on in all."""
        return self.epochs * self.meta_batch

    @property
    def epoch_tasks(self) -> int:
        """Tasks between two validations."""
        return self.val_every * self.meta_batch

    def setup(self, sample: Sequence[int]) -> str:
        """The tasks, and what is seen of each of them."""
        return f"{TITLES[self.env]}, {self.episodes} episodes of {self.horizon} steps"

    def paper(self, sample: Sequence[int]) -> dict[str, dict[str, float]]:
        """Table 3."""
        usual = (self.episodes, self.horizon) == (20, 200)
        return scores((MLPS[self.env], 20), TABLE3[self.env]) if usual else {}


NAMED: dict[str, RLConfig] = {
    "navigation-paper": RLConfig(),
    "cheetah-velocity-paper": RLConfig(env="cheetah-velocity", meta_batch=40, fisher_episodes=5),
}
"""Sec. 4.3: 500 meta epochs of 20 tasks (Half-Cheetah: 40), 20 episodes of 200 steps, one step of
size 0.1."""
