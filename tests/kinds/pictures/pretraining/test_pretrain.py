"""Pre-training: learns, resumes to the bit, on one process or two; PyTorch's own gradient."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch.func import functional_call

import pmeta.kinds.pictures.pretraining.pretrain
import pmeta.training.trainer
from pmeta.data.tasks import open_split
from pmeta.kinds import train
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.pictures.pretraining.classifier import Classifier
from pmeta.kinds.pictures.pretraining.config import PretrainConfig
from pmeta.kinds.pictures.pretraining.pretrain import drawn
from pmeta.network.backbones import FourConv
from pmeta.training import workers
from pmeta.training.run_folder import Run
from pmeta.training.workers import Group

TINY = PretrainConfig(
    channels=8, image_size=24, crop_size=16, epochs=3, batch=8, val_tasks=20, workers=1
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Classes that differ in colour: 3 of 20 images to train on, 5 of 20 to validate on."""
    root, rng = tmp_path_factory.mktemp("colours"), np.random.default_rng(0)
    for split, classes in (("train", 3), ("val", 5)):
        for c in range(classes):
            folder = root / split / f"class{c}"
            folder.mkdir(parents=True)
            colour = rng.integers(40, 215, 3)
            for i in range(20):
                pixels = (colour + rng.normal(0, 25, (24, 24, 3))).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return root


def tiny(data: Path, out: Path, **changes: Any) -> PretrainConfig:
    return dataclasses.replace(TINY, data=str(data), out=str(out), **changes)


