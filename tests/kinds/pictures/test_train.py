"""Meta-training: stopped at any moment it ends with the same bits, on one process or two."""

import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pmeta.kinds.pictures.mixed_tasks
import pmeta.kinds.pictures.train
import pmeta.training.trainer
from pmeta.base.errors import WorkerDiedError
from pmeta.cli.export import export_run
from pmeta.data.tasks import ImageSet, Task
from pmeta.kinds import pictures, train
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.pictures.train import build, fewer_ways, training_loop
from pmeta.method.inner import InnerLoop
from pmeta.training import workers
from pmeta.training.meta_learning import schedule
from pmeta.training.restored import Asked, evaluate
from pmeta.training.results import TaskResult
from pmeta.training.run_folder import Run
from pmeta.training.workers import Group

NAME = "glyphs-4conv-5way-1shot"
SMALL: dict[str, Any] = {
    **{
        "image_size": None,
        "channels": 8,
        "groups": 4,
        "inner_steps": 2,
        "n_query": 2,
        "alpha_0": 0.1,
        "lr": 1e-3,
    },
    **{"alpha_lr": 1e-3, "tasks": 12, "meta_batch": 2, "epoch_tasks": 4, "val_tasks": 2},
    **{"freeze_at": 0.5, "freeze_below": 0.98},
}
TINY = ImageConfig(**SMALL)
OPTIONS = [
    word for key, value in SMALL.items() for word in (f"--{key.replace('_', '-')}", str(value))
]


def tiny(out: Path, **changes: Any) -> ImageConfig:
    return dataclasses.replace(TINY, out=str(out), **changes)


def outcome(path: Path) -> dict[str, Any]:
    """All that a finished run left, but for times."""
    run = Run(path)
    last, best = run.load("last"), run.load("best")
    assert last
    assert best
    metrics = [
        {key: value for key, value in m.items() if "seconds" not in key} for m in run.metrics()
    ]
    return {
        "file": (path / "last.safetensors").read_bytes(),
        "last": last.tensors,
        "best": best.tensors,
        "metrics": metrics,
        "info": (last.info, best.info),
    }


def same(a: Any, b: Any) -> bool:
    """Equal to the bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, Tensor) else a == b


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """What uninterrupted runs of one and of two processes leave."""
    found = {}
    for n in (1, 2):
        out = tmp_path_factory.mktemp("reference")
        workers.run(train, (tiny(out),), n)
        found[n] = outcome(out)
    return found


def test_a_run_leaves_its_record(reference: dict[int, dict[str, Any]], tmp_path: Path) -> None:
    metrics = reference[1]["metrics"]
    assert [m["tasks"] for m in metrics] == [4, 8, 12]
    assert [m["frozen"] for m in metrics] == [False, True, True]
    assert all(math.isfinite(m["loss"]) and 0 <= m["val_accuracy"] <= 100 for m in metrics)
    alpha, mask = reference[1]["last"]["alpha"], reference[1]["last"]["mask"]
    assert metrics[-1]["alpha"] == alpha.tolist()
    assert 0 < int(mask.sum()) < mask.numel()  # so that a resumed run has a mask to remember
    assert not alpha[~mask].any()
    best = max(metrics[1:], key=lambda m: m["val_accuracy"])
    assert reference[1]["info"][1]["val_accuracy"] == best["val_accuracy"]


def test_one_and_two_processes_agree(reference: dict[int, dict[str, Any]]) -> None:
    one, two = reference[1]["last"], reference[2]["last"]
    for name in ("w/fc.weight", "w/conv1.weight", "alpha"):
        assert torch.allclose(
            one[name], two[name], rtol=1e-3, atol=1e-5
        )  # Adam amplifies the rounding of small gradients
    assert torch.equal(one["mask"], two["mask"])


class Killed(BaseException):
    pass


def test_killed_at_every_single_write(
    reference: dict[int, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = os.replace, [0]

    def replace(*paths: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        real(*paths)

    monkeypatch.setattr(os, "replace", replace)
    for n in range(1, 100):
        out, left[0] = tmp_path / str(n), n
        try:
            train(Group(), tiny(out))
        except Killed:
            left[0] = 0
            train(Group(), tiny(out))
            assert same(outcome(out), reference[1]), f"write {n}"
        else:
            break
    once = 3 + 3 * 2  # config, network and figures, last at each epoch
    assert n - 1 in (once + 2, once + 2 * 2)  # all were hit, best once or twice


OFTEN = """
import signal, sys, time
import pmeta.training.trainer
from pmeta.cli import main

