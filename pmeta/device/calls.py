"""The functions of the engine (pmeta.h), loaded by ctypes."""

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from pmeta.base import native
from pmeta.device.slots import Slots

ENGINE = Path(__file__).parent / "engine"
"""The C files of the engine."""


class CModel(ctypes.Structure):
    """pmeta_model of pmeta.h."""

    _fields_ = tuple(
        (name, kind)
        for kind, names in (
            (c_size_t, ("arena_bytes", "infer_bytes", "state_bytes", "input_bytes")),
            (c_uint32, ("input_type", "outputs", "rows", "steps", "batch", "classes")),
            (c_void_p, ("file", "arena")),
            (c_size_t, ("file_bytes", "arena_given", "high_water")),
            (c_uint32, ("support", "fed", "in_batch", "step", "phase")),
            (c_void_p, ("x", "yield", "context")),
            (c_uint32, ("instruction", "trial", "finite")),
            (c_float, ("work",)),
        )
        for name in names
    )


_CALLS: dict[str, tuple[Any, ...]] = {
    "pmeta_open": (c_void_p, c_size_t),
    "pmeta_start": (c_void_p, c_size_t),
    "pmeta_infer": (c_void_p, c_void_p),
    "pmeta_classes": (c_uint32,),
    "pmeta_begin": (c_uint32,),
    "pmeta_feed": (c_void_p, c_uint32, POINTER(c_float)),
    "pmeta_step": (),
    "pmeta_forward": (c_void_p, c_void_p),
    "pmeta_backward": (c_void_p,),
    "pmeta_on_yield": (c_void_p, c_void_p),
    "pmeta_reset": (),
    "pmeta_read_state": (c_void_p, c_size_t),
    "pmeta_write_state": (c_void_p, c_size_t),
    "pmeta_probabilities": (c_void_p, c_void_p),
    "pmeta_temperature": (),
    "pmeta_save_state": (POINTER(Slots),),
    "pmeta_load_state": (POINTER(Slots),),
    "pmeta_slot_bytes": (),
    "pmeta_high_water": (),
}
"""What each takes behind the model."""


class EngineError(ValueError):
    """A call that the engine refused, with its reason."""


@cache
def library(path: Path | None = None) -> ctypes.CDLL:
    """The engine, loaded once."""
    try:
        path = path or native.find(ENGINE, "_engine")
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise native.CompileError(
            f"cannot load the engine ({error}): set TMPDIR to a folder that may hold programs, or "
            f"install a wheel of p-meta."
        ) from None
    for name, types in _CALLS.items():
        getattr(lib, name).argtypes = (POINTER(CModel), *types)
    lib.pmeta_high_water.restype = lib.pmeta_slot_bytes.restype = c_size_t
    lib.pmeta_temperature.restype = c_float
    lib.pmeta_message.argtypes, lib.pmeta_message.restype = (c_int,), c_char_p
    return lib
