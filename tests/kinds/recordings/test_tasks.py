"""Tasks by person: reproducible, support and query apart, labels that keep their meaning."""

import numpy as np
import pytest
import torch

from pmeta.data.recordings.windows import Windowing
from pmeta.kinds.recordings.sets import WindowSet
from pmeta.kinds.recordings.tasks import (
    divided,
    person_task,
    personal_task,
    random_rotation,
    rotated,
)

WINDOWING = Windowing(tuple("abcdef"), ("sit", "walk", "run"), length=4, stride=2)


def windows(files: int = 4, per_file: int = 12) -> WindowSet:
    """Two people; window n has the value n everywhere, file n // per_file; b never runs."""
    n = 2 * files * per_file
    number = np.arange(n)
    y = number % 3
    group = number // (files * per_file)
    y = np.where((group == 1) & (y == 2), 0, y)
    x = np.broadcast_to(number[:, None, None], (n, 6, 4)).astype(np.float32).copy()
    file, start = number // per_file, 2 * (number % per_file)
    return WindowSet(x, y, group, file, start, ["a", "b"], WINDOWING, "two people")


def numbers(x: torch.Tensor) -> set[int]:
    return set(x[:, 0, 0].long().tolist())


def test_a_task_depends_on_seed_and_number_alone() -> None:
    first, again = (person_task(windows(), 3, 7, 2, 3, rotate=1.0) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    other = person_task(windows(), 3, 8, 2, 3, rotate=1.0)
    assert not torch.equal(first.support_x[:4], other.support_x[:4])


def test_support_and_query_are_of_one_person_and_of_different_recordings() -> None:
    people = set()
    for i in range(20):
        task = person_task(windows(), 0, i, n_shot=2, n_query=3)
        files = [{n // 12 for n in numbers(x)} for x in (task.support_x, task.query_x)]
        assert not files[0] & files[1]
        who = {n // 48 for n in numbers(task.support_x) | numbers(task.query_x)}
        assert len(who) == 1
        people |= who
        labels = [
            n % 3 if n < 48 or n % 3 < 2 else 0 for n in task.support_x[:, 0, 0].long().tolist()
        ]
        assert task.support_y.tolist() == labels
    assert people == {0, 1}


def test_a_class_that_a_person_lacks_is_left_out() -> None:
    sizes = {len(person_task(windows(), 0, i, 2, 3).support_y) for i in range(20)}
    assert sizes == {2 * 3, 2 * 2}


def test_windows_come_again_where_there_are_too_few() -> None:
    task = person_task(windows(files=2, per_file=3), 0, 0, n_shot=5, n_query=2)
    assert len(task.support_y) % 5 == 0
    assert len(numbers(task.support_x)) <= 3


def test_a_single_recording_is_cut_without_overlap() -> None:
    own = windows(files=1, per_file=24)
    support, query = divided(own, 0, np.random.Philox(key=0))
    apart = own.start[query][:, None] - own.start[support]
    assert len(support)
    assert len(query)
    assert np.abs(apart).min() >= WINDOWING.length
    assert set(own.y[support]) == set(own.y[query]) == {0, 1, 2}


def test_one_recording_that_is_too_short() -> None:
    with pytest.raises(ValueError, match="a has one recording, too short"):
        divided(windows(files=1, per_file=3), 0, np.random.Philox(key=0))


def test_a_personal_task_has_every_other_window_as_a_query() -> None:
    task = personal_task(windows(), group=0, seed=0, i=1, n_shot=2)
    assert (len(task.support_y), len(task.query_y)) == (6, 24)
    assert len(numbers(task.support_x)) == 6
    every = personal_task(windows(), group=0, seed=0, i=1, n_shot=None)
    assert len(every.support_y) == 24


def test_rotations_are_rotations_drawn_evenly() -> None:
    random = np.random.Philox(key=1)
    turns = np.stack([random_rotation(random) for _ in range(4000)])
    np.testing.assert_allclose(
        turns @ turns.transpose(0, 2, 1), np.eye(3)[None].repeat(4000, 0), atol=1e-12
    )
    np.testing.assert_allclose(np.linalg.det(turns), 1, atol=1e-12)
    np.testing.assert_allclose(turns.mean(0), 0, atol=0.05)  # sd of a mean: 0.58 / 63


def test_both_sensors_are_turned_alike() -> None:
    turn = random_rotation(np.random.Philox(key=2))
    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
    got = rotated(x, turn)
    for sensor in (slice(0, 3), slice(3, 6)):
        np.testing.assert_allclose(got[1, sensor, 2], turn @ x[1, sensor, 2], atol=1e-6)


def test_rotate_is_the_share_of_the_tasks() -> None:
    plain, turned = (
        [person_task(windows(), 0, i, 1, 1, rotate).support_x for i in range(100)]
        for rotate in (0.0, 0.3)
    )
    differ = sum(not torch.equal(a, b) for a, b in zip(plain, turned, strict=True))
    assert 15 <= differ <= 45
