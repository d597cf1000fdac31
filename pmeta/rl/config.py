"""The settings of a training run of policies; the paper's own (Sec. 4.3) are named."""

from dataclasses import dataclass
from typing import Literal

from pmeta.method.methods import Method, method
from pmeta.training.config import check_budget, check_count, check_shares


@dataclass(frozen=True)
class RLConfig:
    """Meta-train a policy that adapts to a task from a few episodes."""

    env: Literal["navigation", "cheetah-velocity"] = "navigation"
    """The tasks: walk to a goal in the plane, or run at a velocity."""
    method: Literal["maml", "anil", "boil", "maml++", "pmeta-lr", "pmeta"] = "pmeta"
    """Which method to train."""
    out: str = ""
    """Run folder. A run that is there already is continued."""
    epochs: int = 500
    """Meta epochs, each of them one outer update."""
    meta_batch: int = 20
    """Tasks in one outer update."""
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
    """K."""
    alpha_0: float = 0.1
    """The first inner step size."""
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
    alpha_lr: float = 1e-3
    """Outer step size of the step sizes."""
    lam: float = 0.001
    """lambda of Eq. 9, with inputs counted in KiB an episode."""
    warm_up: float = 0.2
    """Share of the training over which lambda rises from 0."""
    freeze_at: float = 0.7
    """Share of the training after which small step sizes are set to zero for good and the penalty
    ends."""
    freeze_below: float = 0.1
    """What is small, as a share of alpha_0."""
    memory_budget: str = ""
    """Instead of lambda: adapting to an episode must fit in this much memory (such as 170kB), or in
    this share of what MAML takes (such as 50%)."""
    budget_accounting: Literal["arena", "exact", "paper"] = "arena"
    """What the budget counts: the bytes that our engine plans for the device, or an accounting of
    `pmeta cost`, without the episodes that are kept."""
    val_every: int = 10
    """Meta epochs between two validations."""
    val_tasks: int = 40
    """Tasks of each validation, always the same."""
    seed: int = 0
    """Of the weights, the tasks and the episodes."""
    workers: int = 0
    """Processes that share the tasks of a meta-batch; 0: one for each core."""
    tensorboard: bool = False
    """Write TensorBoard logs to OUT/tensorboard."""

    def __post_init__(self) -> None:
        names = (
            "epochs",
            "meta_batch",
            "episodes",
            "horizon",
            "inner_steps",
            "cg_iterations",
            "fisher_episodes",
            "val_every",
        )
        for name in (*names, "val_tasks"):
            check_count(name, getattr(self, name))
        for name in ("action_scale", "alpha_0", "max_kl", "aim", "alpha_lr"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"--{name.replace('_', '-')} must be positive, got {getattr(self, name)}."
                )
        if not 0 < self.discount <= 1:
            raise ValueError(
                f"--discount must be in (0, 1], got {self.discount}: it weighs later rewards."
            )
        check_shares(warm_up=self.warm_up, freeze_at=self.freeze_at)
        if self.seed < 0 or self.lam < 0 or self.cg_damping < 0 or self.freeze_below < 0:
            raise ValueError("--seed, --lam, --cg-damping and --freeze-below must not be negative.")
        if self.backtracks < 2:
            raise ValueError(
                f"--backtracks must be at least 2, got {self.backtracks}: the first try may make "
                "the step longer."
            )
        check_budget(self.memory_budget, self.method_row())
        if not 0 <= self.workers <= self.meta_batch:
            raise ValueError(
                f"--workers must be from 0 to --meta-batch, got {self.workers} for "
                f"{self.meta_batch} tasks: a process without a task has nothing to do."
            )

    def method_row(self) -> Method:
        """The method as the inner loop takes it."""
        return method(self.method)

    def most_workers(self, count: int) -> int:
        """How many of so many processes have something to do."""
        return min(count, self.meta_batch)

    @property
    def updates(self) -> int:
        """Outer updates in all."""
        return self.epochs

    @property
    def tasks(self) -> int:
        """Tasks to train on in all."""
        return self.epochs * self.meta_batch

    @property
    def epoch_tasks(self) -> int:
        """Tasks between two validations."""
        return self.val_every * self.meta_batch


NAMED: dict[str, RLConfig] = {
    "navigation-paper": RLConfig(),
    "cheetah-velocity-paper": RLConfig(env="cheetah-velocity", meta_batch=40, fisher_episodes=5),
}
"""Sec. 4.3: 500 meta epochs of 20 tasks (Half-Cheetah: 40), 20 episodes of 200 steps, one step of
size 0.1."""
