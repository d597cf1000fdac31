"""`--init`: a training goes on from what another one learned, with other data and classes."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from pmeta.kinds import train
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.pictures.train import build
from pmeta.training.run_folder import Checkpoint, Run
from pmeta.training.start import initial, start_from
from pmeta.training.workers import Group
from tests.kinds.pictures.test_train import outcome, same, tiny

CPU = torch.device("cpu")
IMAGE = (1, 28, 28)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its best model."""
    out = tmp_path_factory.mktemp("source") / "run"
    train(Group(), tiny(out))
    return out


def started(config: ImageConfig, found: Checkpoint) -> tuple[Checkpoint, Checkpoint]:
    """What `--init` makes of a network, and what it would be without."""
    net, meta = build(config, IMAGE, CPU)
    after = start_from(net, meta, found, "RUN")
    return Checkpoint(after.parameters(), {}), Checkpoint(meta.parameters(), {})


def test_all_that_fits_is_taken(source: Path, tmp_path: Path) -> None:
    found = initial(str(source))
    after, _ = started(tiny(tmp_path), found)
    assert same(after.tensors, {n: t for n, t in found.tensors.items() if n != "mask"})
    net, meta = build(tiny(tmp_path), IMAGE, CPU)
    assert start_from(net, meta, found, "RUN").mask.all(), "every layer may be updated again"


def test_other_classes_steps_and_methods(source: Path, tmp_path: Path) -> None:
    found = initial(str(source))
    after, before = started(tiny(tmp_path, n_way=7, inner_steps=3, method="maml"), found)
    head = found.tensors["w/fc.weight"]
    assert torch.equal(after.tensors["w/fc.weight"], torch.cat([head, head[:2]]))
    assert torch.equal(after.tensors["w/conv3.weight"], found.tensors["w/conv3.weight"])
    assert torch.equal(after.tensors["alpha"], before.tensors["alpha"])
    assert not any(name.startswith("attention/") for name in after.tensors)


def test_after_pre_training_the_head_is_drawn(source: Path, tmp_path: Path) -> None:
    found = initial(str(source))
    body = {n: t for n, t in found.tensors.items() if n.startswith("w/") and "fc" not in n}
    after, before = started(tiny(tmp_path), Checkpoint(body, {}))
    for name, t in before.tensors.items():
        assert torch.equal(after.tensors[name], body.get(name, t))


def test_a_run_starts_there_and_goes_on_without_it(source: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "copy")
    config = tiny(tmp_path / "run", init=str(copy), n_way=4, lr=1e-12, alpha_lr=1e-12)
    train(Group(), config)
    best = initial(str(source)).tensors["w/conv2.weight"]
    assert torch.allclose(outcome(tmp_path / "run")["last"]["w/conv2.weight"], best, atol=1e-9)
    shutil.rmtree(copy)
    train(Group(), config)  # finished: nothing to be read there


def test_stopped_it_ends_with_the_same_bits(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny(tmp_path / "whole", init=str(source))
    train(Group(), whole)
    parts = dataclasses.replace(whole, out=str(tmp_path / "parts"))
    real, seen = Run.log, []

    def interrupted(run: Run, record: dict[str, object]) -> None:
        seen.append(record)
        if len(seen) == 2:
            raise KeyboardInterrupt
        real(run, record)

    monkeypatch.setattr(Run, "log", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(Group(), parts)
    train(Group(), parts)
    assert same(outcome(tmp_path / "whole"), outcome(tmp_path / "parts"))


def test_a_model_of_the_zoo(tmp_path: Path) -> None:
    name = "miniimagenet-4conv-5way-1shot"
    config = ImageConfig(n_way=12, out=str(tmp_path))
    net, meta = build(config, (3, 84, 84), CPU)
    after = start_from(net, meta, initial(name), name)
    assert torch.equal(after.w["fc.weight"][5:10], after.w["fc.weight"][:5])
    assert torch.equal(after.w["fc.weight"][10:], after.w["fc.weight"][:2])


def test_what_does_not_fit_is_told(source: Path, tmp_path: Path) -> None:
    found = initial(str(source))
    message = (
        r"^--init goes on with the same network, where conv1.weight has the shape \(12, 1, 3, 3\), "
        r"and RUN has \(8, 1, 3, 3\): choose the backbone, channels and images of that run, or "
        r"leave --init out\.$"
    )
    with pytest.raises(ValueError, match=message):
        started(tiny(tmp_path, channels=12), found)
    broken = {**found.tensors, "w/conv2.weight": found.tensors["w/conv2.weight"] * torch.nan}
    with pytest.raises(ValueError, match=r"^weights must be finite, conv2.weight of RUN is not"):
        started(tiny(tmp_path), Checkpoint(broken, {}))
    message = r"^--init goes on from the best model of a run, and .*nowhere has none: give a run"
    with pytest.raises(ValueError, match=message):
        initial(str(tmp_path / "nowhere"))
