"""Runs of reinforcement learning: resumed after a kill, shared by workers, evaluated, drawn."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from pmeta.base.errors import DivergedError
from pmeta.cli import evaluate as evaluate_command
from pmeta.cli import main
from pmeta.cli import train as train_command
from pmeta.cli.export import export_run
from pmeta.kinds import train
from pmeta.kinds.policies import best as rl_restore
from pmeta.kinds.policies import train as rl_train
from pmeta.kinds.policies.best import restore
from pmeta.kinds.policies.config import NAMED, RLConfig
from pmeta.kinds.policies.policy import sample
from pmeta.kinds.policies.train import (
    TEST,
    TRAIN,
    VALIDATION,
    build,
    make_env,
    run_tasks,
)
from pmeta.method.learned import Meta
from pmeta.method.memory_budget import live_cost
from pmeta.training import workers
from pmeta.training.meta_learning import schedule
from pmeta.training.run_folder import Run
from pmeta.training.workers import Group

SMALL = RLConfig(
    epochs=4,
    meta_batch=4,
    episodes=3,
    horizon=10,
    val_every=2,
    val_tasks=4,
    freeze_at=0.5,
    workers=1,
)
SHORT = {
    "epochs": 4,
    "meta-batch": 4,
    "episodes": 3,
    "horizon": 10,
    "val-every": 2,
    "val-tasks": 4,
    "workers": 1,
}
FLAGS = [f"--{name}={value}" for name, value in SHORT.items()]


def small(path, **changes):
    return dataclasses.replace(SMALL, out=str(path), **changes)


def state(path):
    checkpoint = Run(path).load("last")
    assert checkpoint is not None
    return checkpoint.tensors


def metrics(path):
    return [
        {k: v for k, v in record.items() if "seconds" not in k} for record in Run(path).metrics()
    ]


def spy_on_run_tasks(monkeypatch, module):
    """A list that fills with the stream, the tasks, the micro-batch and the seed, if any, of each
    call."""
    calls = []

    def spy(config, env, loop, meta, stream, tasks, *seed):
        calls.append((stream, list(tasks), loop.batch, *seed))
        return run_tasks(config, env, loop, meta, stream, tasks, *seed)

    monkeypatch.setattr(module, "run_tasks", spy)
    return calls


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small run of p-Meta, trained to its end."""
    path = tmp_path_factory.mktemp("rl") / "run"
    train(Group(), small(path))
    return path


def test_a_run_leaves_settings_metrics_and_checkpoints(finished):
    assert Run(finished).config()["env"] == "navigation"
    records = Run(finished).metrics()
    assert [r["epoch"] for r in records] == [2, 4]
    assert [r["frozen"] for r in records] == [True, True]
    best = Run(finished).load("best")
    assert best is not None
    assert best.info["val_after"] == max(r["val_after"] for r in records)


@pytest.mark.parametrize("name", ["maml", "anil", "boil", "maml++", "pmeta-lr"])
def test_every_method_trains(name, tmp_path):
    best = train(Group(), small(tmp_path / "run", method=name, epochs=2))
    assert best["epoch"] == 2
    assert -10 < best["val_after"] < 0


def test_a_memory_budget_drops_the_middle_layer(tmp_path):
    """fc1 and fc3 are the layers whose memory and MACs the paper prints for p-Meta in Table 3."""
    train(
        Group(),
        small(
            tmp_path / "run",
            method="pmeta-lr",
            horizon=200,
            epochs=1,
            memory_budget="170kB",
            budget_accounting="exact",
            freeze_at=0.0,
        ),
    )
    alpha, record = state(tmp_path / "run")["alpha"], Run(tmp_path / "run").metrics()[-1]
    assert (alpha > 0).tolist() == [
        [True, False, True, True]
    ]  # fc1, fc2, fc3 and the deviation, which stores nothing
    assert round(record["memory_mb"], 2) == 0.09


def test_a_memory_budget_is_what_the_device_takes(tmp_path):
    run = small(tmp_path / "run", method="pmeta-lr", epochs=1, memory_budget="60%", freeze_at=0.0)
    train(Group(), run)
    train(Group(), small(tmp_path / "maml", method="maml", epochs=1))
    found, maml = (export_run(str(tmp_path / name)).arena_bytes for name in ("run", "maml"))
    assert found <= 0.6 * maml
    alive = state(tmp_path / "run")["alpha"] > 0
    assert alive.tolist() == [[True, False, True, True]], "fc2 alone is more than half of it"


def test_a_memory_budget_takes_the_place_of_lambda():
    budget = dataclasses.replace(SMALL, lam=0.5, memory_budget="170kB")
    assert schedule(budget).lam == 0
    assert schedule(dataclasses.replace(budget, memory_budget="")).lam == 0.5


