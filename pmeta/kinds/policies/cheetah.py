"""Half-Cheetah velocity (Sec. 4.3): run at a speed that the robot is not told."""

import contextlib
import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pmeta.kinds.policies.navigation import Array, check_episodes

if TYPE_CHECKING:
    import mujoco

FRAME_SKIP = 5
"""Physics steps of 0.01 s under one action."""
N_QPOS = N_QVEL = 9
TORSO_HEIGHT = 0.7
"""Where the torso hangs in the model file; its joints rootx and rootz count from there."""


def model_file() -> Path:
    """Gymnasium's own model of the robot, the one behind HalfCheetah-v5."""
    import gymnasium

    return Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "half_cheetah.xml"


def load_model() -> "mujoco.MjModel":
    """The model, equal to Gymnasium's in every number.

    The file asks for a total mass in a way that MuJoCo 4 warns of, on the screen and in a log file
    in the current folder; the total mass is set here in the way the warning asks for.
    """
    import mujoco

    spec = mujoco.MjSpec.from_file(str(model_file()))
    total_mass, spec.compiler.settotalmass = spec.compiler.settotalmass, -1
    model = spec.compile()
    mujoco.mj_setTotalmass(model, total_mass)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


def stop_timers() -> None:
    """Let MuJoCo of this process take no time of its own parts: Python's MuJoCo does so by default,
    and it is a tenth of the physics. What is computed stays the same to the bit."""
    from mujoco import _functions

    # a hook of MuJoCo's C interface; Python's set_mjcb_time(None) puts the default timer back
    with contextlib.suppress(OSError, ValueError):  # where it is not found, the timers go on
        hook = ctypes.c_void_p.in_dll(ctypes.CDLL(_functions.__file__), "mjcb_time")
        hook.value = None


def observation(qpos: Array, qvel: Array) -> Array:
    """The 20 numbers the policy sees: qpos without rootx (8), qvel (9), the torso's place x, y, z
    (3)."""
    x, z = qpos[..., 0], qpos[..., 1] + TORSO_HEIGHT
    return np.concatenate(
        [qpos[..., 1:], qvel, np.stack([x, np.zeros_like(x), z], axis=-1)], axis=-1
    )


def velocity_reward(velocity: Array, target: Array, torque: Array) -> Array:
    """-|dx/dt - v*| - 0.05 |clip(torque)|^2."""
    return -np.abs(velocity - target) - 0.05 * (np.clip(torque, -1, 1) ** 2).sum(axis=-1)


@dataclass(frozen=True)
class CheetahVelocity:
    """HalfCheetah-v5 that runs at a velocity v* ~ U[0, 2], which is the task; an episode never ends
    early. The torques are clip(action_scale * action, +-1).

    The state is MuJoCo's full physics state (time, qpos, qvel), so that any number of episodes can
    be stepped together.
    """

    horizon: int = 200
    """Steps after which an episode is cut off."""
    action_scale: float = 0.1
    """What an action is multiplied with before it is clipped to torques of +-1. pytorch-maml-rl has
    0.1: a policy starts with a deviation of 1, and torques as noisy as that cost more than standing
    still."""

    _model: list = field(default_factory=list, init=False, repr=False, compare=False)

    obs_size = 20
    act_size = 6

    def __post_init__(self) -> None:
        check_episodes(self.horizon, self.action_scale, "robot")

    def sample_tasks(self, n: int, rng: np.random.Generator) -> Array:
        """n target velocities, (n, 1)."""
        return rng.uniform(0.0, 2.0, size=(n, 1))

    def reset(self, tasks: Array, rng: np.random.Generator) -> Array:
        """The first state of one episode a row of tasks: at rest but for noise of 0.1, as in
        HalfCheetah-v5."""
        n = len(tasks)
        qpos = rng.uniform(-0.1, 0.1, size=(n, N_QPOS))
        qvel = 0.1 * rng.standard_normal((n, N_QVEL))
        return np.concatenate([np.zeros((n, 1)), qpos, qvel], axis=1)

    def observe(self, state: Array) -> Array:
        return observation(state[:, 1 : 1 + N_QPOS], state[:, 1 + N_QPOS :])

    def step(
        self, state: Array, tasks: Array, action: Array
    ) -> tuple[Array, Array, NDArray[np.bool_]]:
        """One step of N episodes: (state, reward (N,), done (N,))."""
        torque = self.action_scale * action  # the model itself clips it
        control = np.broadcast_to(torque[:, None, :], (len(action), FRAME_SKIP, self.act_size))
        after = self._physics(state, np.ascontiguousarray(control, dtype=np.float64))
        velocity = (after[:, 1] - state[:, 1]) / (FRAME_SKIP * 0.01)
        return (
            after,
            velocity_reward(velocity, tasks[:, 0], torque),
            np.zeros(len(state), dtype=bool),
        )

    def _physics(self, state: Array, control: Array) -> Array:
        import mujoco
        from mujoco import rollout

        # built at first use, so that the environment itself can be sent to another process
        if not self._model:
            model = load_model()
            self._model.extend([model, mujoco.MjData(model)])
        states, _ = rollout.rollout(*self._model, state, control)
        return states[:, -1]
