"""The loop of all trainings: when it validates, what it keeps, where it goes on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pmeta.base.errors import DivergedError
from pmeta.network.take_in import take_in
from pmeta.training import trainer
from pmeta.training.figures import REGRESSION
from pmeta.training.run_folder import Run
from pmeta.training.settings import RunSettings
from pmeta.training.trainer import train_in_folder
from pmeta.training.workers import Group


@dataclass(frozen=True)
class Counted(RunSettings):
    """Settings of a training that counts."""

    kind = "counted"


class Counting:
    """A training whose state is how often it was updated, and whose loss is what it is told."""

    title, unit, each, total, updates, every = "counting", "updates", 1, 7, 7, 2
    sums: tuple[str, ...] = ("loss", "skipped")
    figures = REGRESSION
    samples, kept_words = 1, 6
    sample: Sequence[int] = (2,)
    net = take_in(nn.Linear(2, 1), torch.zeros(1, 2))

    def __init__(self, losses: dict[int, float] | None = None, stop: int = 99, bad: int = 99):
        self.at, self.losses, self.stop, self.bad = 0, losses or {}, stop, bad

    @property
    def done(self) -> int:
        return self.at

    @property
    def eligible(self) -> bool:
        return self.at > 2

    @property
    def astray(self) -> bool:
        return self.at == self.bad

    def counts(self, done: int) -> dict[str, int]:
        return {"tasks": done}

    def step(self, group: Group) -> dict[str, float]:
        if self.at == self.stop:
            raise DivergedError("it went astray.")
        self.at += 1
        return {"loss": self.at, "skipped": int(self.at == self.bad)}

    def validate(self, group: Group, sums: dict[str, float]) -> dict[str, Any]:
        loss = self.losses.get(self.at, 10.0 - self.at)
        return {"loss": sums["loss"], "val_loss": loss, "val_ci95": 0.1, "memory_mb": 1.0}

    def status(self, sums: dict[str, float]) -> list[str]:
        return [f"loss {sums['loss']}"]

    def about(self) -> dict[str, Any]:
        return {"input": [2]}

    def best(self) -> dict[str, Tensor]:
        return {"at": torch.tensor(self.at)}

    def state(self) -> dict[str, Tensor]:
        return {"at": torch.tensor(self.at)}

    def check(self, state: dict[str, Tensor]) -> None:
        if set(state) != {"at"}:
            raise ValueError("another training's")

    def load(self, state: dict[str, Tensor]) -> None:
        self.at = int(state["at"])


def train(out: Path, training: Counting, group: Group | None = None) -> dict[str, Any]:
    return train_in_folder(group or Group(), Counted(out=str(out)), lambda run, config: training)


def at(out: Path, name: str) -> int:
    found = Run(out).load(name)
    assert found
    return int(found.tensors["at"])


def test_it_validates_every_so_often_and_at_the_end(tmp_path: Path) -> None:
    train(tmp_path, Counting())
    metrics = Run(tmp_path).metrics()
    assert [m["tasks"] for m in metrics] == [2, 4, 6, 7]
    assert [m["loss"] for m in metrics] == [1 + 2, 3 + 4, 5 + 6, 7]  # since the one before


def test_the_best_is_the_best_of_those_that_may_be(tmp_path: Path) -> None:
    best = train(tmp_path, Counting({2: 0.0, 4: 3.0, 6: 5.0, 7: 4.0}))
    expected = {"input": [2], "tasks": 4, "val_loss": 3.0, "val_ci95": 0.1, "memory_mb": 1.0}
    assert best == expected
    assert at(tmp_path, "best") == 4
    assert at(tmp_path, "last") == 7


def test_a_run_says_what_it_is(tmp_path: Path) -> None:
    train(tmp_path, Counting())
    assert Run(tmp_path).config()["kind"] == "counted"
    network, figures = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("network", "figures")
    )
    assert network["layers"] == [layer.name for layer in Counting.net.layers]
    assert [op["kind"] for op in network["ops"]] == ["fc"]
    assert (network["samples"], network["kept_words"], network["method"]) == (1, 6, None)
    said = {key: figures[key] for key in ("title", "changes", "setup", "total", "given", "paper")}
    assert said == {
        "title": "counting",
        "changes": [],
        "setup": "2, counted",
        "total": 7,
        "given": ["out"],
        "paper": {},
    }
    assert (figures["count"], figures["figures"]["tasks"]["unit"]) == ("tasks", "tasks")
    assert figures["score"] == "val_loss"
    assert figures["figures"]["val_loss"]["better"] == "lower"


def test_it_goes_on_where_it_diverged(tmp_path: Path) -> None:
    kept = f"it went astray. The last good checkpoint is kept in {tmp_path}."
    with pytest.raises(DivergedError, match=f"^{kept}$"):
        train(tmp_path, Counting(stop=5))
    assert at(tmp_path, "last") == 4
    train(tmp_path, Counting())
    assert [m["loss"] for m in Run(tmp_path).metrics()] == [3, 7, 11, 7]


def test_no_checkpoint_of_an_update_that_went_astray_but_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    kept, save = [], trainer.save

    def noting(run: Run, training: Any, progress: Any) -> None:
        kept.append(training.done)
        save(run, training, progress)

    monkeypatch.setattr(trainer, "save", noting)
    train(tmp_path / "three", Counting(bad=3))
    train(tmp_path / "seven", Counting(bad=7))
    assert kept == [1, 2, 4, 5, 6, 7, *range(1, 8)]
    assert [m["skipped"] for m in Run(tmp_path / "three").metrics()] == [0, 1, 1, 1]


def test_a_checkpoint_that_is_ahead_of_its_json_puts_it_right(tmp_path: Path) -> None:
    """As after a kill between the two."""
    train(tmp_path, Counting())
    for text in ('{"tasks": 8}', ""):
        (tmp_path / "last.json").write_text(text)
        train(tmp_path, Counting())
        assert Run(tmp_path).tasks_done() == 7


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    train(tmp_path, Counting())
    found = Run(tmp_path).load("last")
    assert found
    Run(tmp_path).save("last", {"other": torch.zeros(1)}, found.info)
    (tmp_path / "previous.safetensors").unlink()
    with pytest.raises(ValueError, match="another training's"):
        train(tmp_path, Counting())


def test_shortened_metrics_are_noticed_at_the_start(tmp_path: Path) -> None:
    train(tmp_path, Counting())
    (tmp_path / "metrics.jsonl").write_text('{"ta')
    with pytest.raises(ValueError, match=r"behind 4 lines of metrics\.jsonl, which has 0: put"):
        train(tmp_path, Counting())


def test_other_processes_write_nothing(tmp_path: Path) -> None:
    with Run(tmp_path / "none") as run:
        trainer.train(Group(1), run, Counting())
    assert not (tmp_path / "none").exists()