def test_training_and_validation_draw_from_their_own_streams(tmp_path, monkeypatch):
    """New tasks for every update, and the same ones, adapted to an episode at a time, for every
    validation."""
    calls = spy_on_run_tasks(monkeypatch, rl_train)
    train(Group(), small(tmp_path / "run", meta_batch=2, val_tasks=3))
    validation = ((VALIDATION, 0), [0, 1, 2], 1)
    updates = [((TRAIN, i), [0, 1], None) for i in range(4)]
    assert calls == [*updates[:2], validation, *updates[2:], validation]


def test_a_killed_run_goes_on_to_the_same_bits(finished, tmp_path):
    path = tmp_path / "run"
    # 2 epochs of checkpoint, then a third that never ends
    script = f"""
import dataclasses, time
from pathlib import Path
from pmeta.kinds import train
from pmeta.kinds.policies import train as t
from pmeta.training.workers import Group
import tests.kinds.policies.test_train as here
update = t.outer_update
def slow(outer, *args):
    if outer.done == 3:
        Path({str(path)!r}, "waiting").touch()
        time.sleep(600)
    return update(outer, *args)
t.outer_update = slow
train(Group(), here.small({str(path)!r}))
"""
    root = Path(__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    )
    while not (path / "waiting").exists():
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert int(state(path)["done"]) == 2
    train(Group(), small(path))
    expected, found = state(finished), state(path)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    assert metrics(path) == metrics(finished)


def test_two_workers_make_the_updates_of_one(finished, tmp_path):
    workers.run(train, (small(tmp_path / "run"),), 2)
    one, two = metrics(finished), metrics(tmp_path / "run")
    assert one[0]["before"] == pytest.approx(two[0]["before"], rel=1e-4)
    for name, tensor in state(finished).items():
        torch.testing.assert_close(
            state(tmp_path / "run")[name], tensor, atol=1e-3, rtol=1e-2, msg=name
        )


def test_processes_without_a_task(tmp_path):
    config = small(tmp_path / "run", meta_batch=2, val_tasks=1, epochs=1, workers=0)
    assert config.most_workers(32) == 2
    workers.run(train, (config,), 2)
    assert metrics(tmp_path / "run")
    with pytest.raises(ValueError, match=r"a task of --meta-batch, got 2 for 3 processes\."):
        train(Group(0, 3), dataclasses.replace(config, out=str(tmp_path / "other")))


def test_other_seeds_other_tasks_and_no_task_twice_in_two_streams():
    env = make_env(SMALL)
    net, meta = build(SMALL, env)
    loop = rl_train.InnerLoop(net, SMALL.method_row(), rl_train.policy_gradient)
    drawn = [
        run_tasks(config, env, loop, meta, stream, [0, 1]).tasks
        for config, stream in (
            (SMALL, (TRAIN, 0)),
            (SMALL, (TRAIN, 1)),
            (SMALL, (VALIDATION, 0)),
            (SMALL, (TEST, 0)),
            (dataclasses.replace(SMALL, seed=1), (TRAIN, 0)),
        )
    ]
    goals = {tuple(goal) for tasks in drawn for goal in tasks}
    assert len(goals) == 10
    assert (run_tasks(SMALL, env, loop, meta, (TRAIN, 0), [1]).tasks[0] == drawn[0][1]).all()


def test_support_and_query_are_discounted_as_the_settings_say():
    config = dataclasses.replace(SMALL, discount=0.5)
    env = make_env(config)
    net, meta = build(config, env)
    loop = rl_train.InnerLoop(net, config.method_row(), rl_train.policy_gradient)
    data = run_tasks(config, env, loop, meta, (TRAIN, 0), [0, 1])
    for episodes, used in ((data.before, data.support), (data.after, data.query)):
        for (_, y), (_, expected), (_, plain) in zip(
            used, sample(episodes, 0.5), sample(episodes, 1.0), strict=True
        ):
            assert torch.equal(y, expected)
            assert not torch.allclose(y, plain, atol=0.01)


def test_a_diverged_policy_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    path, update = tmp_path / "run", rl_train.outer_update

    def breaks_at_the_third(outer, *args):
        info = update(outer, *args)
        if outer.done == 3:
            outer.meta.w["fc2.weight"].data.fill_(torch.nan)
        return info

    monkeypatch.setattr(rl_train, "outer_update", breaks_at_the_third)
    with pytest.raises(
        DivergedError,
        match=rf"actions must be finite.*The last good checkpoint is kept in {path}\.",
    ):
        train(Group(), small(path))
    kept = state(path)
    assert int(kept["done"]) == 2
    assert all(bool(t.isfinite().all()) for t in kept.values())
    monkeypatch.undo()
    assert train(Group(), small(path))["val_after"] < 0


