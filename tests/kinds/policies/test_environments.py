"""The two environments: by hand, against Gymnasium, and as Gymnasium environments."""

import copy
import pickle
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

from pmeta.kinds.policies import register
from pmeta.kinds.policies.cheetah import (
    CheetahVelocity,
    load_model,
    model_file,
    stop_timers,
    velocity_reward,
)
from pmeta.kinds.policies.navigation import Navigation

pytestmark = pytest.mark.filterwarnings("ignore:.*render.*")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Gymnasium's own loading of the model makes MuJoCo write a log into the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def registered():
    register()
    register()  # a second time changes nothing
    yield
    for name in ("pmeta/Navigation-v0", "pmeta/CheetahVelocity-v0"):
        del gymnasium.registry[name]


def test_navigation_moves_by_the_scaled_and_clipped_action():
    env = Navigation(action_scale=0.1)
    x, reward, done = env.step(
        np.zeros((2, 2)), np.array([[0.3, 0.4], [0.1, -0.05]]), np.array([[9.0, 0.5], [1.0, -0.45]])
    )
    np.testing.assert_allclose(x, [[0.1, 0.05], [0.1, -0.045]])
    np.testing.assert_allclose(reward, [-np.hypot(0.2, 0.35), -0.005])
    assert done.tolist() == [False, True]


def test_navigation_goals_fill_the_square_and_episodes_start_at_the_origin():
    rng = np.random.default_rng(0)
    goals = Navigation().sample_tasks(2000, rng)
    assert goals.shape == (2000, 2)
    assert goals.min() > -0.5
    assert goals.max() < 0.5
    assert goals.min() < -0.49
    assert goals.max() > 0.49
    assert not Navigation().reset(goals, rng).any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizon": 0}, "horizon must be at least 1, got 0: an episode needs a step."),
        ({"action_scale": 0.0}, "action scale must be above 0, got 0.0: the point could not move."),
    ],
)
def test_navigation_refuses_what_cannot_be_run(settings, message):
    with pytest.raises(ValueError, match=message):
        Navigation(**settings)


def test_cheetah_model_equals_gymnasiums_in_every_number():
    ours, theirs = load_model(), mujoco.MjModel.from_xml_path(str(model_file()))
    arrays = [name for name in dir(theirs) if isinstance(getattr(theirs, name), np.ndarray)]
    assert len(arrays) > 100
    for name in arrays:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)


def half_cheetah(seed):
    """Gymnasium's own HalfCheetah-v5, its state in our form, and a generator for actions."""
    theirs: Any = gymnasium.make("HalfCheetah-v5").unwrapped
    theirs.reset(seed=seed)
    state = np.concatenate([[0.0], theirs.data.qpos, theirs.data.qvel])[None]
    return theirs, state, np.random.default_rng(seed)


def test_cheetah_equals_half_cheetah_v5_step_for_step():
    """To the last bit, when Gymnasium's solver starts from zero at each step as ours does."""
    env = CheetahVelocity(action_scale=1)
    theirs, state, rng = half_cheetah(seed=3)
    for _ in range(200):
        action = rng.normal(size=6)
        x_before = theirs.data.qpos[0]
        theirs.data.qacc_warmstart[:] = 0
        obs, _, _, _, info = theirs.step(action)
        state, reward, done = env.step(state, np.array([[1.3]]), action[None])
        np.testing.assert_array_equal(env.observe(state)[0, :17], obs)
        np.testing.assert_array_equal(
            env.observe(state)[0, 17:], [theirs.data.qpos[0], 0, theirs.data.qpos[1] + 0.7]
        )
        velocity = (theirs.data.qpos[0] - x_before) / 0.05
        assert info["x_velocity"] == pytest.approx(velocity, abs=1e-12)
        assert reward[0] == pytest.approx(
            -abs(velocity - 1.3) - 0.05 * (np.clip(action, -1, 1) ** 2).sum(), abs=1e-12
        )
        assert not done


def test_cheetah_stays_with_gymnasiums_warm_started_solver():
    """Left as it is, Gymnasium's solver starts from its last solution: the same to its tolerance,
    until chaos sets in."""
    env = CheetahVelocity(action_scale=1)
    theirs, state, rng = half_cheetah(seed=4)
    for _ in range(20):
        action = rng.normal(size=6)
        obs, *_ = theirs.step(action)
        state, *_ = env.step(state, np.zeros((1, 1)), action[None])
    np.testing.assert_allclose(env.observe(state)[0, :17], obs, atol=1e-6)


def test_cheetah_torques_are_the_scaled_and_clipped_action():
    """An eighth of eight times an action is the action, to the last bit."""
    rng = np.random.default_rng(0)
    plain, scaled = CheetahVelocity(action_scale=1), CheetahVelocity(action_scale=0.125)
    tasks = plain.sample_tasks(4, rng)
    state, action = plain.reset(tasks, rng), rng.normal(size=(4, 6))
    expected, reward, _ = plain.step(state, tasks, action)
    for given in (8 * action, 8 * np.clip(action, -1, 1)):
        after, r, _ = scaled.step(state, tasks, given)
        np.testing.assert_array_equal(after, expected)
        np.testing.assert_array_equal(r, reward)


