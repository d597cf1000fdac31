"""Training tasks of many sizes: which, how often, and the same again from seed and number."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch

from pmeta.data.tasks import ImageSet, sample_task
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.pictures.mixed_tasks import check_sizes, sizes, training_task

CPU = torch.device("cpu")
MIXED = ImageConfig(
    head="prototype", train_ways="2,4", train_shots="1,3", train_queries=2, image_size=None
)


def images() -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    starts, names = np.arange(0, 60, 10), [f"class {i}" for i in range(6)]
    return ImageSet(pixels, names, starts, np.full(6, 10), "six classes", [])


def test_each_size_comes_and_about_equally_often() -> None:
    tasks = [training_task(MIXED, images(), i, CPU) for i in range(200)]
    found = Counter((int(t.support_y.max()) + 1, int((t.support_y == 0).sum())) for t in tasks)
    assert set(found) == {(2, 1), (2, 3), (4, 1), (4, 3)}
    assert min(found.values()) > 25
    assert all(len(t.query_y) == 2 * (int(t.support_y.max()) + 1) for t in tasks)


def test_a_task_depends_on_seed_and_number_alone_and_pictures_are_varied_when_asked() -> None:
    varied = dataclasses.replace(MIXED, least_area=0.5, jitter=0.3)
    for config in (MIXED, varied):
        first, again = (training_task(config, images(), 3, CPU) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    plain, other = (training_task(config, images(), 3, CPU) for config in (MIXED, varied))
    assert torch.equal(plain.support_y, other.support_y)
    assert plain.support_x.shape == other.support_x.shape
    assert not torch.allclose(plain.support_x, other.support_x, atol=0.5)


def test_as_many_tasks_as_asked_for_are_taken_by_another_camera() -> None:
    config = dataclasses.replace(MIXED, other_camera=0.5)
    changed, seen = [], []
    for i in range(60):
        plain, other = (training_task(c, images(), i, CPU) for c in (MIXED, config))
        again = training_task(config, images(), i, CPU)
        assert all(torch.equal(a, b) for a, b in zip(other, again, strict=True))
        changed.append(not torch.equal(plain.support_x, other.support_x))
        cameras = [camera(*pair) for pair in zip(plain[::2], other[::2], strict=True)]
        torch.testing.assert_close(cameras[0], cameras[1], rtol=0, atol=1e-4)  # the same one
        assert all(x.abs().max() <= 2 for x in other[::2])
        if changed[-1]:
            seen.append(cameras[0])
    assert 18 <= sum(changed) <= 42
    assert len({tuple(order.tolist()) for order, _, _ in seen}) == 6
    factors = torch.stack([factor for _, factor, _ in seen])  # (cameras, channels)
    share = factors.abs()
    torch.testing.assert_close(share.amin(1), share.amax(1), rtol=0, atol=1e-4)
    assert 0.2 <= share.min() < 0.35
    assert 0.85 < share.max() <= 1
    assert 0.3 < (factors < 0).float().mean() < 0.7
    light = torch.stack([light[0] for _, _, light in seen]) / (2 * (1 - share[:, 0]))
    assert light.min() < -0.6
    assert light.max() > 0.6


def camera(plain: torch.Tensor, seen: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of each channel that is seen: which one it was, and its factor and shift. (3,) each"""
    a, b = (x.transpose(0, 1).flatten(1).double() for x in (plain, seen))
    a_0, b_0 = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    products = b_0 @ a_0.T  # (seen, plain)
    alike = products / (b_0.norm(dim=1)[:, None] * a_0.norm(dim=1))
    order = alike.abs().argmax(1)
    torch.testing.assert_close(alike.abs().amax(1), torch.ones(3).double(), rtol=0, atol=1e-5)
    factor = products[torch.arange(3), order] / a_0[order].square().sum(1)
    return order, factor, b.mean(1) - factor * a.mean(1)[order]


def test_one_size_and_no_variation_is_the_task_of_before() -> None:
    config = ImageConfig(n_way=3, n_shot=2, n_query=4, image_size=None, seed=5)
    right = sample_task(images(), 5, 7, 3, 2, 4)
    found = training_task(config, images(), 7, CPU)
    assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="--most-support must leave a task to train on, got 1"):
        sizes(dataclasses.replace(MIXED, most_support=1))
    with pytest.raises(ValueError, match="a 7-way task needs 7 classes"):
        check_sizes(dataclasses.replace(MIXED, train_ways="2,7"), images())
    for wrong, message in (
        ({"train_shots": "1;5"}, "--train-shots is numbers with commas"),
        ({"train_shots": "0"}, "are at least 1 each"),
        ({"head": "learned"}, r"--train-ways needs a head for any number of classes"),
        ({"least_area": 0.0}, "--least-area is a share of the picture"),
        ({"ema": 1.0}, r"--ema must be in \[0, 1\)"),
        ({"most_support": -1}, "--most-support must not be negative"),
        ({"embedding": "norm", "backbone": "resnet12"}, "--embedding norm is for 4Conv"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(MIXED, **wrong)
