"""A network of one's own by FILE.py:FUNCTION: made by its function, refused with the reason."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from pmeta.compiler.arena import Arena
from pmeta.compiler.export import export
from pmeta.data.tasks import open_split
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.pictures.features import cache_features
from pmeta.kinds.pictures.train import build
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import init_meta
from pmeta.method.methods import METHODS
from pmeta.network.take_in import take_in
from pmeta.training.own_network import check_device, check_outputs, make_model
from pmeta.training.results import evaluate_task

CODE = """
import torch
from torch import nn

def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))

def asking(image, classes, width=4):
    size = image[0] * image[1] * image[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.ReLU(), nn.Linear(width, classes))

def strange(depth):
    return plain()

def nothing():
    return 3

def elsewhere():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Tanh(), nn.Linear(4, 3))
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(CODE)
    return str(tmp_path / "mine.py")


def test_the_function_gets_what_it_asks_for(file: str) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (make_model(f"{file}:asking", 7, (1, 8, 8), seed) for seed in (0, 0, 1))
    assert first(torch.zeros(1, 1, 8, 8)).shape == (1, 7)
    w = [model.state_dict()["1.weight"] for model in (first, again, other)]
    assert torch.equal(w[0], w[1])
    assert not torch.equal(w[0], w[2])
    assert torch.equal(torch.random.get_rng_state(), before), "the global generator is left alone"
    assert isinstance(make_model(f"{file}:plain", 3, (1, 8, 8), 0), nn.Module)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "has no function missing: the network is FILE.py:FUNCTION or package.module"),
        ("strange", "may ask for classes and image, but it needs depth: give these a default."),
        ("nothing", "must return an nn.Module, got int: return the network."),
    ],
)
def test_what_is_no_network_is_told(file: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make_model(f"{file}:{name}", 3, (1, 8, 8), 0)


def test_where_it_is_not(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^the network is FILE.py:FUNCTION .* there is no file "):
        make_model(f"{tmp_path}/none.py:make", 3, (1, 8, 8), 0)
    with pytest.raises(ValueError, match=r"got 'no_such_package:make' \(No module named"):
        make_model("no_such_package:make", 3, (1, 8, 8), 0)


def test_outputs_and_the_device_are_checked_before_the_training(file: str) -> None:
    net = take_in(make_model(f"{file}:plain", 5, (1, 8, 8), 0), torch.zeros(1, 1, 8, 8))
    message = (
        r"^a network for 5-way tasks gives 5 numbers for a sample, X gives 3: let its function"
    )
    with pytest.raises(ValueError, match=message):
        check_outputs(net, "X", 5)
    config = ImageConfig(model=f"{file}:elsewhere", n_way=3)
    message = r"^the device cannot run this model:\n- it calls tanh \(tanh\); the device runs "
    with pytest.raises(ValueError, match=message):
        build(config, (1, 8, 8), torch.device("cpu"))
    build(
        ImageConfig(model=f"{file}:elsewhere", n_way=3, for_device=False),
        (1, 8, 8),
        torch.device("cpu"),
    )


@pytest.mark.parametrize("training", [True, False])
def test_a_look_at_the_device_leaves_the_mode_of_the_network(training: bool) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3)).train(training)
    check_device(model, torch.zeros(1, 1, 8, 8), "nothing")
    net, method = take_in(model, torch.zeros(1, 1, 8, 8)), METHODS["pmeta-lr"]
    meta = init_meta(net, method, 1, 0.1, torch.Generator().manual_seed(0))
    Arena(net, meta, method, (1, 8, 8))
    export(net, meta, method, (1, 8, 8))
    assert [m.training for m in model.modules()] == [training] * 4


def test_dropout_is_off_in_validation_and_in_kept_features(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 3))
    net, method = take_in(model, torch.zeros(1, 1, 8, 8)), METHODS["maml"]
    meta = init_meta(net, method, 1, 0.1, torch.Generator().manual_seed(0))
    x, y = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
    losses = {evaluate_task(InnerLoop(net, method), meta, (x, y, x, y)).loss for _ in range(3)}
    assert len(losses) == 1
    assert model.training
    images = open_split("glyphs", "val")
    kept = [
        cache_features(model[0], images, tmp_path / name, progress=False).images for name in "ab"
    ]
    assert (kept[0] == kept[1]).all()
