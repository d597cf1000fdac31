"""Temperatures: fitted where they are known, measured by hand, and on a run to the device."""

import json
from pathlib import Path

import numpy as np
import pytest

from pmeta import cli, device
from pmeta.device import model_file as flatfile
from pmeta.training import calibration
from pmeta.training.calibration import Bin, Queries, ece, fit_temperature, reliability


def drawn(t: float, n: int = 40_000) -> Queries:
    """Scores z and labels from softmax(z / t)."""
    random = np.random.default_rng(0)
    z = random.normal(size=(n, 5)) * 3
    p = np.exp(z / t)
    p /= p.sum(1, keepdims=True)
    labels = (random.random((n, 1)) > p.cumsum(1)).sum(1)
    return Queries(z, np.minimum(labels, 4))


@pytest.mark.parametrize("t", [0.5, 1.0, 4.0])
def test_the_temperature_that_made_the_labels_is_found(t: float) -> None:
    queries = drawn(t)
    assert fit_temperature(queries) == pytest.approx(t, rel=0.03)
    assert ece(reliability(queries, t)) < 0.01
    if t != 1:
        assert ece(reliability(queries, 1.0)) > 0.05


def test_the_error_by_hand() -> None:
    """Four queries: two 50 % sure of which one is right, two nearly 100 % sure, none right."""
    scores = np.array([[0, 0], [0, 0], [50, 0], [50, 0]], float)
    bins = reliability(Queries(scores, np.array([0, 1, 1, 1])), 1.0)
    assert [b.count for b in bins] == [0] * 7 + [2] + [0] * 6 + [2]
    assert bins[7] == Bin(2, 0.5, 0.5)
    assert bins[14].confidence == pytest.approx(1.0)
    assert ece(bins) == pytest.approx(0.5)


def test_each_half_of_the_tasks_is_measured_with_the_temperature_of_the_other() -> None:
    import torch

    from pmeta.training.results import TaskResult

    def task(t: float) -> TaskResult:
        scores, labels = drawn(t, 4000)
        return TaskResult(0.0, 0.0, 0.0, 0.0, torch.empty(0), scores=scores, labels=labels)

    found = calibration.fitted([task(2.0), task(1.0), task(2.0), task(1.0)])
    assert 1.1 < found["temperature"] < 1.9  # of all tasks
    assert sum(b["count"] for b in found["bins"]) == 16000
    # Even tasks are measured with the 1 of the odd ones, odd ones with the 2 of the even ones.
    assert found["ece"] > 0.05
    alike = calibration.fitted([task(2.0) for _ in range(4)])
    assert alike["temperature"] == pytest.approx(2.0, rel=0.1)
    assert alike["ece"] < 0.02


def test_a_run_is_calibrated_and_its_file_says_how_sure_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = str(tmp_path / "run"), str(tmp_path / "model.pmeta")
    words = (
        "--tasks 4 --meta-batch 2 --epoch-tasks 4 --val-tasks 4 --n-query 3 --inner-steps 1 "
        "--channels 4 --groups 2 --workers 1 --freeze-at 0.5 --method pmeta --out"
    )
    assert cli.main(["train", "glyphs-4conv-5way-1shot", *words.split(), run]) == 0
    kept = json.loads((tmp_path / "run" / "calibration.json").read_text())
    assert [s["n_shot"] for s in kept["shots"]] == [1, 2, 5]
    assert len(kept["temperatures"]) == 5
    assert cli.main(["export", run, "-o", out]) == 0
    assert "not calibrated" not in capsys.readouterr().out
    data = Path(out).read_bytes()
    np.testing.assert_allclose(flatfile.temperatures(data), kept["temperatures"], rtol=1e-6)
    model = device.DeviceModel(data)
    assert model.facts["n_shot"] == 1
    model.adapt(np.zeros((4, 1, 28, 28), np.uint8), [0, 1, 0, 1])
    assert model.temperature == pytest.approx(kept["temperatures"][1])

    assert cli.main(["calibrate", run, "--tasks", "6", "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "temperature" in shown
    again = json.loads((tmp_path / "run" / "calibration.json").read_text())
    assert again["tasks"] == 6
    assert sum(b["count"] for b in again["shots"][0]["bins"]) == 6 * 5 * 3
    assert cli.main(["report", run, "-o", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "How sure it is, and how often right" in page
    again["best"] = 9999  # of an earlier best model
    (tmp_path / "run" / "calibration.json").write_text(json.dumps(again))
    capsys.readouterr()
    assert cli.main(["export", run, "-o", out]) == 0
    assert f"not calibrated: run pmeta calibrate {run} and export again" in capsys.readouterr().out
    assert flatfile.temperatures(Path(out).read_bytes()) == []


def test_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    name = "miniimagenet-4conv-5way-1shot"
    assert cli.main(["calibrate", name]) == 2
    assert "ships with its temperatures" in capsys.readouterr().err