def test_too_large_a_step_size_is_told_in_one_line(tmp_path, capsys):
    argv = [
        "train",
        "navigation-paper",
        *FLAGS,
        "--alpha-0",
        "1e38",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("pmeta: error: actions must be finite")
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("name", "method", "mb", "gmac"),
    [
        ("navigation-paper", "maml", 0.21, 0.12),
        ("navigation-paper", "anil", 0.08, 0.04),
        ("navigation-paper", "boil", 0.21, 0.12),
        ("cheetah-velocity-paper", "maml++", 0.24, 0.15),
        ("cheetah-velocity-paper", "anil", 0.09, 0.06),
        ("cheetah-velocity-paper", "boil", 0.23, 0.15),
    ],
)
def test_memory_and_macs_of_table_3(name, method, mb, gmac):
    config = dataclasses.replace(NAMED[name], method=method)
    net, meta = build(config, make_env(config))
    found = live_cost(net, meta, config.method_row(), config.episodes)
    assert round(found.memory_mb, 2) == mb
    assert round(found.gmac, 2) == gmac


def test_evaluate_gives_returns_memory_and_a_picture(finished, tmp_path, capsys):
    picture = tmp_path / "new" / "paths.png"
    evaluate_command.main(
        [str(finished), "--tasks", "5", "--workers", "1", "--json", "--render", str(picture)]
    )
    found = json.loads(capsys.readouterr().out)
    assert found["tasks"] == 5
    assert found["layers"] == ["fc1", "fc2", "fc3", "log_std"]
    assert found["exact_memory_mb"] > found["memory_mb"] > 0
    assert found["after_ci95"] > 0
    assert found["after"] < found["first_half"] < 0  # every step costs
    assert found["after_median"] < 0
    assert picture.stat().st_size > 1000
    evaluate_command.main([str(finished), "--tasks", "5", "--workers", "1"])
    assert (
        f"return {found['after']:.2f} ± {found['after_ci95']:.2f} after adaptation"
        in capsys.readouterr().out
    )


def test_evaluate_draws_test_tasks_of_its_own_seed(finished, monkeypatch, capsys):
    calls = spy_on_run_tasks(monkeypatch, rl_restore)
    evaluate_command.main([str(finished), "--tasks", "22", "--workers", "1", "--json"])
    assert calls == [((TEST, 0), list(range(20)), 1, 1), ((TEST, 0), [20, 21], 1, 1)]
    evaluate_command.main(
        [
            str(finished),
            "--tasks",
            "2",
            "--workers",
            "1",
            "--batch",
            "None",
            "--seed",
            "7",
            "--json",
        ]
    )
    assert calls[2:] == [((TEST, 0), [0, 1], None, 7)]


def test_evaluate_draws_the_cheetahs_velocity(tmp_path):
    path = tmp_path / "run"
    train(Group(), small(path, env="cheetah-velocity", epochs=1, method="maml"))
    evaluate_command.main(
        [str(path), "--tasks", "2", "--workers", "1", "--render", str(tmp_path / "v.svg")]
    )
    assert "target" in (tmp_path / "v.svg").read_text()


def test_evaluate_refuses_a_picture_it_could_not_write(finished, tmp_path, capsys):
    assert main(["evaluate", str(finished), "--render", "film.mp4"]) == 2
    assert (
        "--render names a picture (.png, .svg, .pdf, .jpg), got 'film.mp4'."
        in capsys.readouterr().err
    )


def test_the_restored_policy_is_the_best_one(finished):
    _, _, _, meta = restore(str(finished))
    best = Run(finished).load("best")
    assert best is not None
    assert isinstance(meta, Meta)
    assert all(torch.equal(t, best.tensors[n]) for n, t in meta.parameters().items())


def test_the_papers_settings_have_names():
    for name, tasks in (("navigation-paper", 20), ("cheetah-velocity-paper", 40)):
        config = train_command.parse([name, "--out", "x"])
        figures = (
            config.epochs,
            config.meta_batch,
            config.episodes,
            config.horizon,
            config.inner_steps,
            config.alpha_0,
        )
        assert figures == (500, tasks, 20, 200, 1, 0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, r"--epochs must be at least 1, got 0\."),
        ({"max_kl": 0.0}, r"--max-kl must be positive, got 0\.0\."),
        ({"discount": 1.5}, r"--discount must be in \(0, 1\], got 1\.5: it weighs later rewards\."),
        ({"lam": -1.0}, r"--lam must not be negative, got -1\.0: 0 turns the penalty off\."),
        ({"cg_damping": -1.0}, "--cg-damping must not be negative"),
        ({"freeze_at": 1.5}, r"--freeze-at is a share of the training in \[0, 1\], got 1\.5\."),
        (
            {"backtracks": 0},
            "--backtracks must be at least 2, got 0: the first try may make the step longer",
        ),
        ({"workers": 9}, "--workers must be from 0 to --meta-batch, got 9 for 4 tasks"),
        ({"method": "maml--"}, "method must be one of maml"),
        (
            {"method": "maml", "memory_budget": "1MB"},
            "a memory budget is met by dropping layers, which MAML does not",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)
