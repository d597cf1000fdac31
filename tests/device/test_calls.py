"""Every call of the engine in every order, on a linear classifier written by hand."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pmeta.device import binding
from pmeta.device.calls import CModel
from pmeta.device.format import Constants, Contents, RawProgram, write
from pmeta.device.instructions import RawInstr
from tests.helpers.device_files import IN_FILE, SAMPLE

OK, ALIGNMENT, TOO_SMALL, ORDER, LABEL, ARGUMENT, NOT_FINITE, STOPPED = 0, 7, 8, 9, 10, 11, 12, 13
W = np.array([[0.5, -1.0], [2.0, 0.25]], np.float32)
ALPHA = np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)
"""Of two steps and two layers, of which the second is updated."""
X = np.array([[1.0, 2.0], [-0.5, 0.5], [3.0, -1.0]], np.float32)
Y = [0, 1, 1]
STATE, SAMPLE_AT, OUTPUT, GRADIENT, SUMS, MERGES, ARENA = 20, 20, 28, 36, 44, 60, 64
"""Places in the arena: weights and a word that no weight takes, a sample, scores, their gradient,
the sums of the weight's gradients, how often was merged."""
INFER_BYTES = 36


def linear(temperatures: tuple[float, ...] = (), **header: int) -> bytes:
    """Scores are W x; a step takes the gradient of their cross-entropy."""
    constants = Constants()
    constants.add("w", W)
    one = constants.add("one", np.ones(1, np.float32))
    read = RawInstr("copy", {"y": SAMPLE_AT, "x": SAMPLE}, {}, {"count": 2, "plane": 1})
    sizes = {"outputs": 2, "inputs": 2, "rows": 1}
    score = RawInstr("fc", {"y": OUTPUT, "x": SAMPLE_AT, "w": 0}, {}, sizes)
    back = RawInstr("fc_bw_w", {"acc": SUMS, "gy": GRADIENT, "x": SAMPLE_AT}, {}, sizes)
    shape = {"layer": 1, "groups": 1, "depth": 1, "filters": 4}
    update = RawInstr("update", {"w": 0, "acc": SUMS}, {}, shape)
    merge = RawInstr("add", {"y": MERGES, "x": IN_FILE + one}, {}, {"count": 1})
    infer = RawProgram(0, 2, 0, 0, OUTPUT, 0, 0, 0, INFER_BYTES)
    step = RawProgram(2, 2, 1, 1, OUTPUT, GRADIENT, SUMS, ARENA - SUMS, ARENA, 1)
    fields = {
        **{"arena_bytes": ARENA, "infer_bytes": INFER_BYTES, "state_bytes": STATE},
        **{"input_type": 0, "input_channels": 2, "input_plane": 1, "outputs": 2, "rows": 1},
        **{"steps": 2, "layers": 2, "batch": 2},
    }
    return write(
        Contents(
            header={**fields, **header},
            constants=constants,
            scale=np.ones((2, 2)),
            alpha=ALPHA,
            steps=[1, 1],
            programs=[infer, step],
            instrs=[read, score, read, score, back, update, merge],
            geoms=[],
            copies=[(constants.offsets["w"], 0, 16)],
            facts={},
            temperatures=temperatures,
        )
    )


class Engine:
    """The calls of C, with buffers for their arguments."""

    def __init__(self, data: bytes | None = None, arena: int = ARENA):
        self.m = CModel()
        self.file = np.frombuffer(data or linear(), np.uint8).copy()
        self.arena = np.full(arena, 255, np.uint8)
        self.scores, self.state = np.zeros(2, np.float32), np.zeros(STATE, np.uint8)
        self.loss = ctypes.c_float(-1)

    def __call__(self, name: str, *args: Any) -> int:
        given = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in args]
        return getattr(binding.library(), f"pmeta_{name}")(ctypes.byref(self.m), *given)

    def open(self) -> int:
        return self("open", self.file, len(self.file))

    def start(self) -> int:
        return self("start", self.arena, len(self.arena))

    def feed(self, i: int = 0) -> int:
        return self("feed", X[i], Y[i], ctypes.byref(self.loss))

    def infer(self) -> int:
        return self("infer", X[0], self.scores)

    def floats(self, at: int, n: int) -> np.ndarray:
        return self.arena[at : at + 4 * n].view(np.float32)


def ready(data: bytes | None = None, arena: int = ARENA) -> Engine:
    e = Engine(data, arena)
    assert (e.open(), e.start()) == (OK, OK)
    return e


