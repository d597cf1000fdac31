"""The bytes of int8 storage: what the engine wrote, and PyTorch with these in place of its own."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pmeta.device import model_file as flatfile
from pmeta.device.binding import DeviceModel
from pmeta.device.instructions import FLAGS, LAYOUTS, PARAMETERS, SLOTS
from pmeta.method.inner import InnerLoop
from pmeta.network import storage
from tests.helpers.device_models import Case

Stored = dict[tuple[int, int, int], np.ndarray]
"""By step, sample and numbers of a record: the bytes of each record, -1 where a row leaves a number
out. (records, numbers)"""
YIELD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
HEAD = 8
"""Bytes of scale and shift, before those of the numbers."""


def stored_bytes(model: DeviceModel, c: Case) -> Stored:
    """Adapt the model, and note all that it packs."""
    h, words = flatfile.header(c.exported.data), 2 + 2 * SLOTS + PARAMETERS
    all_words = np.frombuffer(c.exported.data, "<u4", h["instrs"] * words, h["at_instrs"])
    instrs = all_words.reshape(-1, words).tolist()
    found: dict[tuple[int, int, int], list[np.ndarray]] = {}
    rounds: dict[tuple[int, int, int], int] = {}

    def note(_: Any) -> int:
        number, at = model._m.instruction, (model._m.step, model._m.fed)
        if instrs[number][0] == LAYOUTS["pack"].number:
            done = rounds.get((*at, number), 0)
            rounds[*at, number] = done + 1
            records = _records(model._arena, instrs[number], done)
            found.setdefault((*at, records.shape[1]), []).append(records)
        return 0

    kept = YIELD(note)
    model._call("pmeta_on_yield", ctypes.cast(kept, ctypes.c_void_p), None)
    model.adapt(c.raw, c.y.numpy())
    model._call("pmeta_on_yield", None, None)
    return {key: np.concatenate(parts) for key, parts in found.items()}


def _records(arena: np.ndarray, instr: list[int], done: int) -> np.ndarray:
    """What a pack instruction has written in its round number `done`."""
    flags, (y, _, gamma), step = instr[1], instr[2:5], instr[2 + SLOTS]
    channels, plane, stored = instr[2 + 2 * SLOTS :][:3]
    rows, kept = bool(flags & FLAGS["rows_first"]), stored or channels
    records, numbers = (plane, kept) if rows else (kept, plane)
    size = HEAD + -(-numbers // 4) * 4
    at = y + step * done
    data = arena[at : at + records * size].reshape(records, size)[:, HEAD : HEAD + numbers]
    if not stored:
        return data.astype(np.int16)
    there = np.flatnonzero(arena[gamma : gamma + 4 * channels].view(np.float32))[:stored]
    if not rows:
        return data[: len(there)].astype(np.int16)
    whole = np.full((records, channels), -1, np.int16)
    whole[:, there] = data[:, : len(there)]
    return whole


class Taken:
    """PyTorch's rounding, with the engine's byte wherever that is one off its own."""

    def __init__(self, stored: Stored, own: Callable[..., Tensor]):
        self.stored, self.own, self.step = stored, own, 0
        self.met = {key: np.zeros(len(records), bool) for key, records in stored.items()}
        """The engine's records that PyTorch has too, no number more than one byte off."""
        self.bytes = self.differ = 0

    def __call__(self, ctx: Any, x: Tensor, store: str) -> Tensor:
        y, low = self.own(ctx, x, store), x.amin(-1, keepdim=True)
        step = (x.amax(-1, keepdim=True) - low) / storage.LEVELS
        codes = ((y - low) / step.clamp(min=storage.TINY)).round().to(torch.int16)
        off = torch.from_numpy(self._off(codes.reshape(len(x), -1, x.shape[-1]).numpy()))
        return y + off.reshape(y.shape) * step

    def _off(self, codes: np.ndarray) -> np.ndarray:
        """What is to be added to PyTorch's bytes (B, records, numbers)."""
        off = np.zeros_like(codes)
        for b, rows in enumerate(codes):
            key = (self.step, b, codes.shape[2])
            for i, row in enumerate(rows if key in self.stored else ()):
                apart = np.where(self.stored[key] < 0, 0, self.stored[key] - row)
                sizes = np.abs(apart)
                near = sizes.max(1) <= 1
                self.met[key] |= near
                if near.any():
                    off[b, i] = apart[np.where(near, sizes.sum(1), sizes.size).argmin()]
        self.bytes += codes.size
        self.differ += int(np.abs(off).sum())
        return off


def take(monkeypatch: pytest.MonkeyPatch, stored: Stored) -> Taken:
    """Have PyTorch's inner steps take the bytes of the engine."""
    taken, step = Taken(stored, storage._StraightThrough.forward), InnerLoop.step

    def numbered(loop: InnerLoop, meta: Any, w: Any, k: int, *rest: Any) -> Any:
        taken.step = k
        return step(loop, meta, w, k, *rest)

    monkeypatch.setattr(InnerLoop, "step", numbered)
    monkeypatch.setattr(storage._StraightThrough, "forward", taken)
    return taken
