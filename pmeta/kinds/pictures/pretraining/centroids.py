"""Few-shot accuracy of an embedding by nearest centroids, without any inner step."""

import numpy as np
import torch
from torch import Tensor

from pmeta.training.results import ci95


def nearest_centroid(
    embeddings: Tensor, tasks: int, n_way: int, n_shot: int, n_query: int = 15, seed: int = 0
) -> tuple[float, float]:
    """Accuracy and CI95, in percent, over tasks drawn from the embeddings of classes (classes,
    images, D).

    Embeddings are scaled to length 1; a centroid is the mean of n_shot of them.

    >>> two_classes = torch.eye(2)[:, None].repeat(1, 4, 1)
    >>> nearest_centroid(two_classes, tasks=3, n_way=2, n_shot=1, n_query=3)
    (100.0, 0.0)
    """
    classes, images, _ = embeddings.shape
    if n_way > classes or n_shot + n_query > images:
        raise ValueError(
            f"a task needs {n_way} classes of {n_shot + n_query} images, got {classes} classes of "
            f"{images}: validate with more images."
        )
    unit = torch.nn.functional.normalize(embeddings, dim=2)
    random = np.random.Philox(key=np.array([seed, 0], dtype=np.uint64))
    y = torch.arange(n_way).repeat_interleave(n_query)
    accuracy = []
    for _ in range(tasks):
        chosen = np.argsort(random.random_raw(classes))[:n_way]
        rows = np.argsort(random.random_raw(n_way * images).reshape(n_way, images))
        drawn = unit[chosen[:, None], rows[:, : n_shot + n_query]]  # (n_way, n_shot + n_query, D)
        c = drawn[:, :n_shot].mean(1)
        query = drawn[:, n_shot:].flatten(0, 1)
        logits = 2 * query @ c.T - c.square().sum(1)  # -|x - c|^2 + |x|^2
        accuracy.append(float((logits.argmax(1) == y).double().mean()))
    return 100 * float(np.mean(accuracy)), ci95(torch.tensor(accuracy, dtype=torch.float64), 100)
