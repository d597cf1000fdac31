"""What was found, as plain values."""

from typing import Any

import numpy as np

from pmeta.cli.device.learn import Learned
from pmeta.device.predictions import Predictions
from pmeta.device.samples import Samples
from pmeta.device.support import counted


def of_predictions(predicted: Predictions, query: Samples, below: float) -> dict[str, Any]:
    """The class of each query, and for those in folders of known classes how many were right."""
    predictions = {
        name: {
            "class": p.name,
            "probability": round(p.probability, 4),
            "runner_up": p.runner_up,
            "runner_up_probability": round(p.runner_up_probability, 4),
            "unsure": p.unsure(below),
        }
        for name, p in zip(query.names, predicted, strict=True)
    }
    for name, label in zip(query.names, query.labels, strict=True):
        if label >= 0:
            predictions[name]["true"] = query.classes[label]
    found: dict[str, Any] = {"predictions": predictions}
    if (query.labels >= 0).any():
        found |= _judged(predicted, query)
    return found


def _judged(predicted: Predictions, query: Samples) -> dict[str, Any]:
    """Accuracy, the confusion matrix (rows: the true classes) and what was missed."""
    n, judged = len(query.classes), np.flatnonzero(query.labels >= 0)
    labels, seen = query.labels[judged], predicted.labels[judged]
    matrix = np.zeros((n, n), int)
    np.add.at(matrix, (labels, seen), 1)
    return {
        "judged": len(judged),
        "accuracy": float((labels == seen).mean()),
        "confusion": matrix.tolist(),
        "missed": [query.names[i] for i in judged[labels != seen]],
    }


def of_adaptation(learned: Learned) -> dict[str, Any]:
    """Steps, losses, times, channels and bytes."""
    model, done = learned.model, learned.adaptation
    sizes = ("arena_bytes", "high_water_bytes", "infer_bytes", "state_bytes")
    return {
        "classes": learned.support.classes,
        "support": len(learned.support.x),
        "support_of_class": dict(counted(learned.support.labels, learned.support.classes)),
        "mirrored": learned.mirrored,
        "steps": model.steps,
        "losses": [float(loss) for loss in done.losses],
        "milliseconds_per_step": [float(ms) for ms in done.milliseconds],
        "updated_channels": updated_channels(learned.before, model.weights()),
        **{name: getattr(model, name) for name in sizes},
        "sample_bytes": learned.support.x[0].nbytes,
        "temperature": model.temperature,
    }


def updated_channels(
    before: dict[str, np.ndarray], after: dict[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
    """For each weight: which input channels changed (those with gamma_fw > 0 in some step), and of
    how many."""
    found = {}
    for name, old in before.items():
        changed = old != after[name]
        by_input = changed.any(axis=(0, *range(2, old.ndim))) if old.ndim > 1 else changed
        found[name] = {"of": len(by_input), "updated": np.flatnonzero(by_input).tolist()}
    return found
