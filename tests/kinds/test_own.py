"""Runs of `Learner.fit` are exported without the code of the model: the same bytes, or a reason."""

import dataclasses
import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.cli import main
from pmeta.cli.export import export_run
from pmeta.kinds.own.graph import keep, read
from pmeta.learner import Learner
from pmeta.method.meta_gradient import AnyTask
from pmeta.method.methods import METHODS


class Depthwise(nn.Module):
    """Depthwise and grouped convs, residual and squeeze-and-excitation, pools of all sorts."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.ModuleDict({"conv": nn.Conv2d(3, 8, 3, 2, 1), "norm": nn.GroupNorm(2, 8)})
        self.depth = nn.Conv2d(8, 8, 3, padding="same", groups=8, bias=False)
        self.point = nn.Conv2d(8, 8, 1)
        self.plain = nn.GroupNorm(4, 8, affine=False)
        self.excite = nn.Conv2d(8, 8, 1)
        self.nodes = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem["norm"](self.stem["conv"](x)))
        y = F.leaky_relu(self.point(self.depth(x)), 0.2) + x
        y = y * torch.sigmoid(self.excite(F.adaptive_avg_pool2d(y, 1)))
        y = F.silu(self.plain(y)) * torch.sigmoid(y.mean((2, 3), keepdim=True)).expand_as(y)
        pools = [
            F.max_pool2d(y, 3, 2, ceil_mode=True).relu_(),
            F.avg_pool2d(y, 3, 2, ceil_mode=True),
        ]
        y = F.hardswish(F.relu6(torch.cat(pools, 1)))
        return self.nodes(y.mean((2, 3)))


class Loose(nn.Module):
    """With a weight that no layer has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.ones(2, 2)), nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.linear(x, self.weight))


