"""Features that are kept: the same numbers, one computation, cut where a budget ends."""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pmeta.data.tasks import ImageSet, sample_task
from pmeta.kinds.pictures.features import (
    at_most,
    cache_features,
    cut,
    lowest_stage,
)
from pmeta.network.take_in import take_in


def images() -> ImageSet:
    """Two classes of a split, whose images lie behind those of another."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3), np.uint8)
    return ImageSet(pixels, ["a", "b"], np.array([10, 25]), np.array([15, 12]), "val of test", [])


def chain() -> nn.Sequential:
    torch.manual_seed(0)
    stages = OrderedDict[str, nn.Module](
        stem=nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU()),
        body=nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU()),
        flat=nn.Flatten(),
        fc=nn.Linear(54, 5),
    )
    return nn.Sequential(stages)


def test_a_task_of_features_is_the_task_of_its_pictures(tmp_path: Path) -> None:
    model = chain()
    lower, upper = cut(model, 1)
    kept = cache_features(lower, images(), tmp_path, progress=False)
    assert kept.images.shape == (27, 4, 5, 5)
    assert kept.shape == (4, 5, 5)
    task, own = sample_task(images(), 3, 7, 2, 2, 5), sample_task(kept, 3, 7, 2, 2, 5)
    with torch.no_grad():
        torch.testing.assert_close(upper(own.support_x), model(task.support_x))
        torch.testing.assert_close(upper(own.query_x), model(task.query_x))
    assert torch.equal(own.query_y, task.query_y)


def test_they_are_computed_once_for_the_same_weights_and_pictures(tmp_path: Path) -> None:
    lower, _ = cut(chain(), 1)
    calls = []
    lower.register_forward_hook(lambda *_: calls.append(1))
    cache_features(lower, images(), tmp_path, progress=False)
    first = len(calls)
    cache_features(lower, images(), tmp_path, progress=False)
    assert len(calls) == first > 0
    with torch.no_grad():
        next(iter(lower.parameters())).mul_(2)
    cache_features(lower, images(), tmp_path, progress=False)
    assert len(calls) == 2 * first
    cache_features(lower, images(), tmp_path, progress=False, scale=1 / 128)
    assert len(calls) == 3 * first
    assert not list(tmp_path.glob("*.part"))


def test_the_cut_is_below_the_lowest_stage_that_fits() -> None:
    model = chain()
    net = take_in(model, torch.zeros(1, 3, 12, 12))
    sizes = {"stem.0": 900, "body.0": 500, "fc": 100}

    def arena(mask: Tensor) -> int:
        return max(sizes[layer.name] for layer, up in zip(net.layers, mask[0], strict=True) if up)

    assert [lowest_stage(model, net, arena, b) for b in (100, 600, 1000)] == [3, 1, 0]
    with pytest.raises(ValueError, match="99 bytes is too small to update any layer"):
        lowest_stage(model, net, arena, 99)


def test_only_a_chain_is_cut() -> None:
    with pytest.raises(ValueError, match=r"a chain of stages, an nn\.Sequential, got Linear"):
        cut(nn.Linear(2, 2), 1)


def test_few_images_are_spread_over_each_class() -> None:
    """The first ones of a class are easier: a search engine had found them first."""
    few = at_most(images(), 5)
    assert few.counts.tolist() == [5, 5]
    own = [few.images[start : start + 5] for start in few.starts]
    assert np.array_equal(own[0], images().images[[10, 13, 16, 19, 22]])
    assert np.array_equal(own[1], images().images[[25, 27, 29, 32, 34]])
    assert at_most(images(), 13).counts.tolist() == [13, 12]
    assert at_most(images(), 0).counts.tolist() == [15, 12]


def test_they_lie_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PMETA_CACHE", str(tmp_path / "own"))
    cache_features(cut(chain(), 1)[0], images(), progress=False)
    assert len(list((tmp_path / "own").glob("features-*.npy"))) == 1
