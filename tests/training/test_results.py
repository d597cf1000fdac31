"""Unseen tasks: figures by hand, by brute force, and of data sets of other shapes."""

import dataclasses
import errno
import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import pmeta.training.workers
from pmeta.cli import main
from pmeta.cost.adaptation import cost
from pmeta.cost.macs import macs
from pmeta.cost.memory import peak_words
from pmeta.kinds import train
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.method.inner import InnerLoop, Scores
from pmeta.method.methods import METHODS, Method
from pmeta.method.step_sizes import updated_layers
from pmeta.network.layers import Network
from pmeta.training.results import (
    Summary,
    TaskResult,
    evaluate_task,
    summarise,
    task_cost,
)
from pmeta.training.run_folder import Run
from pmeta.training.workers import Group
from tests.helpers import nets

ASKED = {
    *("run", "data", "split", "n_way", "n_shot", "n_query", "batch", "seed", "least_step"),
    "layers",
}

SHAPE = (2, 6, 6)
SMALL: dict[str, Any] = {
    "image_size": None,
    "channels": 8,
    "groups": 4,
    "inner_steps": 2,
    "n_query": 2,
    "alpha_0": 0.1,
}
TINY = ImageConfig(**SMALL, tasks=4, meta_batch=2, epoch_tasks=2, val_tasks=2)


def result(accuracy: float, peak: float, exact: float, macs: float, ratio: float) -> TaskResult:
    return TaskResult(accuracy, peak, exact, macs, torch.tensor([[ratio, 1.0]]))


def test_summary_by_hand() -> None:
    summary = summarise(
        [
            result(0.2, 1e6, 2e6, 1e9, 0.5),
            result(0.4, 3e6, 4e6, 2e9, 0.7),
            result(0.6, 2e6, 9e6, 3e9, 0.9),
        ]
    )
    assert (summary.tasks, summary.accuracy) == (3, pytest.approx(40))
    assert summary.ci95 == pytest.approx(
        100 * 1.96 * 0.2 / math.sqrt(3)
    )  # the sample's standard deviation is 0.2
    assert (summary.memory_mb, summary.worst_memory_mb) == (pytest.approx(8), pytest.approx(12))
    assert (summary.exact_memory_mb, summary.worst_exact_memory_mb) == (
        pytest.approx(20),
        pytest.approx(36),
    )
    assert (summary.gmac, summary.worst_gmac) == (pytest.approx(2), pytest.approx(3))
    assert summary.update_ratios == [pytest.approx([0.7, 1.0])]
    assert summary.update_ratios_std == [pytest.approx([math.sqrt(0.08 / 3), 0.0], abs=1e-7)]
    assert math.isnan(
        summarise([result(0.2, 1, 1, 1, 1)]).ci95
    )  # one task says nothing of the spread


def brute_force(
    net: Network, masks: list[list[str]], scores: list[Scores], n: int, batch: int
) -> tuple[float, float, float]:
    """Peaks and MACs sample by sample and layer by layer from the cost model."""
    peaks: dict[str, float] = {"paper": 0.0, "exact": 0.0}
    total = 0.0
    for update, of_step in zip(masks, scores, strict=True):
        for b in range(n):
            mu_fw, mu_bw, both = {}, {}, {}
            for name in update:
                fw, bw = (
                    torch.ones(1) if g is None else (g[min(b, len(g) - 1)] > 0).double()
                    for g in of_step[name]
                )
                mu_fw[name], mu_bw[name] = float(fw.mean()), float(bw.mean())
                both[name] = float((fw * bw).mean()) if name.startswith("norm") else mu_fw[name]
            for accounting in peaks:
                words = peak_words(net.ops, update, batch, n, mu_fw, accounting, attention=True)
                peaks[accounting] = max(peaks[accounting], words)
            # of the weights of a norm those are updated whose channel has both scores
            mu_bw = {name: 1.0 if name.startswith("norm") else mu for name, mu in mu_bw.items()}
            total += macs(net.ops, update, both, mu_bw, attention=True)
    return peaks["paper"], peaks["exact"], total / len(masks)


