"""A run on made-up people: it learns, goes on after a kill to the same bits, and its file on the
device does what PyTorch does."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pmeta.kinds.recordings.train as module
from pmeta.base.errors import DivergedError
from pmeta.cli import main
from pmeta.cli.export import export_run
from pmeta.data.recordings.windows import Windowing
from pmeta.device.binding import DeviceModel
from pmeta.device.model_file import temperatures
from pmeta.kinds import recordings, train
from pmeta.kinds.recordings.best import load
from pmeta.kinds.recordings.config import SensorConfig
from pmeta.kinds.recordings.evaluate import PeopleSummary
from pmeta.kinds.recordings.sets import fitted, read_all, split_people, window_set
from pmeta.kinds.recordings.tasks import personal_task
from pmeta.kinds.recordings.train import open_data
from pmeta.method.inner import InnerLoop
from pmeta.training.restored import Asked, evaluate
from pmeta.training.run_folder import Run
from pmeta.training.workers import Group
from tests.helpers.recordings import ACTIVITIES, write_people

TINY = SensorConfig(
    channels=4, rate=100.0, length=32, stride=16, n_shot=2, n_query=2, inner_steps=2,
    pooled_epochs=3, tasks=24, epoch_tasks=12, val_draws=1, val_people=("p0",),
    test_people=("p1",), workers=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_people(tmp_path_factory.mktemp("people"))


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> SensorConfig:
    out = tmp_path_factory.mktemp("runs") / "first"
    config = dataclasses.replace(TINY, data=str(data), out=str(out), memory_budget="60%")
    train(Group(), config)
    return config


def test_people_are_never_shared_between_splits(data: Path) -> None:
    opened = open_data(dataclasses.replace(TINY, data=str(data)))
    assert opened.test
    assert opened.val.groups == ["p0/phone", "p0/watch"]
    assert opened.test.groups == ["p1/phone", "p1/watch"]
    assert {g.split("/")[0] for g in opened.train.groups} == {"p2", "p3", "p4"}
    assert opened.train.windowing.labels == tuple(sorted(ACTIVITIES))


def test_neither_training_nor_validation_sees_other_devices(data: Path) -> None:
    opened = open_data(dataclasses.replace(TINY, data=str(data), devices=("phone",)))
    assert all(g.endswith("/phone") for g in opened.train.groups + opened.val.groups)
    assert opened.test
    assert "p1/watch" in opened.test.groups
    with pytest.raises(ValueError, match="none of those who train has ring"):
        open_data(dataclasses.replace(TINY, data=str(data), devices=("ring",)))


def test_the_scale_of_a_sensor_is_one_for_its_three_axes(data: Path) -> None:
    recordings = read_all(data)
    first = Windowing(("x", "y", "z"), tuple(ACTIVITIES))
    triples = fitted(first, recordings, triples=True)
    assert len(set(triples.scale)) == 1
    assert triples.shift == (0.0,) * 3
    rows = np.concatenate([r.values for r in recordings])
    assert ((rows * triples.scale[0]) ** 2).mean() == pytest.approx(1, rel=1e-4)
    each = fitted(first, recordings, triples=False)
    scaled = rows * np.array(each.scale) + np.array(each.shift)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(scaled.std(0), 1, rtol=1e-4)


def test_a_budget_is_met_in_arena_bytes(run: SensorConfig) -> None:
    maml = dataclasses.replace(run, method="maml", memory_budget="", out=run.out + "-maml", tasks=4)
    train(Group(), maml)
    ours, theirs = (export_run(c.out).arena_bytes for c in (run, maml))
    assert ours <= 0.6 * theirs


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    run: SensorConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(run, out=str(tmp_path / "stopped"))
    real, done = module.validate, []

    def stop(*args: Any) -> Any:
        done.append(1)
        if len(done) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(module, "validate", stop)
    with pytest.raises(KeyboardInterrupt):
        train(Group(), config)
    monkeypatch.setattr(module, "validate", real)
    train(Group(), config)
    for name in ("best", "last", "pooled"):
        whole, again = Run(run.out).load(name), Run(config.out).load(name)
        assert whole
        assert again
        assert all(torch.equal(t, again.tensors[key]) for key, t in whole.tensors.items())


def test_evaluation_by_device(run: SensorConfig) -> None:
    layers, summary = evaluate(Group(), recordings.restore, Asked(run.out, tasks=2))
    assert isinstance(summary, PeopleSummary)
    assert layers[0] == "conv1"
    assert summary.memory_mb > 0
    scores = summary.devices
    assert set(scores) == {"phone", "watch"}
    assert all(0 <= s.after <= 100 and s.people == 1 for s in scores.values())
    assert scores["phone"].gain == pytest.approx(scores["phone"].after - scores["phone"].before)


def test_the_file_on_the_device_adapts_as_pytorch_does(run: SensorConfig) -> None:
    trained = load(run.out)
    model = DeviceModel(export_run(run.out).data)
    assert model.facts["windows"] == trained.windowing.as_facts()
    people = window_set(read_all(Path(run.data)), trained.windowing, "all")
    task = personal_task(people, 0, 0, 0, 2)
    loop = InnerLoop(trained.net, trained.config.method_row(), batch=1)
    w = loop.adapt(trained.meta, (task.support_x, task.support_y)).w
    model.adapt(task.support_x.numpy(), task.support_y.numpy())
    for name, got in model.weights().items():
        distance = np.linalg.norm(got - w[name].numpy()) / np.linalg.norm(w[name].numpy())
        assert distance < 1e-4, name


def test_a_calibrated_run_gives_a_file_that_knows_how_sure_it_may_be(run: SensorConfig) -> None:
    assert not temperatures(export_run(run.out).data)
    assert main(["calibrate", run.out, "--workers", "1"]) == 0
    kept = json.loads((Path(run.out) / "calibration.json").read_text())
    assert [s["n_shot"] for s in kept["shots"]] == [1, 2, 5, 10]
    exported = export_run(run.out).data
    np.testing.assert_allclose(temperatures(exported), kept["temperatures"], rtol=1e-6)
    model = DeviceModel(exported)
    x = np.random.default_rng(0).normal(size=(4, 3, 32)).astype(np.float32)
    model.adapt(x, np.array([0, 0, 1, 2]))
    z = model.scores(x) / kept["temperatures"][0]  # the least that a class has is one window
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict(x).probabilities, p, atol=1e-5)


def test_who_validates_is_drawn_by_the_seed_unless_named() -> None:
    people = [f"p{i}" for i in range(10)]
    parts = split_people(people, (), ("p3",), seed=0)
    assert sorted(parts["train"] + parts["val"] + parts["test"]) == people
    assert len(parts["val"]) == 1
    assert any(split_people(people, (), (), s)["val"] != parts["val"] for s in range(1, 5))
    with pytest.raises(ValueError, match="has no 'zoe'"):
        split_people(people, ("zoe",), (), 0)
    with pytest.raises(ValueError, match="need people of their own"):
        split_people(["a"], (), (), 0)
    with pytest.raises(ValueError, match="need people of their own"):
        split_people(["a", "b", "c"], ("a",), ("a",), 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rotate": 0.5, "triples": False}, "--rotate turns sensors of three axes"),
        ({"channels": 6}, "--channels are four groups"),
        ({"n_shot": 0}, "--n-shot must be at least 1"),
        ({"pooled_lr": 0.0}, "--pooled-lr must be positive"),
        ({"rotate": 1.5}, "--rotate is a share"),
        ({"seed": -1}, "must not be negative"),
        ({"memory_budget": "24kB", "method": "maml"}, "a memory budget is met by dropping layers"),
    ],
)
def test_settings_that_cannot_be(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **change)


def test_recordings_that_do_not_fit_together(data: Path, tmp_path: Path) -> None:
    write_people(tmp_path, people=1)
    (tmp_path / "p0" / "phone" / "0.csv").write_text("x,y,label\n1,2,rest\n")
    with pytest.raises(ValueError, match="all recordings have the same columns"):
        read_all(tmp_path)
    (tmp_path / "p0" / "phone" / "0.csv").write_text("x,y,z\n1,2,3\n")
    with pytest.raises(ValueError, match="the column 'label' is missing"):
        read_all(tmp_path)
    (tmp_path / "loose.csv").write_text("x,y,z,label\n1,2,3,rest\n")
    with pytest.raises(ValueError, match=r"loose\.csv: a recording lies in a folder"):
        read_all(tmp_path)


@pytest.mark.parametrize("lr", [1e6, 1e30])
def test_a_first_classifier_that_diverges_is_not_kept(
    lr: float, data: Path, tmp_path: Path
) -> None:
    config = dataclasses.replace(TINY, data=str(data), out=str(tmp_path / "run"), pooled_lr=lr)
    with pytest.raises(DivergedError, match=r"after \d+ updates: lower --pooled-lr, which is"):
        train(Group(), config)
    assert not list((tmp_path / "run").glob("*.safetensors"))
