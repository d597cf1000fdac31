"""2D navigation (Sec. 4.3): a point in the plane walks to a goal that it is not told."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def check_episodes(horizon: int, action_scale: float, who: str) -> None:
    """Raise ValueError where nothing would happen in an episode."""
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1, got {horizon}: an episode needs a step.")
    if not action_scale > 0:
        raise ValueError(
            f"action scale must be above 0, got {action_scale}: the {who} could not move."
        )


@dataclass(frozen=True)
class Navigation:
    """The point starts at 0 and moves by clip(action_scale * action, +-0.1); the reward is minus
    the distance to the goal.

    A task is a goal in [-0.5, 0.5]^2, and the state is the position. An episode ends within 0.01 of
    the goal.

    >>> env = Navigation()
    >>> x, reward, done = env.step(np.zeros((1, 2)), np.array([[0.3, 0.4]]), np.array([[9.0, 0.5]]))
    >>> x, reward, done
    (array([[0.1 , 0.05]]), array([-0.40311289]), array([False]))
    """

    horizon: int = 200
    """Steps after which an episode is cut off."""
    action_scale: float = 0.1
    """What an action is multiplied with before it is clipped to +-0.1. MAML's own code has 0.1,
    pytorch-maml-rl 1."""

    obs_size = 2
    act_size = 2

    def __post_init__(self) -> None:
        check_episodes(self.horizon, self.action_scale, "point")

    def sample_tasks(self, n: int, rng: np.random.Generator) -> Array:
        """n goals, (n, 2)."""
        return rng.uniform(-0.5, 0.5, size=(n, 2))

    def reset(self, tasks: Array, rng: np.random.Generator) -> Array:
        """The first state of one episode a row of tasks: always the origin."""
        return np.zeros((len(tasks), 2))

    def observe(self, state: Array) -> Array:
        return state

    def step(
        self, state: Array, tasks: Array, action: Array
    ) -> tuple[Array, Array, NDArray[np.bool_]]:
        """One step of N episodes: (state, reward (N,), done (N,))."""
        state = state + np.clip(self.action_scale * action, -0.1, 0.1)
        offset = state - tasks
        reward = -np.sqrt((offset**2).sum(axis=1))
        return state, reward, np.all(np.abs(offset) < 0.01, axis=1)