@pytest.mark.parametrize("batch", [1, None])
@pytest.mark.parametrize(("rho_fw", "rho_bw"), [(0.3, 0.0), (0.3, 0.4), (None, 0.4)])
def test_cost_of_a_task_is_that_of_its_samples(
    batch: int | None, rho_fw: float | None, rho_bw: float
) -> None:
    net = nets.network(nets.Residual(), SHAPE)
    method = dataclasses.replace(METHODS["pmeta"], clip_ratio_fw=rho_fw, clip_ratio_bw=rho_bw)
    loop, meta = InnerLoop(net, method, batch=batch), nets.meta_of(net, method)
    meta.alpha[0, 1], meta.alpha[1, 0] = 0.0, 0.0
    meta = dataclasses.replace(meta, mask=meta.updates())
    x, y, *_ = nets.task(SHAPE)
    scores = loop.adapt(meta, (x, y)).scores
    masks = updated_layers(net, meta.updates())
    paper, exact, macs, ratios = task_cost(loop, meta, scores, len(x))
    expected = brute_force(net, masks, scores, len(x), batch or len(x))
    assert (paper, exact) == (
        pytest.approx(expected[0], rel=1e-6),
        pytest.approx(expected[1], rel=1e-6),
    )
    assert macs == pytest.approx(expected[2], rel=1e-6)
    assert ratios[0, 1] == ratios[1, 0] == 0
    conv2 = net.index("conv2")
    shares = [1.0 if g is None else (g > 0).double().mean(1) for g in scores[0]["conv2"]]
    assert float(ratios[0, conv2]) == pytest.approx(
        float((torch.as_tensor(shares[0] * shares[1])).mean()), rel=1e-6
    )
    assert ratios[0, net.index("head")] == 1


def test_dense_methods_cost_what_the_cost_model_says() -> None:
    net = nets.network(nets.Residual(), SHAPE)
    for name in ("maml", "anil"):
        loop, meta = InnerLoop(net, METHODS[name], batch=1), nets.meta_of(net, METHODS[name])
        found = evaluate_task(loop, meta, nets.task(SHAPE))
        expected = cost(net.ops, updated_layers(net, meta.updates()), 5)
        assert (found.peak_words, found.exact_peak_words) == (
            expected.peak_words,
            expected.exact_peak_words,
        )
        assert found.macs == pytest.approx(expected.step_macs[0])
        assert torch.equal(found.ratios, meta.updates().float())


def test_a_task_is_adapted_to_and_classified() -> None:
    net = nets.network(nets.Residual(), SHAPE)
    for batch in (1, 2, None):
        loop, meta, task = (
            InnerLoop(net, METHODS["pmeta"], batch=batch),
            nets.meta_of(net, METHODS["pmeta"]),
            nets.task(SHAPE),
        )
        w = InnerLoop(net, METHODS["pmeta"], batch=batch, vectorised=False).adapt(meta, task[:2]).w
        right = torch.func.functional_call(net.model, w, (task[2],)).argmax(1) == task[3]
        assert evaluate_task(loop, meta, task).accuracy == float(right.double().mean())


