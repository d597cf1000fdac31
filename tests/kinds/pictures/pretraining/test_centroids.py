"""Nearest centroids: chance, certainty, and by hand in between."""

import re

import pytest
import torch

from pmeta.kinds.pictures.pretraining.centroids import nearest_centroid


def test_what_is_random_is_classified_by_chance() -> None:
    embeddings = torch.randn(8, 40, 16, generator=torch.Generator().manual_seed(0))
    accuracy, ci95 = nearest_centroid(embeddings, 400, 5, 1, seed=1)
    assert abs(accuracy - 20) < 2 * ci95 < 3


def test_more_samples_make_better_centroids() -> None:
    g = torch.Generator().manual_seed(0)
    embeddings = torch.randn(8, 1, 16, generator=g) + 1.5 * torch.randn(8, 40, 16, generator=g)
    one, five = (nearest_centroid(embeddings, 200, 5, n)[0] for n in (1, 5))
    assert 30 < one < five - 5


def test_only_directions_count() -> None:
    g = torch.Generator().manual_seed(0)
    embeddings = torch.randn(6, 1, 8, generator=g) + 0.5 * torch.randn(6, 30, 8, generator=g)
    lengths = torch.rand(6, 30, 1, generator=g) + 0.1
    assert nearest_centroid(embeddings * lengths, 50, 5, 1) == nearest_centroid(
        embeddings, 50, 5, 1
    )


def test_too_few_images_are_told() -> None:
    told = "a task needs 5 classes of 16 images, got 5 classes of 15: validate with more images."
    with pytest.raises(ValueError, match=re.escape(told)):
        nearest_centroid(torch.zeros(5, 15, 2), 1, 5, 1)