def trained(steps: int, alpha: np.ndarray = ALPHA) -> np.ndarray:
    """The weights after some steps, in double."""
    w = W.astype(float)
    for k in range(steps):
        sums = np.zeros((2, 2))
        for x, label in zip(X, Y, strict=True):
            p = np.exp(w @ x) / np.exp(w @ x).sum()
            sums += np.outer(p - np.eye(2)[label], x) / len(X)
        w -= alpha[k, 1] * sums
    return w


def test_an_adaptation_is_that_of_the_equations() -> None:
    e = ready()
    assert (e.m.arena_bytes, e.m.infer_bytes, e.m.state_bytes) == (ARENA, INFER_BYTES, STATE)
    assert (e.m.steps, e.m.outputs, e.m.classes, e.m.batch, e.m.input_bytes) == (2, 2, 2, 2, 8)
    assert e("begin", 3) == OK
    for k in range(2):
        for i in range(3):
            assert e.feed(i) == OK
            z = trained(k) @ X[i]
            assert e.loss.value == pytest.approx(np.log(np.exp(z).sum()) - z[Y[i]], rel=1e-5)
            assert e.floats(MERGES, 1) == [0, 1, 2][i]  # two samples share their scores
        assert e("step") == OK
        np.testing.assert_allclose(e.floats(0, 4).reshape(2, 2), trained(k + 1), rtol=1e-5)
    assert e.infer() == OK
    np.testing.assert_allclose(e.scores, trained(2) @ X[0], rtol=1e-5)
    assert e("reset") == OK
    assert e.infer() == OK
    np.testing.assert_allclose(e.scores, W @ X[0], rtol=1e-6)


@pytest.mark.parametrize(("batch", "merges"), [(1, [1, 2, 3]), (2, [0, 1, 2]), (0, [0, 0, 1])])
def test_merging_ends_a_micro_batch_and_a_step(batch: int, merges: list[int]) -> None:
    e = ready(linear(batch=batch))
    e("begin", 3)
    for _ in range(2):
        for i in range(3):
            assert e.feed(i) == OK
            assert e.floats(MERGES, 1) == merges[i]
        assert e("step") == OK


def test_halves_of_a_sample_are_the_whole() -> None:
    e, halves = ready(), ready()
    e("begin", 1), halves("begin", 1)
    assert e.feed() == OK
    assert halves("forward", X[0], halves.scores) == OK
    np.testing.assert_allclose(halves.scores, W @ X[0], rtol=1e-6)
    p = np.exp(halves.scores) / np.exp(halves.scores).sum()
    g = (p - [1, 0]).astype(np.float32)
    assert halves("backward", g) == OK
    assert (e("step"), halves("step")) == (OK, OK)
    np.testing.assert_allclose(halves.floats(0, 4), e.floats(0, 4), rtol=1e-6)
    assert halves("forward", X[0], None) == OK


def test_high_water_is_the_last_byte_that_was_reached() -> None:
    e = Engine()
    high_water = binding.library().pmeta_high_water
    e.open()
    assert high_water(ctypes.byref(e.m)) == 0
    e.start()
    assert high_water(ctypes.byref(e.m)) == STATE
    e.infer()
    assert high_water(ctypes.byref(e.m)) == INFER_BYTES
    e("begin", 1)
    assert high_water(ctypes.byref(e.m)) == INFER_BYTES
    e("forward", X[0], None)
    assert high_water(ctypes.byref(e.m)) == ARENA  # the sums are emptied
    assert high_water(None) == 0


def test_high_water_counts_every_round() -> None:
    """Of three rounds the last one reaches furthest."""
    from tests.helpers.device_files import ADD, INFER, written

    add = RawInstr("add", {"y": 8, "x": 4}, {"y": 12}, {"count": 1})
    loop = RawInstr("loop", parameters={"rounds": 3, "body": 1})
    data = written([INFER._replace(forward=2), INFER._replace(first=2)], [loop, add, ADD])
    model = binding.DeviceModel(data)
    model.scores(np.ones((1, 1, 1), np.float32))
    assert model.high_water_bytes == 8 + 2 * 12 + 4


def unopened(e: Engine) -> None:
    pass


def opened(e: Engine) -> None:
    e.open()


def started(e: Engine) -> None:
    e.open(), e.start()


def begun(e: Engine) -> None:
    started(e), e("begin", 2)


def halfway(e: Engine) -> None:
    begun(e), e("forward", X[0], None)


def one_fed(e: Engine) -> None:
    begun(e), e.feed()


def all_fed(e: Engine) -> None:
    one_fed(e), e.feed(1)


