"""Tasks by person: one person with one device, whose labels keep their meaning.

Task i of a run is a pure function of (seed, i)."""

import numpy as np
import torch

from pmeta.data.tasks import Task, random_order
from pmeta.kinds.recordings.sets import WindowSet


def person_task(
    windows: WindowSet, seed: int, i: int, n_shot: int, n_query: int, rotate: float = 0.0
) -> Task:
    """Task `i` of the run `seed`: n_shot support and n_query query windows of each class.

    A class that the person lacks is left out; where there are too few windows, they come again.
    With probability `rotate` all windows are turned by one random rotation, as if the sensor were
    worn another way."""
    random = np.random.Philox(key=np.array([seed, i], dtype=np.uint64))
    group = int(uniform(random) * len(windows.groups))
    support, query = divided(windows, group, random)
    turn = random_rotation(random) if uniform(random) < rotate else None
    parts = []
    for rows, n in ((support, n_shot), (query, n_query)):
        chosen = _balanced(windows.y[rows], n, random)
        x = windows.x[rows[chosen]]
        x = x if turn is None else rotated(x, turn)
        parts += [torch.from_numpy(x), torch.from_numpy(windows.y[rows[chosen]])]
    return Task(*parts)


def personal_task(windows: WindowSet, group: int, seed: int, i: int, n_shot: int | None) -> Task:
    """Draw `i` for one group: up to n_shot support windows of each class, none of them twice, and
    every window of the other recordings as a query."""
    random = np.random.Philox(key=np.array([seed, (group << 32) + i], dtype=np.uint64))
    support, query = divided(windows, group, random)
    own = windows.y[support]
    order = random_order(random, len(own))
    chosen = [order[own[order] == c][:n_shot] for c in np.unique(own)]
    rows = support[np.concatenate(chosen)]
    arrays = windows.x[rows], windows.y[rows], windows.x[query], windows.y[query]
    return Task(*map(torch.from_numpy, arrays))


def divided(
    windows: WindowSet, group: int, random: np.random.Philox
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a group's windows for support and for query, which share no row of a recording.

    The recordings are divided at random; a single one is cut in the middle of each class, and
    windows that overlap the cut are left out."""
    rows = np.flatnonzero(windows.group == group)
    files = np.unique(windows.recording[rows])
    if len(files) > 1:
        order = files[random_order(random, len(files))]
        first = np.isin(windows.recording[rows], order[: len(files) // 2])
        return rows[first], rows[~first]
    start, y = windows.start[rows], windows.y[rows]
    early, late = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    for c in np.unique(y):
        middle = np.median(start[y == c])
        early |= (y == c) & (start + windows.windowing.length <= middle)
        late |= (y == c) & (start >= middle)
    overlap = (np.abs(start[early][:, None] - start[late]) < windows.windowing.length).any(1)
    support, query = rows[early][~overlap], rows[late]
    if not len(support) or not len(query):
        raise ValueError(
            f"{windows.groups[group]} has one recording, too short to be cut into support and "
            "query: record a second one."
        )
    return support, query


def _balanced(y: np.ndarray, n: int, random: np.random.Philox) -> np.ndarray:
    """n places of each class that y has, as different as can be."""
    order = random_order(random, len(y))
    return np.concatenate([np.resize(order[y[order] == c], n) for c in np.unique(y)])


def uniform(random: np.random.Philox) -> float:
    """In [0, 1), from raw bits, whose stream NumPy promises never to change."""
    return float(random.random_raw() >> np.uint64(11)) * 2.0**-53


def random_rotation(random: np.random.Philox) -> np.ndarray:
    """A rotation drawn evenly from all (Shoemake 1992). (3, 3)"""
    u, v, w = (uniform(random) for _ in range(3))
    a, b = np.sqrt(1 - u), np.sqrt(u)
    p, q = 2 * np.pi * v, 2 * np.pi * w
    x, y, z, r = a * np.sin(p), a * np.cos(p), b * np.sin(q), b * np.cos(q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * r), 2 * (x * z + y * r)],
            [2 * (x * y + z * r), 1 - 2 * (x * x + z * z), 2 * (y * z - x * r)],
            [2 * (x * z - y * r), 2 * (y * z + x * r), 1 - 2 * (x * x + y * y)],
        ]
    )


def rotated(x: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Windows of a sensor that is turned: each three channels are a vector. (n, C, length)"""
    n, channels, length = x.shape
    vectors = x.reshape(n, channels // 3, 3, length)
    turned = np.einsum("ij,nsjt->nsit", turn, vectors).reshape(n, channels, length)
    return np.ascontiguousarray(turned, np.float32)