def test_outputs_without_a_class_are_not_chosen() -> None:
    net = nets.network(nets.Residual(), SHAPE)
    meta = nets.meta_of(net, METHODS["maml"])
    meta.w["head.bias"].copy_(torch.tensor([0.0, 0.0, 100.0]))  # would always win
    x, y, query_x, query_y = nets.task(SHAPE)
    loop = InnerLoop(net, METHODS["maml"], batch=1)
    assert evaluate_task(loop, meta, (x, y * 0, query_x, query_y * 0)).accuracy == 1.0
    assert evaluate_task(loop, meta, (x, y.clamp(max=1), query_x, query_y * 0 + 2)).accuracy == 0.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on glyphs: one grey channel of 28 x 28."""
    out = tmp_path_factory.mktemp("runs") / "glyphs"
    train(Group(), dataclasses.replace(TINY, out=str(out)))
    return out


def pictures(
    root: Path,
    classes: int,
    mode: str,
    size: tuple[int, int],
    splits: tuple[str, ...] = ("test",),
    images: int = 3,
) -> Path:
    random = np.random.default_rng(0)
    for folder in (root / split / f"c{j}" for split in splits for j in range(classes)):
        folder.mkdir(parents=True)
        for k in range(images):
            pixels = random.integers(0, 256, (size[1], size[0], *[3] * (mode == "RGB")), np.uint8)
            Image.fromarray(pixels).save(folder / f"{k}.png")
    return root


def evaluated(capsys: pytest.CaptureFixture[str], *argv: Any) -> dict[str, Any]:
    assert main(["evaluate", *map(str, argv), "--workers", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err.strip() == ""
    return json.loads(out)


def refused(capsys: pytest.CaptureFixture[str], *argv: Any) -> str:
    try:
        code = main(["evaluate", *map(str, argv), "--workers", "1"])
    except SystemExit as end:
        code = int(str(end.code))
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    return " ".join(err.split()).removeprefix("pmeta: error: ")


def test_steps_below_a_limit_update_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(run, tmp_path / "run")
    alpha = Run(run).best().tensors["alpha"]
    limit = float(alpha.median())
    found, own = (
        evaluated(capsys, run, "--tasks", 2, *more) for more in (["--least-step", limit], [])
    )
    small = alpha < limit
    assert 0 < small.sum() < small.numel()
    assert (torch.tensor(own["update_ratios"]) > 0).all()
    assert ((torch.tensor(found["update_ratios"]) == 0) == small).all()
    assert {found["least_step"], own["least_step"]} == {limit, None}
    assert "the largest is" in refused(capsys, run, "--least-step", 9)
    assert "at least 0, got -1" in refused(capsys, run, "--least-step", -1)


def test_json_of_the_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluated(capsys, run, "--tasks", 3)
    assert set(found) == {f.name for f in dataclasses.fields(Summary)} | ASKED
    assert (found["run"], found["data"], found["split"], found["batch"], found["tasks"]) == (
        str(run),
        "",
        "test",
        1,
        3,
    )
    assert found["layers"] == [f"{kind}{b}" for b in range(1, 5) for kind in ("conv", "norm")] + [
        "fc"
    ]
    assert np.shape(found["update_ratios"]) == np.shape(found["update_ratios_std"]) == (2, 9)
    assert 0 <= found["accuracy"] <= 100
    assert found["memory_mb"] <= found["worst_memory_mb"]
    (kept,) = run.glob("evaluation-*.json")  # for pmeta report
    assert json.loads(kept.read_text()) == found
    assert evaluated(capsys, run, "--tasks", 3) == found
    assert len(list(run.glob("evaluation-*.json"))) == 1
    assert evaluated(capsys, run, "--tasks", 3, "--data", "glyphs") == {**found, "data": "glyphs"}
    seeds = [
        evaluated(capsys, run, "--tasks", 12, "--seed", seed)["accuracy"] for seed in (1, 2, 3)
    ]
    assert len(set(seeds)) > 1
    assert evaluated(capsys, run, "--tasks", 1)["ci95"] is None  # JSON has no nan


def full(*args: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("command", ["evaluate", "calibrate"])
def test_a_full_disk_is_told_before_the_work(
    command: str,
    run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(pmeta.training.workers, "run", None)  # nothing is computed
    before = sorted(run.iterdir())
    assert main([command, str(run)]) == 2
    assert re.search(r"cannot write .*\.json \(No space left on device\)", capsys.readouterr().err)
    assert sorted(run.iterdir()) == before


@pytest.mark.parametrize("command", ["evaluate", "calibrate"])
def test_what_was_found_is_printed_though_it_cannot_be_kept(
    command: str,
    run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "replace", full)  # full by now
    assert main([command, str(run), "--tasks", "2", "--workers", "1", "--json"]) == 2
    told = capsys.readouterr()
    assert "cannot write" in told.err
    assert json.loads(told.out)


def test_batches_and_shots(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = evaluated(capsys, run, "--tasks", 1, "--n-shot", 2, "--n-query", 1)
    whole = evaluated(capsys, run, "--tasks", 1, "--n-shot", 2, "--n-query", 1, "--batch", "None")
    assert whole["exact_memory_mb"] > 4 * one["exact_memory_mb"]  # 10 samples at a time
    assert evaluated(capsys, run, "--tasks", 1, "--n-way", 3)["gmac"] < one["gmac"]


def test_the_table_of_the_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--tasks", "2", "--split", "val", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"accuracy \d+\.\d\d ± \d+\.\d\d % on 2 tasks", out)
    assert all(
        words in out
        for words in (
            "peak memory, exact",
            "GMACs of a step",
            "share of weights updated",
            "norm4",
            "step 2",
        )
    )


@pytest.mark.parametrize(("mode", "size"), [("RGB", (40, 32)), ("L", (20, 20))])
def test_other_data_are_fitted_to_the_network(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str, size: tuple[int, int]
) -> None:
    data = pictures(tmp_path / "data", 5, mode, size)
    found = evaluated(capsys, run, "--data", data, "--tasks", 2)
    assert (found["tasks"], found["data"]) == (2, str(data))


def test_data_that_do_not_fit(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = pictures(tmp_path / "wide", 5, "RGB", (24, 16), ("train", "val", "test"))
    out = tmp_path / "run"
    train(Group(), dataclasses.replace(TINY, out=str(out), data=str(wide), tasks=2, n_query=1))
    capsys.readouterr()
    assert evaluated(capsys, out, "--tasks", 1)["tasks"] == 1  # its own data, which are not square
    square = pictures(tmp_path / "square", 5, "L", (24, 24))
    assert refused(capsys, out, "--data", square) == (
        f"the network takes images of 3x16x24 (channels, height, width), those of test of {square} "
        "are 3x24x24: choose other data."
    )
    few = pictures(tmp_path / "few", 4, "L", (24, 24))
    fewer, asked = (
        evaluated(capsys, run, "--data", few, "--tasks", 2, *way) for way in ((), ("--n-way", 4))
    )
    assert (fewer["loss"], fewer["accuracy"]) == (asked["loss"], asked["accuracy"])
    message = refused(capsys, run, "--data", few, "--n-way", 5)
    assert message == f"a 5-way task needs 5 classes and test of {few} has 4: lower n_way."


def test_mistakes(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        refused(capsys, tmp_path)
        == f"a run folder holds a config.json, {tmp_path} does not: train one with pmeta train."
    )
    assert (
        refused(capsys, run, "--n-way", 6)
        == f"the head of {run} was meta-trained for 5 classes, got 6: take a model with a head "
        "from prototypes, such as miniimagenet-4conv, or train one with --head prototype."
    )
    seed = "the model was chosen on the validation tasks of seed 0: give another --seed."
    assert refused(capsys, run, "--split", "val", "--seed", 0) == seed
    assert "--tasks must be at least 1, got 0." in refused(capsys, run, "--tasks", 0)
    assert "--batch must be at least 1, got 0." in refused(capsys, run, "--batch", 0)
    assert "--seed and --workers must not be negative, got -1 and 1." in refused(
        capsys, run, "--seed", -1
    )
    nowhere = tmp_path / "nowhere"
    message = f"no data at {nowhere}: give a folder of classes, a .tar, a .zip, or the word glyphs."
    assert refused(capsys, run, "--data", nowhere) == message
    with Run(tmp_path / "new") as new:
        new.start(TINY)
    message = (
        "has no best model yet: it is chosen from the validations after --freeze-at; go on with "
        "pmeta train."
    )
    assert refused(capsys, tmp_path / "new") == f"{tmp_path / 'new'} {message}"


def test_a_gpu_that_is_not_there(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (
        refused(capsys, run, "--device", "cuda")
        == "--device cuda needs a GPU, and there is none here: leave it out."
    )


def test_static_scores_of_zero_count_as_not_updated() -> None:
    net = nets.network(nets.Residual(), SHAPE)
    static = Method("static", learn_alpha=True, scores="static")
    meta = nets.meta_of(net, static)
    meta.attention["conv2.fw.alpha"].copy_(torch.tensor([0.0, 1.0, 0.0, 2.0]))
    found = evaluate_task(InnerLoop(net, static, batch=1), meta, nets.task(SHAPE))
    alive = (meta.attention["conv2.bw.alpha"] > 0).double().mean()
    assert float(found.ratios[0, net.index("conv2")]) == pytest.approx(0.5 * float(alive))