def between_steps(e: Engine) -> None:
    all_fed(e), e("step")


def done(e: Engine) -> None:
    between_steps(e), e.feed(), e.feed(1), e("step")


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


@pytest.mark.parametrize(
    ("classes", "support", "shots"),
    [(2, 0, 3), (2, 1, 1), (2, 2, 1), (2, 3, 2), (2, 4, 2), (2, 5, 3), (2, 6, 3), (2, 9, 3)],
)
def test_the_temperature_of_so_many_samples_of_a_class(
    classes: int, support: int, shots: int
) -> None:
    e = ready(linear(temperatures=(4.0, 2.0, 0.5)))
    if support:
        e("begin", support)
    temperature = binding.library().pmeta_temperature(ctypes.byref(e.m))
    assert temperature == [4.0, 2.0, 0.5][shots - 1]
    z, p = np.array([3.0, 1.0], np.float32), np.zeros(2, np.float32)
    assert e("probabilities", z, p) == OK
    want = np.exp(z / temperature) / np.exp(z / temperature).sum()
    np.testing.assert_allclose(p, want, rtol=1e-5)
    large = np.array([-3e38, 3e38], np.float32)
    assert e("probabilities", large, large) == OK
    assert large.tolist() == [0.0, 1.0]


def test_the_rarest_class_of_three() -> None:
    """Of three classes one sample is a third of one each, which counts as one."""
    e = ready(linear(temperatures=(4.0, 2.0)))
    e("classes", 1)
    for support, right in ((1, 4.0), (2, 2.0), (3, 2.0)):
        e("begin", support)
        assert binding.library().pmeta_temperature(ctypes.byref(e.m)) == right


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


def test_pixels_become_numbers_by_the_factors_of_their_channel() -> None:
    """(3, 2) pixels from the middle of a sample on, in two rounds."""
    from tests.helpers.device_files import ADD, INFER, with_words, written

    copy = RawInstr("copy", {"y": 0, "x": SAMPLE + 1}, {"y": 8, "x": 2}, {"count": 2, "plane": 2})
    loop = RawInstr("loop", parameters={"rounds": 2, "body": 1})
    pixels = {"input_type": 1, "input_channels": 3, "input_plane": 2, "outputs": 4}
    programs = [INFER._replace(forward=2), INFER._replace(first=2)]
    data = written(programs, [loop, copy, ADD], **pixels)
    factors = np.array([1, 10, 100, 0.5, 0.25, 0.125], np.float32)
    at = int(np.frombuffer(data, "<u4")[80 // 4])
    model = binding.DeviceModel(with_words(data, at, *factors.view(np.uint32).tolist()))
    x = np.array([[[1, 2], [3, 4], [5, 6]]], np.uint8)
    assert model.scores(x).tolist() == [[2.5, 30.25, 40.25, 500.125]]


def test_an_update_turns_its_sums() -> None:
    """(groups, depth, filters) become (groups, filters, depth)."""
    constants = Constants()
    w = np.arange(12, dtype=np.float32)
    acc = np.array([7, 1, 8, 3, 9, 5, 2, 6, 4, 11, 10, 12], np.float32)
    constants.add("w", w)
    at = constants.add("acc", acc)
    read = RawInstr("copy", {"y": 0, "x": 0}, {}, {"count": 1, "plane": 1})
    sizes = {"layer": 0, "groups": 2, "depth": 3, "filters": 2}
    update = RawInstr("update", {"w": 0, "acc": IN_FILE + at}, {}, sizes)
    infer = RawProgram(0, 1, 0, 0, 0, 0, 0, 0, 48)
    header = {
        **{"arena_bytes": 48, "infer_bytes": 48, "state_bytes": 48, "input_type": 0},
        **{"input_channels": 1, "input_plane": 1, "outputs": 1, "rows": 1},
        **{"steps": 1, "layers": 1, "batch": 1},
    }
    contents = Contents(
        header=header,
        constants=constants,
        scale=np.ones((2, 1)),
        alpha=np.array([[2.0]]),
        steps=[1],
        programs=[infer, infer._replace(first=1, update=1)],
        instrs=[read, read, update],
        geoms=[],
        copies=[(constants.offsets["w"], 0, 48)],
        facts={},
    )
    e = ready(write(contents), 48)
    assert (e("begin", 1), e("feed", X[0], 0, None), e("step")) == (OK, OK, OK)
    turned = acc.reshape(2, 3, 2).transpose(0, 2, 1).ravel()
    np.testing.assert_array_equal(e.floats(0, 12), w - 2 * turned)
