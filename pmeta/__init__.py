"""p-Meta: few-shot adaptation on a small device (Qu et al., KDD 2022)."""

from importlib import import_module
from typing import Any

_HOMES = {  # imported on first use, so that what needs no torch starts without it
    "Learner": "pmeta.learner",
    "Method": "pmeta.methods",
    "METHODS": "pmeta.methods",
    "open_split": "pmeta.images",
    "sample_task": "pmeta.images",
    "replace_batch_norm": "pmeta.intake",
    "take_in": "pmeta.intake",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pmeta' has no attribute {name!r}: it has {', '.join(__all__)}.")
