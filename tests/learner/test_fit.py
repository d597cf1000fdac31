"""`Learner.fit`: a run folder that is resumed to the bit, the best model kept, for any model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pmeta import device
from pmeta.learner import Learner
from pmeta.learner.tasks import Numbered
from pmeta.method.meta_gradient import AnyTask
from pmeta.method.methods import Method
from pmeta.report.read import read_run
from pmeta.training.run_folder import Run

SMALL: dict[str, Any] = {"n_tasks": 6, "meta_batch": 2, "epoch_tasks": 2, "freeze_at": 0.3}


def learner(loss: str = "cross-entropy", outputs: int = 3, **settings: Any) -> Learner:
    torch.manual_seed(0)
    body = (nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(*body, nn.Linear(24, outputs))
    example = torch.zeros(1, 2, 8)
    return Learner(model, example, inner_steps=2, alpha_0=0.1, loss=loss, **settings)


def classes(i: int) -> AnyTask:
    """Windows whose mean is their class."""
    y = torch.arange(3).repeat(2)
    x = torch.randn(6, 2, 8, generator=torch.Generator().manual_seed(i)) + y.view(-1, 1, 1)
    return x, y, x + 0.1, y


def values(i: int) -> AnyTask:
    x, _, more, _ = classes(i)
    return x, x.mean((1, 2))[:, None], more, more.mean((1, 2))[:, None]


VAL = [classes(i) for i in range(100, 103)]


def tensors(out: Path) -> dict[str, Tensor]:
    found = Run(out).load("last")
    assert found
    return found.tensors


def test_a_run_is_kept_resumed_reported_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = learner(memory_budget="70%")
    best = found.fit(classes, VAL, tmp_path / "whole", **SMALL)
    metrics = Run(tmp_path / "whole").metrics()
    assert [m["tasks"] for m in metrics] == [2, 4, 6]
    frozen = [m for m in metrics if m["frozen"]]
    assert best["val_accuracy"] == max(m["val_accuracy"] for m in frozen)
    kept = Run(tmp_path / "whole").load("best")
    assert kept
    assert torch.equal(found.meta.alpha, kept.tensors["alpha"]), "the learner has the best model"
    assert found.arena_bytes <= 0.7 * found.maml_arena_bytes

    real, seen = Run.log, []

    def interrupted(run: Run, record: dict[str, Any]) -> None:
        seen.append(record)
        if len(seen) == 2:
            raise KeyboardInterrupt
        real(run, record)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "log", interrupted)
        with pytest.raises(KeyboardInterrupt):
            learner(memory_budget="70%").fit(classes, VAL, tmp_path / "parts", **SMALL)
    learner(memory_budget="70%").fit(classes, VAL, tmp_path / "parts", **SMALL)
    whole, parts = tensors(tmp_path / "whole"), tensors(tmp_path / "parts")
    assert all(torch.equal(t, parts[name]) for name, t in whole.items())

    record = read_run(tmp_path / "whole", [])
    assert record.layers == ["0", "1", "4"]
    assert record.setup == "2x8, Sequential"
    with pytest.raises(ValueError, match=r"has tasks=6 \(now 8\): choose another --out\.$"):
        learner(memory_budget="70%").fit(
            classes, VAL, tmp_path / "whole", **{**SMALL, "n_tasks": 8}
        )


class Dropping(nn.Sequential):
    """At the top of a module, so that it can go to another process."""

    def __init__(self, p: float) -> None:
        layers = (nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Dropout(p), nn.Flatten(), nn.Linear(24, 3))
        super().__init__(*layers)


def test_dropout_is_on_in_training_and_the_same_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = Run.log, []

    def interrupted(run: Run, record: dict[str, Any]) -> None:
        seen.append(record)
        if len(seen) == 2:
            raise KeyboardInterrupt
        real(run, record)

    def fit(name: str, p: float, workers: int = 1) -> dict[str, Tensor]:
        torch.manual_seed(0)
        found = Learner(Dropping(p), torch.zeros(1, 2, 8), "pmeta-lr", 2, 0.1, memory_budget="80%")
        torch.seed()  # numbers of PyTorch that nobody knows
        found.fit([classes(i) for i in range(6)], VAL, tmp_path / name, workers=workers, **SMALL)
        assert found.net.model.training
        return tensors(tmp_path / name)

    whole, other, two = fit("whole", 0.2), fit("other", 0.9), fit("two", 0.2, workers=2)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "log", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit("parts", 0.2)
    parts = fit("parts", 0.2)
    assert all(
        torch.equal(t, parts[name]) and torch.equal(t, two[name]) for name, t in whole.items()
    )
    assert not torch.equal(whole["w/4.weight"], other["w/4.weight"])


def test_a_regression_by_name_also_on_the_device(tmp_path: Path) -> None:
    found = learner("mse", outputs=1)
    unseen = [values(i) for i in range(100, 103)]
    best = found.fit(values, unseen, tmp_path / "run", **SMALL)
    metrics = Run(tmp_path / "run").metrics()
    assert best["val_loss"] == min(m["val_loss"] for m in metrics if m["frozen"])
    assert found.evaluate(unseen).loss == pytest.approx(best["val_loss"], rel=1e-5)
    record = read_run(tmp_path / "run", [])
    assert record.score
    assert (record.score.value, record.measure.better) == (best["val_loss"], "lower")
    x, y, query, _ = values(7)
    found.export(tmp_path / "model.pmeta")
    model = device.load(tmp_path / "model.pmeta")
    assert model.loss == "mse"
    with pytest.raises(ValueError, match=r"this model is a regression: use adapt_values\.$"):
        model.adapt(x.numpy(), [0] * len(x))
    model.adapt_values(x.numpy(), y.numpy())
    expected = found.predict(found.adapt(x, y), query).numpy()
    np.testing.assert_allclose(model.scores(query.numpy()), expected, rtol=1e-4, atol=1e-4)
    message = (
        r"^the targets of a regression are floats of shape \(6, 1\), got int64 of shape \(6,\)"
    )
    with pytest.raises(ValueError, match=message):
        model.adapt_values(x.numpy(), np.zeros(6, np.int64))


def test_two_processes_do_what_one_does(tmp_path: Path) -> None:
    given = [classes(i) for i in range(6)]
    one, two = learner(), learner()
    one.fit(given, VAL, tmp_path / "one", **SMALL)
    print(two.cost(samples=6))  # what was planned stays here
    two.fit(given, VAL, tmp_path / "two", workers=2, **SMALL)
    last = [tensors(tmp_path / name) for name in ("one", "two")]
    for name, t in last[0].items():
        torch.testing.assert_close(last[1][name], t, rtol=1e-3, atol=1e-5)
    message = r"^with workers above 1 the model, the loss and the tasks go to other processes, and"
    with pytest.raises(ValueError, match=message):
        learner().fit(lambda i: given[i], VAL, tmp_path / "more", workers=2, **SMALL)


def test_tasks_by_number() -> None:
    def forward() -> Iterator[AnyTask]:
        yield from [(i, i, i, i) for i in range(5)]

    assert [Numbered([(1,) * 4, (2,) * 4], 4)(i)[0] for i in range(4)] == [1, 2, 1, 2]
    assert Numbered(lambda i: (i,) * 4, 4)(3)[0] == 3
    every = Numbered(forward(), 5)
    assert [every(i)[0] for i in range(5)] == [0, 1, 2, 3, 4]
    second = Numbered(forward(), 6)  # the share of one of two processes, after a start at task 1
    assert [second(i)[0] for i in (1, 3)] == [1, 3]
    with pytest.raises(ValueError, match=r"^n_tasks promised 6 tasks and 5 came, which cut"):
        second(5)


def test_what_a_run_cannot_keep(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^the best model is chosen on val_tasks, got none"):
        learner().fit(classes, [], tmp_path, **SMALL)
    own = Method("the head, learned", update="head", learn_alpha=True)
    with pytest.raises(ValueError, match=r"^a run folder keeps a method by its name, one of maml"):
        learner(method=own).fit(classes, VAL, tmp_path, **SMALL)
    with pytest.raises(ValueError, match=r"^task 0 is \(support_x, .* got 2 parts"):
        learner().fit([(1, 2)], VAL, tmp_path, **SMALL)  # type: ignore[list-item]