# A shell has its background jobs ignore Ctrl-C, and the tests may be one of them.
signal.signal(signal.SIGINT, signal.default_int_handler)
keep = pmeta.training.trainer.keep

def at_leisure(*args):  # leaves time for a signal to arrive before the run has ended
    keep(*args)
    time.sleep(0.5)

pmeta.training.trainer.CHECKPOINT_SECONDS = 0
pmeta.training.trainer.keep = at_leisure
sys.exit(main(sys.argv[1:]))
"""


LONG = 80
"""Tasks enough to be stopped on the way more than once."""


def command(out: Path, n: int) -> list[str]:
    return [
        sys.executable,
        "-c",
        OFTEN,
        "train",
        NAME,
        *OPTIONS,
        "--out",
        str(out),
        "--workers",
        str(n),
        "--tasks",
        str(LONG),
    ]


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, *_ = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(what: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.002)


def validations(out: Path) -> int:
    return len(Run(out).metrics())


def stopped(out: Path, n: int, when: Callable[[], bool], how: signal.Signals) -> int:
    """Start or continue the run, send the signal at the given moment, and see that nothing of it is
    left."""
    pipes: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command(out, n), start_new_session=True, **pipes) as process:
        wait_until(lambda: when() or process.poll() is not None)
        workers = children(process.pid)
        assert len(workers) >= n - 1 or process.poll() is not None
        if how == signal.SIGINT:
            os.killpg(process.pid, how)  # as Ctrl-C in a terminal does
        else:
            process.send_signal(how)
        _, err = process.communicate()
    assert "Traceback" not in err
    wait_until(lambda: not any(is_alive(pid) for pid in workers))
    return process.returncode


@pytest.mark.parametrize("n", [1, 2])
def test_killed_and_continued_ends_with_the_same_bits(n: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    workers.run(train, (tiny(tmp_path / "whole", tasks=LONG),), n)
    if n == 1:
        assert stopped(out, n, (out / "config.json").exists, signal.SIGKILL) == -9
    assert stopped(out, n, (out / "last.safetensors").exists, signal.SIGKILL) == -9
    before = validations(out)
    assert stopped(out, n, lambda: validations(out) > before, signal.SIGINT) == 130
    before = validations(out)
    if n == 1:
        assert stopped(out, n, lambda: validations(out) > before, signal.SIGKILL) in (
            -9,
            0,
        )  # it may have ended
    done = subprocess.run(command(out, n), capture_output=True, text=True)
    assert done.returncode == 0
    assert (
        done.stdout.splitlines()[-1]
        == f"kept in {out}/best.safetensors; next: pmeta evaluate {out}"
    )
    assert same(outcome(out), outcome(tmp_path / "whole"))
    assert not list(out.glob(".*.part"))


def test_under_torchrun(reference: dict[int, dict[str, Any]], tmp_path: Path) -> None:
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "pmeta",
        "train",
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    options = [NAME, *OPTIONS, "--out", str(tmp_path / "run"), "--tensorboard"]
    done = subprocess.run([*torchrun, *options], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert same(outcome(tmp_path / "run"), reference[2])
    assert done.stdout.count("best: ") == done.stdout.count("kept in ") == 1
    assert done.stderr.count("      8 tasks  loss") == 1
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1


def with_nan(monkeypatch: pytest.MonkeyPatch, bad: Callable[[int], bool]) -> None:
    """Let the training tasks of these numbers have pictures of nan."""
    real = pmeta.kinds.pictures.train.training_task

    def task(config: ImageConfig, images: Any, i: int, *args: Any) -> Task:
        drawn = real(config, images, i, *args)
        return drawn._replace(support_x=drawn.support_x * math.nan) if bad(i) else drawn

    monkeypatch.setattr(pmeta.kinds.pictures.train, "training_task", task)


def test_tasks_that_are_not_finite_are_skipped_counted_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_nan(monkeypatch, lambda i: i in (1, 4, 5))  # one of a batch, and all of a batch
    train(Group(), tiny(tmp_path))
    assert [m["skipped"] for m in Run(tmp_path).metrics()] == [1, 3, 3]
    *lines, end = capsys.readouterr().err.splitlines()
    assert end.startswith("3 of 12 tasks were skipped, since their loss or gradient was not finite")
    assert [line.partition("MB")[2] for line in lines] == [
        "  1 tasks skipped",
        "  3 tasks skipped",
        "  3 tasks skipped",
    ]
    found = outcome(tmp_path)
    assert all(t.isfinite().all() for t in found["last"].values())
    assert int(found["last"]["steps"]) == 5
    assert int(found["last"]["done"]) == 6


def test_ten_bad_updates_stop_the_run_at_its_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pmeta.training.trainer, "CHECKPOINT_SECONDS", 0.0)
    with_nan(monkeypatch, lambda i: i >= 6)
    config = tiny(tmp_path, method="maml", tasks=26)
    message = (
        "loss or gradient was not finite in 10 updates in a row, the last of them update 13: lower "
        f"lr or alpha_0. The last good checkpoint is kept in {tmp_path}."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        train(Group(), config)
    last = Run(tmp_path).load("last")
    assert last
    assert (last.info["tasks"], int(last.tensors["done"])) == (6, 3)
    assert all(t.isfinite().all() for t in last.tensors.values())
    monkeypatch.undo()
    train(Group(), config)  # with the data mended it goes on from there
    assert [m["skipped"] for m in Run(tmp_path).metrics()] == [0] * 7


def test_order_and_batch_of_the_inner_loop(tmp_path: Path) -> None:
    net, _ = build(TINY, (1, 28, 28), torch.device("cpu"))
    for first_order in (False, True):
        for per_sample, batch in ((False, None), (True, 1)):
            loop = training_loop(
                net, tiny(tmp_path, first_order=first_order, per_sample=per_sample)
            )
            assert (loop.second_order, loop.batch) == (not first_order, batch)


def test_validation_is_on_the_same_tasks_of_other_classes_one_sample_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, batches = [], []
    sample_task, evaluate_task = (
        pmeta.kinds.pictures.train.sample_task,
        pmeta.kinds.pictures.train.evaluate_task,
    )

    def sample(images: ImageSet, seed: int, i: int, *sizes: int) -> Task:
        drawn.append((images.name, seed, i))
        return sample_task(images, seed, i, *sizes)

    def evaluate_one(loop: InnerLoop, *args: Any) -> TaskResult:
        batches.append(loop.batch)
        return evaluate_task(loop, *args)

    for where in (pmeta.kinds.pictures.train, pmeta.kinds.pictures.mixed_tasks):
        monkeypatch.setattr(where, "sample_task", sample)
    monkeypatch.setattr(pmeta.kinds.pictures.train, "evaluate_task", evaluate_one)
    train(Group(), tiny(tmp_path, tasks=4, epoch_tasks=2, seed=3))
    trained, validated = (
        [(f"{split} of glyphs", 3, i) for i in range(n)] for split, n in (("train", 4), ("val", 2))
    )
    assert drawn == [*trained[:2], *validated, *trained[2:], *validated]
    assert batches == [1] * 4


def test_the_best_model_is_chosen_among_those_with_their_layers_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = iter(
        [0.9, 0.3, 0.5, 0.5]
    )  # the first before the freeze, the last no better than the one before

    def validate(*args: Any) -> list[TaskResult]:
        return [TaskResult(next(accuracies), 1.0, 1.0, 1.0, torch.ones(2, 9))]

    monkeypatch.setattr(pmeta.kinds.pictures.train, "validate", validate)
    best = train(Group(), tiny(tmp_path, tasks=8, epoch_tasks=2))
    assert (best["tasks"], best["val_accuracy"]) == (6, 50.0)
    found = Run(tmp_path).load("best")
    assert found
    assert found.info["tasks"] == 6
    assert found.tensors["alpha"].tolist() == Run(tmp_path).metrics()[2]["alpha"]


def test_recomputed_steps_give_the_same_gradient(tmp_path: Path) -> None:
    """But for rounding, after one update; Adam's first moment is a tenth of it."""
    moments = []
    for recompute in (False, True):
        train(Group(), tiny(tmp_path / str(recompute), tasks=TINY.meta_batch, recompute=recompute))
        last = Run(tmp_path / str(recompute)).load("last")
        assert last
        moments.append(
            {name: t for name, t in last.tensors.items() if name.startswith("adam/first/w/")}
        )
    assert any(t.abs().max() > 1e-4 for t in moments[0].values())
    torch.testing.assert_close(*moments, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("method", ["pmeta", "pmeta-lr"])
def test_a_memory_budget_is_kept_on_every_task(tmp_path: Path, method: str) -> None:
    config = tiny(
        tmp_path,
        method=method,
        memory_budget="50kB",
        budget_accounting="exact",
        tasks=4,
        epoch_tasks=4,
        freeze_at=0.0,
        freeze_below=0.0,
    )
    train(Group(), config)
    _, summary = evaluate(Group(), pictures.restore, Asked(str(tmp_path), tasks=5))
    assert 0.03 < summary.worst_exact_memory_mb <= 0.05  # all layers would take 0.06


@pytest.mark.parametrize("budget", ["40kB", "60%"])
def test_a_memory_budget_is_what_the_device_takes(tmp_path: Path, budget: str) -> None:
    small: dict[str, Any] = {"epoch_tasks": 4, "tasks": 4, "freeze_at": 0.0, "freeze_below": 0.0}
    train(Group(), tiny(tmp_path / "maml", method="maml", **small))
    train(Group(), tiny(tmp_path / "run", memory_budget=budget, **small))
    maml, found = (export_run(str(tmp_path / name)).arena_bytes for name in ("maml", "run"))
    most = 40_000 if budget == "40kB" else int(0.6 * maml)
    assert 0.7 * most < found <= most < maml


def test_a_run_of_an_older_release_is_continued(tmp_path: Path) -> None:
    """Its budget was in the exact accounting, and a setting that it does not know was the
    default."""
    config = tiny(tmp_path / "run", memory_budget="50kB", budget_accounting="exact", tasks=4)
    train(Group(), config)
    settings = json.loads((tmp_path / "run/config.json").read_text())
    assert settings.pop("budget_accounting") == "exact"
    assert settings.pop("init") == ""
    del settings["kind"], settings["settings_version"]
    (tmp_path / "run/config.json").write_text(json.dumps(settings))
    train(Group(), config)
    with pytest.raises(ValueError, match=r"has budget_accounting='exact' \(now 'arena'\): choose"):
        train(Group(), dataclasses.replace(config, budget_accounting="arena"))


def test_a_memory_budget_takes_the_place_of_the_penalty(tmp_path: Path) -> None:
    plain = schedule(tiny(tmp_path, lam=0.5))
    assert plain.lam == 0.5
    assert schedule(tiny(tmp_path, lam=0.5, memory_budget="50kB")) == dataclasses.replace(
        plain, lam=0.0
    )


def test_a_budget_that_is_too_small_is_told_before_the_training(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"^memory budget of 1,000 bytes is too small to update any layer: \w+ alone takes ",
    ):
        train(Group(), tiny(tmp_path, memory_budget="1kB"))
    assert Run(tmp_path).metrics() == []
    train(
        Group(), tiny(tmp_path, memory_budget="50kB", tasks=4)
    )  # nothing was trained yet: other settings are fine


def test_a_finished_run_is_not_changed(tmp_path: Path) -> None:
    config = tiny(tmp_path, tasks=4)
    best = train(Group(), config)
    before = (tmp_path / "last.safetensors").read_bytes()
    assert train(Group(), dataclasses.replace(config, workers=2, device="cpu")) == best
    assert (tmp_path / "last.safetensors").read_bytes() == before
    with pytest.raises(
        ValueError, match=r" has seed=0 \(now 1\), tasks=4 \(now 8\): choose another --out\.$"
    ):
        train(Group(), dataclasses.replace(config, tasks=8, seed=1))


@pytest.mark.parametrize(
    "changes",
    [
        {"backbone": "resnet12", "channels": 4, "groups": 2},
        {"norm": "batch", "pool": "average", "first_order": True, "method": "maml"},
        {"per_sample": True, "sparse_fw": "x", "sparse_bw": "y"},
        {"scores": "static", "method": "maml++"},
    ],
)
def test_other_backbones_norms_and_orders(tmp_path: Path, changes: dict[str, Any]) -> None:
    best = train(Group(), tiny(tmp_path, tasks=2, val_tasks=1, **changes))
    assert best["tasks"] == 2
    assert math.isnan(best["val_ci95"])  # of one task


def test_what_is_left_in_the_folder(tmp_path: Path) -> None:
    train(Group(), tiny(tmp_path, tasks=4))
    files = "config.json network.json figures.json metrics.jsonl last.safetensors last.json "
    files += "best.safetensors best.json"
    kept = "previous.safetensors"  # of the epoch before
    assert {p.name for p in tmp_path.iterdir()} - {kept} == {".lock", *files.split()}


def test_a_lost_process_of_torchrun_ends_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of torchrun's processes, whose connection breaks."""
    monkeypatch.setattr(workers, "under_torchrun", lambda: True)
    monkeypatch.setattr(workers.dist, "init_process_group", lambda backend: None)
    monkeypatch.setattr(workers.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(workers.dist, "get_world_size", lambda: 2)

    def broken(*args: Any) -> None:
        raise RuntimeError("Connection closed by peer\n[127.0.0.1]:5")

    monkeypatch.setattr(workers.dist, "all_reduce", broken)

    def work(group: Group) -> Any:
        return group.add({"a": torch.ones(1)})

    words = r"^another process of torchrun is gone \(Connection closed by peer \[127"
    with pytest.raises(WorkerDiedError, match=words):
        workers.run(work, (), 1)


@pytest.mark.parametrize(("classes", "ways"), [(3, 3), (9, 5)])
def test_validation_has_fewer_ways_where_the_data_have_fewer_classes(
    classes: int, ways: int
) -> None:
    names, starts = [f"class {i}" for i in range(classes)], np.arange(classes)
    pixels = np.zeros((classes, 16, 16, 3), dtype=np.uint8)
    images = ImageSet(pixels, names, starts, np.ones(classes, dtype=int), "few", [])
    assert fewer_ways(ImageConfig(n_way=5), images).n_way == ways


def test_one_class_is_no_task() -> None:
    pixels = np.zeros((1, 16, 16, 3), dtype=np.uint8)
    images = ImageSet(pixels, ["alone"], np.array([0]), np.array([1]), "one", [])
    with pytest.raises(ValueError, match="a task tells at least 2 classes apart, one has 1"):
        fewer_ways(ImageConfig(n_way=5), images)
