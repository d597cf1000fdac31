"""What firmware needs of a call: to let others run, to be stopped, to refuse what is no number."""

import ctypes
import re
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from pmeta import device
from pmeta.base import native
from pmeta.device.calls import CModel
from tests.helpers.device_models import Case, case

YIELD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def on_yield(model: device.DeviceModel, f: Callable[[], int]) -> object:
    """Have the engine call f; the answer must be kept as long as it may do so."""
    kept = YIELD(lambda _: f())
    model._call("pmeta_on_yield", ctypes.cast(kept, ctypes.c_void_p), None)
    return kept


def adapted(c: Case, model: device.DeviceModel) -> bytes:
    model.adapt(c.raw, c.y.numpy())
    return model.state()


@pytest.mark.parametrize(("kind", "batch"), [("4conv", 1), ("signal", 2)])
def test_others_run_in_between_and_the_result_is_the_same(kind: str, batch: int) -> None:
    c = case(kind, "pmeta", seed=31, batch=batch)
    model = c.device()
    calls: list[int] = []

    def note() -> int:
        calls.append(model._m.instruction)
        return 0

    kept = on_yield(model, note)
    assert adapted(c, model) == adapted(c, c.device())
    samples = len(c.y) * model.steps
    assert len(calls) > 10 * samples
    assert len(set(calls)) > 10
    del kept


@pytest.mark.parametrize("after", [1, 40, 400])
def test_a_stopped_adaptation_has_the_weights_of_its_last_step(after: int) -> None:
    c = case("4conv", "pmeta", seed=32)
    steps, model = [c.device().state()], c.device()
    left = after

    def stop() -> int:
        nonlocal left
        left -= 1
        return left < 0

    kept = on_yield(model, stop)
    model._call("pmeta_begin", len(c.y))

    def go() -> None:
        for _ in range(model.steps):
            for sample, label in zip(c.raw, c.y.tolist(), strict=True):
                model._call("pmeta_feed", sample.ctypes.data, label, None)
            model._call("pmeta_step")
            steps.append(model.state())

    with pytest.raises(device.EngineError, match="stopped by the function that pmeta_on_yield"):
        go()
    assert model.state() == steps[-1]
    with pytest.raises(device.EngineError, match="out of order"):
        model._call("pmeta_step")
    with pytest.raises(device.EngineError, match="stopped by the function"):
        model.scores(c.raw)
    model._call("pmeta_on_yield", None, None)
    assert adapted(c, model) == adapted(c, c.device())
    del kept


def test_a_step_is_never_half_done() -> None:
    c = case("mlp", "maml", seed=33)
    model, other = c.device(), c.device()
    for m in (model, other):
        m._call("pmeta_begin", 1)
        m._call("pmeta_feed", c.raw[:1].ctypes.data, 0, None)
    kept = on_yield(model, lambda: 1)
    for m in (model, other):
        m._call("pmeta_step")
    assert model.state() == other.state()
    del kept


def test_a_sample_that_is_not_finite_changes_nothing() -> None:
    c = case("mlp", "maml", seed=34)
    model = c.device()
    broken = c.raw[:1].copy()
    for value in (np.nan, np.inf, -np.inf):
        broken[0, -1] = value
        model.reset()
        model._call("pmeta_begin", 1)
        for call, rest in (("pmeta_feed", (0, None)), ("pmeta_forward", (None,))):
            with pytest.raises(device.EngineError, match="must be finite, one is not"):
                model._call(call, broken.ctypes.data, *rest)
        with pytest.raises(device.EngineError, match="must be finite, one is not"):
            model._call("pmeta_infer", broken.ctypes.data, np.empty(5, np.float32).ctypes.data)
        other = c.device()
        other._call("pmeta_begin", 1)
        for either in (model, other):
            for _ in range(model.steps):
                either._call("pmeta_feed", c.raw[:1].ctypes.data, 0, None)
                either._call("pmeta_step")
        assert model.state() == other.state() != c.device().state()


def test_a_step_that_would_not_be_finite_is_not_taken() -> None:
    c = case("mlp", "maml", seed=35)
    model = c.device()
    before, large = model.state(), c.raw[:1] * np.float32(1000)
    model._call("pmeta_begin", 1)
    model._call("pmeta_forward", large.ctypes.data, None)
    with pytest.raises(device.EngineError, match="must be finite, one is not"):
        model._call("pmeta_backward", np.full(5, np.nan, np.float32).ctypes.data)
    model._call("pmeta_backward", np.full(5, 3e38, np.float32).ctypes.data)
    with pytest.raises(device.EngineError, match="must be finite, one is not"):
        model._call("pmeta_step")
    assert model.state() == before


def test_weights_that_are_not_finite_are_not_taken_in() -> None:
    model = case("mlp", "maml", seed=36).device()
    before = model.state()
    broken = np.frombuffer(before, np.float32).copy()
    broken[0] = np.inf
    with pytest.raises(device.EngineError, match="must be finite, one is not"):
        model.restore(broken.tobytes())
    assert model.state() == before


def test_the_version_is_the_package_s() -> None:
    text = (device.ENGINE / "pmeta.h").read_text()
    numbers = [
        re.findall(rf"^#define PMETA_VERSION_{part} (\d+)", text, re.M)[0]
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    assert ".".join(numbers) == version("p-meta")
    assert f'#define PMETA_VERSION_STRING "{version("p-meta")}"\n' in text


def test_a_release_build_without_high_water(tmp_path: Path) -> None:
    files, flags = native.sources(device.ENGINE), (*native.FLAGS, "-DPMETA_NO_HIGH_WATER")
    built = native.compile_library(tmp_path / "e.so", files, flags)
    counting = native.compile_library(tmp_path / "counting.so", files)  # with the same options
    c = case("4conv", "pmeta", seed=37)
    model = device.DeviceModel(c.exported.data, lib=device.library(built))
    other = device.DeviceModel(c.exported.data, lib=device.library(counting))
    assert adapted(c, model) == adapted(c, other)
    assert model.high_water_bytes == 0


def test_the_struct_of_python_is_the_one_of_c(tmp_path: Path) -> None:
    names = [field[0] for field in CModel._fields_]
    fields = ", ".join(f"offsetof(pmeta_model, {name})" for name in names)
    (tmp_path / "x.c").write_text(
        '#include "pmeta.h"\n#include <stdio.h>\nint main(void) {\n'
        f"size_t at[] = {{{fields}, sizeof(pmeta_model)}};\n"
        'for (size_t i = 0; i < sizeof at / sizeof *at; i++) printf("%d ", (int)at[i]); }\n'
    )
    program = tmp_path / "x"
    command = [native.compiler(), f"-I{device.ENGINE}", str(tmp_path / "x.c"), "-o", str(program)]
    subprocess.run(command, check=True)
    found = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    wanted = [getattr(CModel, name).offset for name in names]
    assert [int(n) for n in found.split()] == [*wanted, ctypes.sizeof(CModel)]
