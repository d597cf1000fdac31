"""Tasks from folders of classes: a pure function of (seed, i), and errors that give the numbers."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pmeta.data.tasks import (
    SCALE,
    SHIFT,
    ImageSet,
    check_enough,
    normalise,
    open_split,
    sample_task,
)


def make_folder(root: Path, splits: dict[str, int], images: int = 8, size: int = 6) -> Path:
    """root/<split>/c<j>/<k>.png, each image of one grey that is its own: the pixel says which image
    it is."""
    shade = 0
    for split, classes in splits.items():
        for j in range(classes):
            folder = root / split / f"c{j}"
            folder.mkdir(parents=True)
            for k in range(images):
                Image.new("L", (size, size), shade % 256).save(folder / f"{k}.png")
                shade += 1
    return root


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    root = make_folder(tmp_path_factory.mktemp("birds"), {"train": 6, "val": 4})
    return open_split(root, "train", size=6)


def test_a_split_holds_its_classes_and_images(birds):
    assert birds.classes == [f"c{j}" for j in range(6)]
    assert birds.counts.tolist() == [8] * 6
    assert birds.shape == (1, 6, 6)
    first_pixel = [birds.images[start, 0, 0, 0] for start in birds.starts]
    assert first_pixel == [0, 8, 16, 24, 32, 40]


def test_a_task_is_grouped_by_label_and_no_image_is_drawn_twice(birds):
    task = sample_task(birds, seed=1, i=5, n_way=4, n_shot=2, n_query=3)
    assert task.support_x.shape == (8, 1, 6, 6)
    assert task.support_x.dtype == torch.float32
    assert task.query_x.shape == (12, 1, 6, 6)
    assert task.support_y.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert task.query_y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    shades = ((torch.cat([task.support_x, task.query_x])[:, 0, 0, 0] - SHIFT) / SCALE).round().int()
    assert len(set(shades.tolist())) == 20
    labels = torch.cat([task.support_y, task.query_y])
    classes = shades // 8
    assert len(set(zip(classes.tolist(), labels.tolist(), strict=True))) == 4  # one label a class


def test_labels_are_dealt_out_at_random(birds):
    first = [sample_task(birds, 0, i, 2, 1, 1).support_x[0, 0, 0, 0].item() for i in range(40)]
    classes = {round((x - SHIFT) / SCALE) // 8 for x in first}
    assert classes == set(range(6))


def test_every_image_and_order_can_come(birds):
    seen = set()
    for i in range(120):
        x = sample_task(birds, 3, i, 5, 1, 1)
        seen |= {
            round((v - SHIFT) / SCALE)
            for v in torch.cat([x.support_x, x.query_x])[:, 0, 0, 0].tolist()
        }
    assert seen == set(range(48))


def test_task_i_is_a_pure_function_of_seed_and_i(birds):
    forwards = [sample_task(birds, 7, i, 5, 1, 3) for i in range(10)]
    backwards = [sample_task(birds, 7, i, 5, 1, 3) for i in reversed(range(10))][::-1]
    for a, b in zip(forwards, backwards, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    others = [sample_task(birds, seed, i, 5, 1, 3) for seed, i in ((8, 0), (7, 1), (0, 7))]
    assert not any(torch.equal(forwards[0].query_x, other.query_x) for other in others)


def test_another_process_draws_the_same_task(birds):
    root = birds.name.removeprefix("train of ")
    code = (
        "from pmeta.data.tasks import open_split, sample_task\n"
        f"t = sample_task(open_split({root!r}, 'train', 6), 7, 3, 5, 1, 3)\n"
        "print(t.query_x.double().mul(100).sum().item(), t.support_x.flatten().tolist()[::36])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    t = sample_task(birds, 7, 3, 5, 1, 3)
    assert (
        out.strip()
        == f"{t.query_x.double().mul(100).sum().item()} {t.support_x.flatten().tolist()[::36]}"
    )


def test_tasks_never_change_between_versions():
    """The stream is NumPy's Philox, the same for ever: these numbers were drawn once and must
    stay."""
    pixels = np.arange(200, dtype=np.uint8).reshape(200, 1, 1, 1)
    images = ImageSet(pixels, list("abcdefghij"), np.arange(0, 200, 20), np.full(10, 20), "ten", [])
    task = sample_task(images, seed=2022, i=8, n_way=5, n_shot=1, n_query=2)
    shades = [
        ((x.flatten() - SHIFT) / SCALE).round().int().tolist()
        for x in (task.support_x, task.query_x)
    ]
    assert shades == [[111, 193, 136, 82, 151], [107, 102, 192, 197, 131, 123, 81, 86, 141, 143]]


def test_normalise_is_one_affine_map_for_all_channels():
    pixels = np.array([[[[0, 255, 51]]]], dtype=np.uint8)  # (1, H=1, W=1, C=3)
    assert normalise(pixels).flatten().tolist() == pytest.approx([-2, 2, -1.2], abs=1e-6)
    assert normalise(pixels).shape == (1, 3, 1, 1)
    every = np.arange(256, dtype=np.uint8)
    by_hand = every.astype(np.float32) * np.float32(SCALE) + np.float32(
        SHIFT
    )  # two roundings, as the device does
    assert np.array_equal(normalise(every.reshape(1, 16, 16, 1)).numpy().ravel(), by_hand)


def test_too_few_classes_gives_the_numbers(birds):
    with pytest.raises(
        ValueError, match=r"^a 7-way task needs 7 classes and train of .* has 6: lower n_way\.$"
    ):
        sample_task(birds, 0, 0, 7, 1, 1)


def test_too_few_images_gives_the_numbers(tmp_path):
    make_folder(tmp_path, {"train": 3})
    for k in (5, 6, 7):
        (tmp_path / "train" / "c1" / f"{k}.png").unlink()
    images = open_split(tmp_path, "train", 6)
    check_enough(images, 3, 1, 4)
    message = (
        "a task needs n_shot + n_query = 1 + 5 = 6 images of each class, and 1 of the 3 classes in "
        f"train of {tmp_path} have fewer (the least: 5 in c1): lower n_query or remove these "
        "classes."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_enough(images, 3, 1, 5)


@pytest.mark.parametrize("sizes", [(0, 1, 1), (2, 0, 1), (2, 1, 0)])
def test_empty_tasks_are_refused(birds, sizes):
    with pytest.raises(ValueError, match="n_way, n_shot and n_query must be at least 1, got "):
        sample_task(birds, 0, 0, *sizes)


@pytest.mark.parametrize(("seed", "i"), [(-1, 0), (0, -1)])
def test_negative_seeds_are_refused(birds, seed, i):
    with pytest.raises(ValueError, match=f"must not be negative, got seed {seed} and i {i}"):
        sample_task(birds, seed, i, 2, 1, 1)


def test_a_split_that_is_not_there_names_those_that_are(birds):
    root = birds.name.removeprefix("train of ")
    with pytest.raises(
        ValueError,
        match=r"has no classes in test, only 6 in train, 4 in val: choose one of these or add",
    ):
        open_split(root, "test", 6)
    with pytest.raises(ValueError, match="split must be train, val or test, got 'dev'"):
        open_split(root, "dev", 6)


def test_a_root_without_splits_is_shared_out_by_class(tmp_path):
    make_folder(tmp_path, {"": 25}, images=2)
    splits = {split: open_split(tmp_path, split, 6).classes for split in ("train", "val", "test")}
    assert {split: len(classes) for split, classes in splits.items()} == {
        "train": 16,
        "val": 4,
        "test": 5,
    }
    assert sorted(name for classes in splits.values() for name in classes) == sorted(
        f"c{j}" for j in range(25)
    )
    again = open_split(tmp_path, "val", 6).classes
    other = open_split(tmp_path, "val", 6, split_seed=1).classes
    assert again == splits["val"]
    assert other != splits["val"]


def test_a_root_with_too_few_classes_to_split_says_so(tmp_path):
    make_folder(tmp_path, {"": 2}, images=2)
    with pytest.raises(
        ValueError, match="has only 2 classes, too few to set some aside for val: add classes"
    ):
        open_split(tmp_path, "val", 6)


def test_channels_can_be_asked_for(birds):
    root = birds.name.removeprefix("train of ")
    assert open_split(root, "train", 6, channels=3).shape == (3, 6, 6)
    with pytest.raises(ValueError, match=r"images have 1 channel \(grey\) or 3 \(colour\), got 2"):
        open_split(root, "train", 6, channels=2)
    with pytest.raises(ValueError, match="the size of images must be at least 1, got 0"):
        open_split(root, "train", 0)
