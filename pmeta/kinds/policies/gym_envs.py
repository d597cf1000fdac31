"""The environments for Gymnasium: `pmeta/Navigation-v0` and `pmeta/CheetahVelocity-v0`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.spaces import Box
from gymnasium.utils import EzPickle

from pmeta.kinds.policies.cheetah import CheetahVelocity, observation, velocity_reward
from pmeta.kinds.policies.navigation import Navigation


class NavigationEnv(gymnasium.Env):
    """One episode of Navigation. `goal` fixes the task; without it every reset draws a new one."""

    def __init__(self, goal: tuple[float, float] | None = None, action_scale: float = 0.1) -> None:
        self._env = Navigation(action_scale=action_scale)
        self._goal = None if goal is None else np.array([goal], dtype=np.float64)
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-0.1 / action_scale, 0.1 / action_scale, (2,), np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.tasks = self._env.sample_tasks(1, self.np_random) if self._goal is None else self._goal
        self.state = self._env.reset(self.tasks, self.np_random)
        return self.state[0].copy(), {"task": self.tasks[0].copy()}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.state, reward, done = self._env.step(self.state, self.tasks, np.asarray(action)[None])
        return (
            self.state[0].copy(),
            float(reward[0]),
            bool(done[0]),
            False,
            {"task": self.tasks[0].copy()},
        )


class CheetahVelocityEnv(HalfCheetahEnv):
    """HalfCheetah-v5 with the task's reward and 20 observations. `velocity` fixes the task; else
    every reset draws one."""

    def __init__(
        self, velocity: float | None = None, action_scale: float = 0.1, **kwargs: Any
    ) -> None:
        self._given, self._env = velocity, CheetahVelocity(action_scale=action_scale)
        self.target = 0.0 if velocity is None else velocity
        super().__init__(**kwargs)
        # what a copy is made from; the parent has noted its own
        EzPickle.__init__(self, velocity, action_scale, **kwargs)
        self.observation_space = Box(-np.inf, np.inf, (20,), np.float64)
        self.action_space = Box(-1 / action_scale, 1 / action_scale, (6,), np.float64)

    def step(self, action: np.ndarray) -> Any:
        return super().step(self._env.action_scale * np.asarray(action))

    def reset_model(self) -> np.ndarray:
        if self._given is None:
            self.target = float(self._env.sample_tasks(1, self.np_random)[0, 0])
        return super().reset_model()

    def _get_obs(self) -> np.ndarray:
        return observation(self.data.qpos, self.data.qvel)

    def _get_reset_info(self) -> dict:
        return {"task": self.target}

    def _get_rew(self, x_velocity: float, torque: np.ndarray) -> tuple[float, dict]:
        reward = velocity_reward(np.asarray(x_velocity), np.asarray(self.target), torque)
        return float(reward), {"task": self.target}
