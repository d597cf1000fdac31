"""The settings of pre-training are checked, with the flag in the message."""

import re
from typing import Any

import pytest

from pmeta.kinds.pictures.pretraining.config import PretrainConfig


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epochs": 0}, "--epochs must be at least 1, got 0."),
        ({"crop_size": 0}, "--crop-size must be at least 1, got 0."),
        ({"backbone": "resnet12"}, "--embedding signed is for 4Conv"),
        ({"lr": 0.0}, "--lr must be positive, got 0.0."),
        ({"least_area": 0.0}, "--least-area is a share of the image in (0, 1], got 0.0"),
        ({"jitter": 1.0}, "--jitter must be in [0, 1), got 1.0: 0 turns it off."),
        ({"label_smoothing": -0.1}, "--label-smoothing must be in [0, 1), got -0.1"),
        ({"weight_decay": -1.0}, "--weight-decay must not be negative, got -1.0"),
        ({"seed": -1}, "--seed and --workers must not be negative, got -1 and 0."),
    ],
)
def test_what_cannot_be_is_told(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        PretrainConfig(**change)


def test_no_more_workers_than_a_batch_has_parts() -> None:
    assert PretrainConfig(batch=65).most_workers(16) == 3
