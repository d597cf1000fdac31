"""Every call of the engine in every order, and with arguments that do not fit."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pmeta.device import binding, slots
from tests.helpers.device_linear import (
    ALIGNMENT,
    ARENA,
    ARGUMENT,
    GRADIENT,
    INFER_BYTES,
    LABEL,
    NOT_FINITE,
    OK,
    ORDER,
    STATE,
    STOPPED,
    TOO_SMALL,
    Engine,
    W,
    X,
    linear,
    ready,
)


def unopened(e: Engine) -> None:
    pass


def opened(e: Engine) -> None:
    e.open()


def started(e: Engine) -> None:
    e.open()
    e.start()


def begun(e: Engine) -> None:
    started(e)
    e("begin", 2)


def halfway(e: Engine) -> None:
    begun(e)
    e("forward", X[0], None)


def one_fed(e: Engine) -> None:
    begun(e)
    e.feed()


def all_fed(e: Engine) -> None:
    one_fed(e)
    e.feed(1)


def between_steps(e: Engine) -> None:
    all_fed(e)
    e("step")


def done(e: Engine) -> None:
    between_steps(e)
    e.feed()
    e.feed(1)
    e("step")


CALLS: dict[str, Callable[[Engine], int]] = {
    "start": Engine.start,
    "infer": Engine.infer,
    "classes": lambda e: e("classes", 2),
    "begin": lambda e: e("begin", 1),
    "forward": lambda e: e("forward", X[0], None),
    "backward": lambda e: e("backward", e.scores),
    "feed": Engine.feed,
    "step": lambda e: e("step"),
    "reset": lambda e: e("reset"),
    "read_state": lambda e: e("read_state", e.state, STATE),
    "write_state": lambda e: e("write_state", e.state, STATE),
    "on_yield": lambda e: e("on_yield", None, None),
    "probabilities": lambda e: e("probabilities", e.scores, e.scores),
}
STATEFUL = {"start", "begin", "reset", "read_state", "write_state", "on_yield", "probabilities"}
IN_ORDER: dict[Callable[[Engine], None], set[str]] = {
    opened: {"start", "classes", "on_yield", "probabilities"},
    started: STATEFUL | {"infer", "classes"},
    begun: STATEFUL | {"infer", "forward", "feed"},
    halfway: STATEFUL | {"backward"},
    one_fed: STATEFUL | {"forward", "feed"},
    all_fed: STATEFUL | {"step"},
    between_steps: STATEFUL | {"infer", "forward", "feed"},
    done: STATEFUL | {"infer", "classes"},
}


@pytest.mark.parametrize("moment", [unopened, *IN_ORDER], ids=lambda f: f.__name__)
def test_calls_out_of_order(moment: Callable[[Engine], None]) -> None:
    for name, call in CALLS.items():
        e = Engine()
        moment(e)
        if moment is unopened:
            want = LABEL if name in ("feed", "probabilities") else ORDER
            want = ARGUMENT if name in ("read_state", "write_state") else want
            want = ORDER if name == "probabilities" else want
        else:
            want = OK if name in IN_ORDER[moment] else ORDER
        if moment is opened and name == "feed":
            want = ORDER
        assert call(e) == want, name


@pytest.mark.parametrize("moment", IN_ORDER, ids=lambda f: f.__name__)
def test_a_state_is_saved_and_loaded_between_adaptations(
    moment: Callable[[Engine], None], tmp_path: Path
) -> None:
    """Where the weights are whole."""
    e = ready()
    room = binding.library().pmeta_slot_bytes(ctypes.byref(e.m))
    with slots.opened(tmp_path / "state", room, create=True) as two:
        assert e("save_state", ctypes.byref(two)) == OK
        for call in ("save_state", "load_state"):
            e = Engine()
            moment(e)
            right = OK if moment in (started, done) else ORDER
            assert e(call, ctypes.byref(two)) == right, call


def test_null_pointers_and_wrong_sizes() -> None:
    x, out = X[0], np.zeros(2, np.float32)
    calls: list[tuple[Any, ...]] = [
        ("open", None, 8),
        ("start", None, ARENA),
        ("infer", None, out),
        ("infer", x, None),
        ("classes", 0),
        ("begin", 0),
        ("forward", None, out),
        ("backward", None),
        ("feed", None, 0, None),
        ("read_state", None, STATE),
        ("read_state", out, STATE - 1),
        ("read_state", out, STATE + 1),
        ("write_state", None, STATE),
        ("write_state", out, STATE - 1),
        ("write_state", out, STATE + 1),
        ("probabilities", None, out),
        ("probabilities", out, None),
    ]
    for name, *args in calls:
        assert ready()(name, *args) == ARGUMENT, (name, args)
    lib = binding.library()
    for name, *args in [*calls, ("step",), ("reset",), ("on_yield", None, None)]:
        given = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in args]
        assert getattr(lib, f"pmeta_{name}")(None, *given) == ARGUMENT, name
    assert lib.pmeta_temperature(None) == 1.0


def test_files_and_arenas_begin_at_words() -> None:
    e = Engine()
    crooked = np.zeros(len(e.file) + 8, np.uint8)
    for shift in (1, 2, 3, 4):
        crooked[shift : shift + len(e.file)] = e.file
        status = e("open", crooked[shift:], len(e.file))
        assert status == (OK if shift == 4 else ALIGNMENT)
    e.open()
    for shift in (1, 2, 3, 4):
        arena = np.zeros(ARENA + 8, np.uint8)[shift:]
        assert e("start", arena, ARENA) == (OK if shift == 4 else ALIGNMENT)


def test_an_arena_to_infer_or_to_adapt() -> None:
    for size, starts, begins in (
        (INFER_BYTES - 1, TOO_SMALL, ORDER),
        (INFER_BYTES, OK, TOO_SMALL),
        (ARENA - 1, OK, TOO_SMALL),
        (ARENA, OK, OK),
    ):
        e = Engine(arena=size)
        e.open()
        assert (e.start(), e("begin", 1)) == (starts, begins)


def test_a_state_has_one_form() -> None:
    """What no weight takes is zero, and is not looked at when a state is taken in."""
    e = ready()
    assert e("read_state", e.state, STATE) == OK
    assert e.state.view(np.float32).tolist() == [*W.ravel().tolist(), 0.0]
    state = np.array([1, 2, 3, 4, np.nan], np.float32)
    assert e("write_state", state, STATE) == OK
    np.testing.assert_array_equal(e.floats(0, 4), [1, 2, 3, 4])
    for i in range(4):
        broken = np.arange(5, dtype=np.float32)
        broken[i] = np.inf
        assert e("write_state", broken, STATE) == NOT_FINITE
        np.testing.assert_array_equal(e.floats(0, 4), [1, 2, 3, 4])
    assert e("reset") == OK
    assert e.floats(16, 1) == 0


def test_a_state_ends_an_adaptation() -> None:
    for call in ("reset", "write_state"):
        e = Engine()
        all_fed(e)
        assert CALLS[call](e) == OK
        assert (e("step"), e.infer()) == (ORDER, OK)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_numbers_that_are_none(value: float, place: int) -> None:
    x = X[0].copy()
    x[place] = value
    e = Engine()
    begun(e)
    assert e("infer", x, e.scores) == NOT_FINITE
    assert e("forward", x, None) == NOT_FINITE
    assert e("feed", x, 0, None) == NOT_FINITE
    assert e("forward", X[0], None) == OK
    assert e("backward", x) == NOT_FINITE
    assert e("backward", X[0]) == OK


def test_scores_that_are_none_end_an_adaptation() -> None:
    """The largest float twice is none. Nothing has been learned then."""
    for row in range(2):
        e = Engine()
        started(e)
        weights = np.zeros(5, np.float32)
        weights[2 * row : 2 * row + 2] = 3e38
        e("write_state", weights, STATE)
        assert e("infer", np.full(2, 3, np.float32), e.scores) == NOT_FINITE
        for call in ("forward", "feed"):
            e("begin", 1)
            args = (None,) if call == "forward" else (0, None)
            assert e(call, np.full(2, 3, np.float32), *args) == NOT_FINITE
            assert e("step") == ORDER
            assert e("forward", X[0], None) == ORDER


def test_a_step_that_would_not_be_finite_is_not_taken() -> None:
    e = ready()
    e("begin", 1)
    e("forward", np.full(2, 10, np.float32), None)
    assert e("backward", np.array([0, 3e38], np.float32)) == OK
    assert e("step") == NOT_FINITE
    np.testing.assert_array_equal(e.floats(0, 4), W.ravel())
    assert (e("step"), e.infer()) == (ORDER, OK)


def test_labels_and_classes() -> None:
    e = ready()
    assert (e("classes", 3), e("classes", 1)) == (LABEL, OK)
    e("begin", 1)
    assert e("feed", X[0], 1, None) == LABEL
    assert e("feed", X[0], 0, ctypes.byref(e.loss)) == OK
    assert e.loss.value == 0.0  # of one class
    assert e.floats(GRADIENT, 2).tolist() == [0.0, 0.0]
    rows = ready(linear(rows=2))
    assert (rows.m.classes, rows("classes", 1)) == (1, LABEL)
    rows("begin", 1)
    assert rows("feed", X[0], 0, None) == LABEL
    assert rows("probabilities", rows.scores, rows.scores) == LABEL
    assert rows("forward", X[0], None) == OK


def test_outputs_that_are_no_classes_have_no_gradient() -> None:
    e = ready()
    e("classes", 1)
    e("begin", 1)
    e("forward", X[0], None)
    e("backward", np.ones(2, np.float32))
    e("begin", 1)
    e("feed", X[0], 0, None)
    assert e.floats(GRADIENT, 2).tolist() == [0.0, 0.0]


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


@pytest.mark.parametrize("stop", range(8))
def test_a_call_can_be_stopped_behind_every_instruction(stop: int) -> None:
    """Copy, fc, backward, merge of one sample and step: behind an update there is no stopping."""
    e, seen = ready(linear(batch=1)), []

    def asked(_: int) -> int:
        seen.append(e.m.instruction)
        return len(seen) == stop + 1

    f = CALLBACK(asked)
    e("on_yield", ctypes.cast(f, ctypes.c_void_p), None)
    e("begin", 1)
    fed = e.feed()
    assert fed == (STOPPED if stop < 4 else OK)
    assert seen == [2, 3, 4, 6][: stop + 1]
    assert e("step") == (ORDER if stop < 4 else OK)
    if stop >= 4:
        assert seen == [2, 3, 4, 6, 5, 5]
        np.testing.assert_allclose(
            e.floats(0, 4).reshape(2, 2),
            W - 0.2 * np.outer(np.exp(W @ X[0]) / np.exp(W @ X[0]).sum() - [1, 0], X[0]),
            rtol=1e-5,
        )
    seen.clear()
    assert e.infer() == (STOPPED if stop < 2 else OK)
    assert seen == [0, 1][: stop + 1]