def test_noise_of_an_untrained_cheetah_costs_less_than_it_could_gain():
    """Standing still costs 1 a step at v* = 1. Actions of deviation 1 add hardly anything to that
    at the default scale, and half as much again as torques."""

    def cost(env: CheetahVelocity) -> float:
        rng, tasks = np.random.default_rng(0), np.ones((10, 1))
        state, rewards = env.reset(tasks, rng), []
        for _ in range(100):
            state, reward, _ = env.step(state, tasks, rng.standard_normal((10, 6)))
            rewards.append(reward)
        return -float(np.mean(rewards))

    assert cost(CheetahVelocity()) < 1.05
    assert cost(CheetahVelocity(action_scale=1)) > 1.25


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizon": 0}, "horizon must be at least 1, got 0: an episode needs a step."),
        ({"action_scale": 0.0}, "action scale must be above 0, got 0.0: the robot could not move."),
    ],
)
def test_cheetah_refuses_what_cannot_be_run(settings, message):
    with pytest.raises(ValueError, match=message):
        CheetahVelocity(**settings)


def test_cheetah_episodes_do_not_touch_each_other():
    rng = np.random.default_rng(0)
    env = CheetahVelocity()
    tasks = env.sample_tasks(5, rng)
    state, action = env.reset(tasks, rng), rng.normal(size=(5, 6))
    together, reward, _ = env.step(state, tasks, action)
    for i in range(5):
        alone, r, _ = env.step(state[i : i + 1], tasks[i : i + 1], action[i : i + 1])
        np.testing.assert_array_equal(alone[0], together[i])
        assert r[0] == reward[i]


def test_stopped_timers_count_nothing_and_change_no_bit():
    rng = np.random.default_rng(0)
    env = CheetahVelocity()
    tasks = env.sample_tasks(3, rng)
    state, action = env.reset(tasks, rng), rng.normal(size=(3, 6))
    mujoco.set_mjcb_time(None)  # the default timer, should a training have stopped it before
    timed, *_ = env.step(state, tasks, action)
    timer = env._model[1].timer[mujoco.mjtTimer.mjTIMER_STEP]
    seconds = timer.duration
    try:
        stop_timers()
        untimed, *_ = env.step(state, tasks, action)
        assert timer.duration == seconds
    finally:
        mujoco.set_mjcb_time(None)
    np.testing.assert_array_equal(untimed, timed)
    env.step(state, tasks, action)
    assert timer.duration > seconds > 0


def test_cheetah_starts_near_rest_and_gets_its_target_from_0_to_2():
    rng = np.random.default_rng(0)
    env = CheetahVelocity()
    tasks = env.sample_tasks(500, rng)
    assert 0 <= tasks.min() < 0.05
    assert 1.95 < tasks.max() <= 2
    obs = env.observe(env.reset(tasks, rng))
    assert obs.shape == (500, env.obs_size) == (500, 20)
    assert np.abs(obs[:, :8]).max() <= 0.1
    assert obs[:, 8:17].std() == pytest.approx(0.1, rel=0.05)


def test_velocity_reward_by_hand():
    assert velocity_reward(np.array(1.5), np.array(1.0), np.array([0.5, -3.0])) == pytest.approx(
        -0.5 - 0.05 * 1.25
    )


@pytest.mark.parametrize("name", ["pmeta/Navigation-v0", "pmeta/CheetahVelocity-v0"])
def test_registered_environments_keep_to_gymnasiums_rules(registered, name):
    env = gymnasium.make(name)
    obs, info = env.reset(seed=1)
    again, info_again = env.reset(seed=1)
    np.testing.assert_array_equal(obs, again)
    np.testing.assert_array_equal(info["task"], info_again["task"])
    steps, ended = 0, False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample() * 0)
        steps, ended = steps + 1, terminated or truncated
        assert env.observation_space.contains(obs)
        assert float(reward) <= 0
    assert steps == 200


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_registered_cheetah_equals_the_vectorised_one(registered, scale):
    given = {} if scale == 0.1 else {"action_scale": scale}
    theirs: Any = gymnasium.make("pmeta/CheetahVelocity-v0", velocity=0.7, **given).unwrapped
    assert theirs.action_space.high.tolist() == [1 / scale] * 6
    obs, _ = theirs.reset(seed=5)
    env, rng = CheetahVelocity(action_scale=scale), np.random.default_rng(5)
    state = np.concatenate([[0.0], theirs.data.qpos, theirs.data.qvel])[None]
    np.testing.assert_array_equal(env.observe(state)[0], obs)
    for _ in range(10):
        action = rng.normal(size=6)
        theirs.data.qacc_warmstart[:] = 0
        obs, reward, *_ = theirs.step(action)
        state, r, _ = env.step(state, np.array([[0.7]]), action[None])
        np.testing.assert_array_equal(env.observe(state)[0], obs)
        assert r[0] == pytest.approx(reward, abs=1e-12)


def test_a_cheetah_can_be_copied(registered):
    env: Any = gymnasium.make("pmeta/CheetahVelocity-v0", velocity=0.7, action_scale=0.5).unwrapped
    for other in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        assert (other.target, other.action_space.high[0]) == (0.7, 2.0)


def test_registered_navigation_walks_to_a_given_goal(registered):
    env = gymnasium.make("pmeta/Navigation-v0", goal=(0.2, 0.1))
    env.reset(seed=0)
    _, reward, done, _, info = env.step(np.array([1.0, 1.0]))
    assert reward == pytest.approx(-0.1)
    assert not done
    *_, done, _, _ = env.step(np.array([1.0, 0.0]))
    assert done
    assert info["task"].tolist() == [0.2, 0.1]
