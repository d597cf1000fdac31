"""Settings of a run that an older release began, as this one writes them.

This is the only place that asks which settings a run has."""

from typing import Any

VERSION = 1
"""Of the settings. A release that adds one raises it, and says here what older runs did."""
IMPLICIT: dict[str, dict[str, Any]] = {
    "pictures": {
        "budget_accounting": "arena", "cache_features": False, "cut_at": "", "ema": 0.0,
        "embedding": "plain", "for_device": True, "head": "learned", "head_alpha_0": 0.0,
        "head_scale": 10.0, "init": "", "jitter": 0.0, "least_area": 1.0, "model": "",
        "most_images": 0, "most_support": 0, "other_camera": 0.0,
        "train_from": "", "train_queries": 0, "train_shots": "", "train_ways": "", "val_shots": "",
    },
    "policies": {"budget_accounting": "arena"},
    "pre-training": {"tensorboard": False},
}  # fmt: skip
"""Values that older runs used implicitly."""
REMOVED = {"store": "float32"}
"""Settings that are no more, with the value that is now the only one."""


def upgraded(found: dict[str, Any]) -> dict[str, Any]:
    """The content of a config.json with all that this release writes.

    >>> upgraded({"env": "navigation", "store": "float32"})["kind"]
    'policies'
    """
    version = found.get("settings_version", 0)
    if version == VERSION:
        return found
    if version != 0:
        raise ValueError(f"settings of version {version!r}, this release knows {VERSION}")
    kind = _kind(found)
    settings = {**IMPLICIT.get(kind, {}), **found}
    if found.get("memory_budget") and kind in ("pictures", "policies"):  # the only one there was
        settings["budget_accounting"] = found.get("budget_accounting", "exact")
    if kind == "own" and (found.get("method"), found.get("scores")) == ("pmeta-lr", "attention"):
        settings["method"] = "pmeta"  # of which only the scores differ
    for name, only in REMOVED.items():
        if settings.pop(name, only) != only:
            raise ValueError(f"{name}={found[name]!r}, a setting that this release does not have")
    return {"kind": kind, "settings_version": VERSION, **settings}


def upgraded_progress(info: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint says of its training, as this release writes it: a pre-training had other
    words for its sums, and skipped nothing."""
    return {"since_epoch": info.get("sums", {}), "skipped": 0, **info}


def _kind(found: dict[str, Any]) -> str:
    """What kind of run this was, by the settings that no other kind had."""
    if "env" in found:
        return "policies"
    if "pooled_epochs" in found:
        return "recordings"
    if "crop_size" in found:
        return "pre-training"
    model = found.get("model", "")  # a class for Learner.fit, FILE.py:FUNCTION for pmeta train
    return "own" if model and ":" not in model else "pictures"
