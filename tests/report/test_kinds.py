"""A page of a run of any kind, by what stands in its folder: nothing else says what kind it is."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pmeta.cli import main
from pmeta.kinds import train
from pmeta.kinds.pictures.pretraining.config import PretrainConfig
from pmeta.kinds.recordings.config import SensorConfig
from pmeta.learner import Learner
from pmeta.method.meta_gradient import AnyTask
from pmeta.report.page import page
from pmeta.report.read import Given, read_run
from pmeta.training.figures import COST_FIGURES, Figure, Figures
from pmeta.training.run_folder import Run
from pmeta.training.settings import AdamSettings
from pmeta.training.trainer import describe
from pmeta.training.workers import Group
from tests.helpers.recordings import write_people
from tests.helpers.report_folders import MINI, trained


def recordings(root: Path) -> None:
    people = SensorConfig(
        channels=4, rate=100.0, length=32, n_shot=2, n_query=2, inner_steps=2, pooled_epochs=0,
        tasks=8, epoch_tasks=4, val_draws=1, val_people=("p0",), workers=1,
    )  # fmt: skip
    data = str(write_people(root / "people"))
    train(Group(), dataclasses.replace(people, data=data, out=str(root / "run")))


def pre_training(root: Path) -> None:
    small = PretrainConfig(
        data="glyphs", channels=8, image_size=28, crop_size=28, epochs=2, batch=400, val_tasks=5,
        val_images=20, out=str(root / "run"), workers=1,
    )  # fmt: skip
    train(Group(), small)


def regression(root: Path) -> None:
    def task(i: int) -> AnyTask:
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(i))
        return x[:4], x[:4].sum(1, keepdim=True), x[4:], x[4:].sum(1, keepdim=True)

    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    learner = Learner(model, torch.zeros(1, 3), inner_steps=2, alpha_0=0.1, loss="mse")
    settings: dict[str, Any] = {"n_tasks": 6, "meta_batch": 2, "epoch_tasks": 2, "freeze_at": 0.3}
    learner.fit(task, [task(i) for i in range(9, 12)], root / "run", **settings)


@dataclass(frozen=True)
class Songs(AdamSettings):
    """Settings of a kind that nobody knows, with a method that nobody knows."""

    kind = "songs"


def unknown(root: Path) -> None:
    config, training = Songs(out=str(root / "run"), tasks=20), trained(MINI)
    training.figures = Figures(
        {
            "verses": Figure("verses sung", "verses"),
            "val_wrong": Figure("wrong notes", "notes", "lower"),
            **COST_FIGURES,
        },
        score="val_wrong", ci95="", count="verses", line="", best_line="", reached="",
    )  # fmt: skip
    training.counts = lambda done: {"verses": 2 * done}
    with Run(root / "run") as run:
        run.start(config)
        describe(run, config, training)
        costs = {"memory_mb": 1.0, "gmac": 0.1, "alpha": [[0.1] * len(training.net.layers)]}
        for verses, wrong in ((8, 0.075), (16, 0.05)):
            run.log({"verses": verses, "val_wrong": wrong, **costs})


EVERY: list[tuple[Callable[[Path], None], str, list[str]]] = [
    (
        recordings,
        "people 3x32 at 100 Hz, 4 channels, 2 windows of each activity",
        ["Accuracy against memory", "p-Meta (LR)", "Step sizes α after 8 tasks", "finished"],
    ),
    (
        pre_training,
        "glyphs 28x28, 4Conv (8 channels), pre-training",
        ["nearest-centroid accuracy, 1 and 5 shots (%)", "Learning curves", "finished"],
    ),
    (
        regression,
        "3, Sequential",
        ["Loss against memory", "Down and left is better.", "Memory along the layers"],
    ),
    (
        unknown,
        "3x84x84, songs",
        ["wrong notes (notes)", "0.050 notes in 1.00 MB", "16 of 400 verses", "after 16 verses"],
    ),
]


@pytest.mark.parametrize(("make", "setup", "words"), EVERY)
def test_a_run_of_any_kind_has_a_page(
    tmp_path: Path, make: Callable[[Path], None], setup: str, words: list[str]
) -> None:
    make(tmp_path)
    run = read_run(tmp_path / "run", [])
    assert run.setup == setup
    shown = page(Given(runs=[run]), "title")
    assert [text for text in words if text not in shown] == []


def test_pictures_at_the_end_of_a_training_of_any_kind(tmp_path: Path) -> None:
    options = "--epochs 2 --meta-batch 2 --episodes 2 --horizon 5 --val-every 1 --val-tasks 2"
    words = ["navigation-paper", *options.split(), "--fisher-episodes", "1", "--workers", "1"]
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "curve.png").exists()
    assert (tmp_path / "run" / "step_sizes.png").exists()