class Rows(nn.Module):
    """Conv1d, and layer norm over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(2, 4, 3, padding=1), nn.LayerNorm(8, bias=False)
        self.mix, self.bare = nn.Linear(8, 8), nn.LayerNorm(8, elementwise_affine=False)
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bare(self.mix(self.norm(self.conv(x))).relu())
        x = F.avg_pool1d(F.max_pool1d(x, 3, 1, padding=1), 2)
        return self.head(x.flatten(1))


def convs() -> nn.Module:
    block = (nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1))
    return nn.Sequential(*block, nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


Case = tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, Any]]
MINE = dataclasses.replace(METHODS["maml"], title="mine")
MODELS: dict[str, Case] = {
    "convs": (convs, (1, 12, 12), {}),
    "pixels": (convs, (1, 12, 12), {"pixels": True, "memory_budget": "70%"}),
    "prototypes": (convs, (1, 12, 12), {"head": "prototype", "memory_budget": "9kB"}),
    "depthwise": (Depthwise, (3, 21, 19), {"method": "pmeta", "memory_budget": "60%"}),
    "rows": (Rows, (2, 8), {"method": "pmeta-lr"}),
    "regression": (mlp, (2,), {"loss": "mse"}),
}
IN_PYTHON: dict[str, Case] = {
    "not for the device": (mlp, (2,), {"loss": "mse", "for_device": False}),
    "a method of one's own": (mlp, (2,), {"loss": "mse", "method": MINE}),
    "a weight without a layer": (Loose, (2,), {"loss": "mse", "extra": ("weight",)}),
}
SETTINGS: dict[str, Any] = {"n_tasks": 4, "meta_batch": 2, "epoch_tasks": 2, "freeze_at": 0.0}


def fit(case: Case, out: Path) -> Learner:
    torch.manual_seed(0)
    make, shape, settings = case
    learner = Learner(make(), torch.zeros(1, *shape), inner_steps=2, **settings)

    def task(i: int) -> AnyTask:
        numbers = torch.Generator().manual_seed(i)
        x, more = torch.randn(2, 2 * learner.outputs, *shape, generator=numbers)
        y: Tensor = torch.arange(learner.outputs).repeat(2)
        if not learner.classifies:
            y = torch.randn(2, 1, generator=numbers)
        return x, y, more, y

    learner.fit(task, [task(9)], out, **SETTINGS)
    return learner


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Learner]]:
    root = tmp_path_factory.mktemp("own")
    return {name: (root / name, fit(MODELS[name], root / name)) for name in MODELS}


Runs = dict[str, tuple[Path, Learner]]


@pytest.mark.parametrize("name", MODELS)
def test_the_command_writes_the_file_that_the_learner_writes(
    name: str, runs: Runs, tmp_path: Path
) -> None:
    run, learner = runs[name]
    for batch in (1, 3):
        learner.export(tmp_path / "learner", batch=batch)
        argv = ["export", str(run), "--batch", str(batch), "--quiet", "-o", str(tmp_path / "run")]
        assert main(argv) == 0
        assert (tmp_path / "run").read_bytes() == (tmp_path / "learner").read_bytes()


def damaged(known: Any, numbers: random.Random) -> Any:
    """The same with another value somewhere."""
    if numbers.random() < 0.1 or not isinstance(known, dict | list) or not known:
        if type(known) is int and numbers.random() < 0.7:
            return numbers.choice((known + 1, known - 1, -known, known * 10, 10**6, 2**40, 2**70))
        others: tuple[Any, ...] = (
            None,
            True,
            "",
            "0",
            "relu6",
            "view",
            [],
            [1],
            {},
            0,
            0.5,
            -1,
            10**5,
            1e300,
        )
        return numbers.choice(others)
    keys = list(known) if isinstance(known, dict) else list(range(len(known)))
    key, copy = numbers.choice(keys), known.copy()
    if numbers.random() < 0.1:
        del copy[key]
    else:
        copy[key] = damaged(known[key], numbers)
    return copy


@pytest.mark.parametrize("name", ["prototypes", "regression"])
def test_a_damaged_file_is_refused_in_one_line(
    name: str, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    run, _ = runs[name]
    path, numbers = run / "graph.json", random.Random(0)
    text = path.read_text()
    refused: list[str] = []
    log = logging.getLogger("torch._subclasses.fake_tensor")  # prints, and hands nothing on
    log.addHandler(caplog.handler)
    try:
        for i in range(150):
            bad = json.dumps(damaged(json.loads(text), numbers))
            if i % 3 == 0:  # no JSON any more
                at = numbers.randrange(len(text))
                bad = text[:at] + numbers.choice(("", "}", "9", "\x00", "\u2028")) + text[at + 1 :]
            path.write_text(bad)
            try:
                export_run(str(run))
            except ValueError as error:
                refused.append(str(error))
    finally:
        path.write_text(text)
        log.removeHandler(caplog.handler)
    assert len(refused) > 100
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    start, end = f"{path} is not as we write it (", "learner.export('mine.pmeta')."
    others = [e for e in refused if not e.startswith(start) or not e.endswith(end)]
    assert others == []
    assert all(len(error.splitlines()) == 1 for error in refused)


@pytest.mark.parametrize("name", IN_PYTHON)
def test_what_python_alone_can_export_is_said_in_one_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    fit(IN_PYTHON[name], run)
    assert main(["export", str(run), "-o", str(tmp_path / "model.pmeta")]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"pmeta: error: the model of {run} lives in Python, and there is no graph.json of what the "
        f"device runs of it: export it in Python: learner.load({str(run)!r}), then "
        "learner.export('mine.pmeta')."
    )


def test_a_call_of_fit_writes_a_lost_graph_anew(tmp_path: Path) -> None:
    fit(MODELS["regression"], tmp_path)
    graph = read(tmp_path / "graph.json")
    keep(tmp_path, None)
    assert not (tmp_path / "graph.json").exists()
    fit(MODELS["regression"], tmp_path)
    assert read(tmp_path / "graph.json") == graph
