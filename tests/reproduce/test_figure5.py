"""Figure 5: the scores of samples and how alike they are, by hand, and the picture."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pmeta.network.backbones import FourConv
from pmeta.network.take_in import take_in
from pmeta.reproduce import figure5, figure5_picture
from pmeta.reproduce.data import Dataset
from pmeta.reproduce.queue import Options


def test_scores_of_samples_layer_by_layer() -> None:
    net = take_in(FourConv(5, (1, 16, 16), channels=4, groups=2), torch.zeros(1, 1, 16, 16))
    fw, bw = torch.tensor([[1.0], [1.0]]), torch.tensor([[0.0, 4, 0, 0], [1, 1, 1, 1]])
    norm = torch.tensor([[2.0, 2, 0, 0], [0, 1, 1, 2]])
    scores = {layer.name: (None, None) for layer in net.layers} | {
        "conv1": (fw, bw),
        "norm1": (norm, bw),
    }
    conv1, norm1, *_, fc = figure5.sample_scores(net, scores, 2)  # type: ignore[arg-type]
    assert conv1.tolist() == [
        [[1, 0, 0, 0], [0, 4, 0, 0]],
        [[1, 0, 0, 0], [1, 1, 1, 1]],
    ]  # both sides
    assert norm1.tolist() == [[[0, 8, 0, 0]], [[0, 1, 1, 2]]]  # one weight a channel: the product
    assert fc.tolist() == [[[1], [1]]] * 2


def test_likeness_of_conv_scores_is_that_of_the_whole_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    fw, bw = torch.rand(2, 3, generator=generator), torch.rand(2, 5, generator=generator)
    both = figure5._side_by_side(fw, bw)
    a, b = ((bw[i][:, None] * fw[i]).flatten() for i in (0, 1))  # Eq. 12
    expected = a @ b / (a.norm() * b.norm())
    assert figure5.cosine(both[:1], both[1:]).tolist() == pytest.approx([float(expected)])


def test_no_sample_is_in_two_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    net = take_in(FourConv(5, (1, 16, 16), channels=4, groups=2), torch.zeros(1, 1, 16, 16))
    updates, samples = (
        torch.ones(1, len(net.layers), dtype=torch.bool),
        torch.eye(5)[:, None],
    )  # each is unlike all others
    found = [
        (updates.float(), [part] * len(net.layers)) for part in (samples[:2], samples[2:])
    ]  # of two tasks
    real, pairs = figure5.cosine, []

    def cosine(a: Tensor, b: Tensor) -> Tensor:
        pairs.append(torch.cat([a, b]))
        return real(a, b)

    monkeypatch.setattr(figure5, "cosine", cosine)
    summary = figure5._summary(net, updates, found)
    assert (summary["pairs"], summary["cosine"]) == (2, [0.0] * len(net.layers))
    assert len(pairs) == len(net.layers)
    assert all(
        sorted(both.sum((0, 1)).tolist()) == [0, 1, 1, 1, 1] for both in pairs
    )  # one is left over


def measured(tmp_path: Path, name: str, steps: int = 5) -> None:
    run = tmp_path / "runs" / name
    (run / "evaluations").mkdir(parents=True)
    (run / "last.json").write_text(json.dumps({"tasks": 2000}))
    layers = ["conv1", "norm1", "conv2", "norm2", "conv3", "norm3", "conv4", "norm4", "fc"]
    found: dict[str, Any] = {"layers": layers, "pairs": 250, "split": "val", "eval_tasks": 100}
    found |= {
        "updated": [[l > 5 for l in range(9)]] * steps,
        "cosine": [0.9] * 9,
        "cosine_std": [0.2] * 9,
    }
    found |= {
        "ratios": [[0.0] * 6 + [0.4, 0.6, 1.0]] * steps,
        "ratios_std": [[0.0] * 6 + [0.1, 0.5, 0.0]] * steps,
    }
    figure5.path_of(run, "val").write_text(json.dumps(found))


def test_the_first_seed_is_drawn_whichever_it_is(tmp_path: Path) -> None:
    options = Options(
        tmp_path, "short", {"mini": Dataset("/data/mini", "MiniImageNet", "val")}, seeds=(1, 2)
    )
    measured(tmp_path, "4conv-1shot-pmeta-seed1")
    found = figure5_picture.collect(options)["series"][0]
    assert (found["run"], found["missing"]) == ("runs/4conv-1shot-pmeta-seed1", None)


def test_the_picture_is_drawn_when_something_is_new(tmp_path: Path) -> None:
    options = Options(tmp_path, "short", {"mini": Dataset("/data/mini", "MiniImageNet", "val")})
    figure5_picture.write(options)
    assert {p.name for p in tmp_path.iterdir()} == {"figure5.json"}  # nothing to see yet
    measured(tmp_path, "4conv-1shot-pmeta")
    figure5_picture.write(options)
    found = json.loads((tmp_path / "figure5.json").read_text())
    assert [(s["shots"], s["missing"]) for s in found["series"]] == [(1, None), (5, "not run yet")]
    assert (found["data"], found["split"], found["series"][0]["tasks"]) == (
        ["MiniImageNet"],
        "val",
        2000,
    )
    assert (tmp_path / "figure5.png").read_bytes().startswith(b"\x89PNG")
    before = (tmp_path / "figure5.svg").stat().st_mtime_ns
    figure5_picture.write(options)
    assert (tmp_path / "figure5.svg").stat().st_mtime_ns == before


def test_the_picture_has_a_row_for_each_number_of_shots_and_a_panel_for_each_step(
    tmp_path: Path,
) -> None:
    options = Options(tmp_path, "short", {"mini": Dataset("/data/mini", "MiniImageNet", "val")})
    for name in ("4conv-1shot-pmeta", "4conv-5shot-pmeta"):
        measured(tmp_path, name)
    figure = figure5_picture.draw(figure5_picture.collect(options))
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == [*(f"step {k}" for k in range(1, 6)), "similarity of scores, step 1"] * 2
    heights = [patch.get_height() for patch in figure.axes[0].patches]  # type: ignore[attr-defined]
    assert heights == [0, 0, 0, 0, 0, 0, 0.4, 0.6, 1.0]
    assert figure.axes[6].get_ylabel().startswith("5-way 5-shot")
