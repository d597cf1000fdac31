"""p-Meta: few-shot adaptation on a small device (Qu et al., KDD 2022)."""

from importlib import import_module
from typing import Any

_HOMES = {  # imported on first use, so that what needs no torch starts without it
    "Learner": "pmeta.learner",
    "Method": "pmeta.method.methods",
    "METHODS": "pmeta.method.methods",
    "prepare": "pmeta.compiler.prepare",
    "open_split": "pmeta.data.tasks",
    "sample_task": "pmeta.data.tasks",
    "replace_batch_norm": "pmeta.network.take_in",
    "take_in": "pmeta.network.take_in",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pmeta' has no attribute {name!r}: it has {', '.join(__all__)}.")