def outcome(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The tensors of both checkpoints, and the metrics but for times."""
    run = Run(path)
    last, best = run.load("last"), run.load("best")
    assert last
    assert best
    metrics = [{k: v for k, v in m.items() if "seconds" not in k} for m in run.metrics()]
    return {**last.tensors, **{f"best/{k}": t for k, t in best.tensors.items()}}, metrics


def test_it_learns_to_tell_the_classes_apart(data: Path, tmp_path: Path) -> None:
    best = train(Group(), tiny(data, tmp_path / "run", epochs=8))
    metrics = Run(tmp_path / "run").metrics()
    assert [m["epoch"] for m in metrics] == list(range(1, 9))
    assert metrics[-1]["loss"] < metrics[0]["loss"] - 0.1
    assert metrics[-1]["train_accuracy"] > 60
    assert best["val_accuracy"] == max(m["val_accuracy"] for m in metrics)


def test_the_best_checkpoint_holds_the_weights_of_the_network_alone(
    data: Path, tmp_path: Path
) -> None:
    train(Group(), tiny(data, tmp_path / "run", epochs=1))
    best = Run(tmp_path / "run").load("best")
    assert best
    body = {f"w/{name}" for name, _ in FourConv(norm="none").named_parameters() if name[:2] != "fc"}
    assert set(best.tensors) == body


def test_stopped_it_goes_on_to_the_same_bits(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(Group(), tiny(data, tmp_path / "whole"))
    update, count = Classifier.update, [0]

    def stopping(self: Classifier, *args: Any) -> None:
        count[0] += 1
        if count[0] == 12:
            raise KeyboardInterrupt
        update(self, *args)

    monkeypatch.setattr(pmeta.training.trainer, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(Classifier, "update", stopping)
    with pytest.raises(KeyboardInterrupt):
        train(Group(), tiny(data, tmp_path / "parts"))
    monkeypatch.setattr(Classifier, "update", update)
    assert int(Run(tmp_path / "parts").load("last").tensors["done"]) == 11  # type: ignore[union-attr]
    train(Group(), tiny(data, tmp_path / "parts"))
    (whole, metrics), (parts, resumed) = outcome(tmp_path / "whole"), outcome(tmp_path / "parts")
    assert metrics == resumed
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_two_processes_do_what_one_does(data: Path, tmp_path: Path) -> None:
    train(Group(), tiny(data, tmp_path / "one", epochs=1, batch=40))
    workers.run(train, (tiny(data, tmp_path / "two", epochs=1, batch=40),), 2)
    (one, metrics), (two, shared) = outcome(tmp_path / "one"), outcome(tmp_path / "two")
    assert all(torch.allclose(one[n], two[n], rtol=1e-3, atol=1e-5) for n in one if n[:2] == "w/")
    assert abs(metrics[0]["loss"] - shared[0]["loss"]) < 1e-4


def test_the_gradient_is_that_of_plain_pytorch(data: Path) -> None:
    images = open_split(data, "train", 24)
    config = tiny(data, Path("unused"), label_smoothing=0.1)
    classifier = Classifier(config, images, torch.device("cpu"))
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(20, 3, 16, 16, generator=g), torch.randint(0, 3, (20,), generator=g)
    found, loss, hits = classifier.gradient([(x, y)], 20)

    model: Any = FourConv(3, (3, 16, 16), 8, norm="batch", embedding="signed")
    model.norm5 = torch.nn.Identity()
    own = {k: t.detach().clone().requires_grad_() for k, t in classifier.body().items()}
    head = {k: t for k, t in classifier.tensors.items() if k.startswith("head/")}
    head = {k: t.detach().clone().requires_grad_() for k, t in head.items()}
    embedding: dict[str, torch.Tensor] = {}
    model.fc.register_forward_pre_hook(lambda _, args: embedding.update(x=args[0]))
    blank = {"fc.weight": torch.zeros(3, 8), "fc.bias": torch.zeros(3)}
    functional_call(model, {**own, **blank}, (x,))
    e, rows = embedding["x"], head["head/weight"]
    cosines = e @ rows.T / e.norm(dim=1, keepdim=True) / rows.norm(dim=1)
    logits = head["head/log_scale"].exp() * cosines
    expected = F.cross_entropy(logits, y, label_smoothing=0.1)
    expected.backward()
    assert abs(float(loss) - float(expected.detach())) < 1e-6
    assert abs(float(hits) - float((logits.argmax(1) == y).double().mean())) < 1e-12
    for name, p in {**own, **head}.items():
        key = name if name.startswith("head/") else f"w/{name}"
        assert torch.allclose(found[key], p.grad, rtol=1e-3, atol=1e-6), name


def test_an_epoch_shows_each_image_at_most_once_with_its_label(data: Path) -> None:
    images, config = open_split(data, "train", 24), tiny(data, Path("unused"))
    batches = [drawn(config, images, 0, b) for b in range(60 // 8)]
    rows = np.concatenate([rows for rows, _ in batches])
    labels = torch.cat([labels for _, labels in batches]).numpy()
    assert len(set(rows.tolist())) == len(rows) == 56
    inside = (images.starts[labels] <= rows) & (rows < (images.starts + images.counts)[labels])
    assert inside.all()
    assert drawn(config, images, 1, 0)[0].tolist() != batches[0][0].tolist()


def test_norms_and_biases_do_not_decay(data: Path) -> None:
    images = open_split(data, "train", 24)
    config = tiny(data, Path("unused"), weight_decay=0.5, lr=0.1)
    classifier = Classifier(config, images, torch.device("cpu"))
    classifier.adam.steps = 3  # past the warm-up, where the rate is not 0
    before = {name: t.clone() for name, t in classifier.tensors.items()}
    classifier.update({name: torch.zeros_like(t) for name, t in before.items()}, 30)
    for name, t in classifier.tensors.items():
        factor = 1 - 0.1 * 0.5 if t.dim() > 1 else 1
        assert torch.allclose(t, factor * before[name]), name


def test_too_few_images_are_told(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape("a batch has --batch 61 images")):
        train(Group(), tiny(data, tmp_path / "a", batch=61))
    with pytest.raises(ValueError, match=re.escape("validation needs 5 classes of 20 images")):
        train(Group(), tiny(data, tmp_path / "b", val_images=19))


def test_the_score_that_chooses_is_the_mean_over_shots(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter(((40.0, 50.0), (44.0, 47.0), (30.0, 59.0)))

    def validated(*args: Any) -> dict[str, float]:
        one, five = next(scores)
        return {"val_1shot": one, "val_1shot_ci95": 1, "val_5shot": five, "val_5shot_ci95": 1}

    monkeypatch.setattr(pmeta.kinds.pictures.pretraining.pretrain, "validate", validated)
    best = train(Group(), tiny(data, tmp_path / "run"))
    assert (best["epoch"], best["val_accuracy"]) == (2, 45.5)


def test_meta_training_goes_on_from_it(data: Path, tmp_path: Path) -> None:
    train(Group(), tiny(data, tmp_path / "run", epochs=1))
    small: dict[str, Any] = {
        "channels": 8,
        "norm": "none",
        "embedding": "signed",
        "image_size": 24,
        "n_way": 3,
        "n_query": 2,
        "tasks": 2,
    }
    still: dict[str, Any] = {
        "lr": 1e-12,
        "val_tasks": 1,
        "freeze_at": 0.0,
        "workers": 1,
        "inner_steps": 1,
    }
    config = ImageConfig(
        data=str(data), out=str(tmp_path / "meta"), init=str(tmp_path / "run"), **small, **still
    )
    train(Group(), config)
    before, after = (Run(tmp_path / name).load("best") for name in ("run", "meta"))
    assert before
    assert after
    for name, w in before.tensors.items():
        assert torch.allclose(after.tensors[name], w, atol=1e-9)
