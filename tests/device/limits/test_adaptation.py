"""What the engine computes around its kernels, on models that are written by hand."""

import ctypes

import numpy as np
import pytest

from pmeta.device import binding
from pmeta.device import model_file as flatfile
from pmeta.device.instructions import RawInstr
from pmeta.device.model_file import Constants, Contents, RawProgram, write
from tests.helpers.device_files import ADD, IN_FILE, INFER, SAMPLE, with_words, written
from tests.helpers.device_linear import (
    ALPHA,
    ARENA,
    INFER_BYTES,
    MERGES,
    OK,
    STATE,
    Engine,
    W,
    X,
    Y,
    linear,
    ready,
)


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
    add = RawInstr("add", {"y": 8, "x": 4}, {"y": 12}, {"count": 1})
    loop = RawInstr("loop", parameters={"rounds": 3, "body": 1})
    data = written([INFER._replace(forward=2), INFER._replace(first=2)], [loop, add, ADD])
    model = binding.DeviceModel(data)
    model.scores(np.ones((1, 1, 1), np.float32))
    assert model.high_water_bytes == 8 + 2 * 12 + 4


@pytest.mark.parametrize(
    ("support", "shots"), [(0, 3), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (9, 3)]
)
def test_the_temperature_of_so_many_samples_of_each_of_two_classes(
    support: int, shots: int
) -> None:
    e = ready(linear(temperatures=(4.0, 2.0, 0.5)))
    if support:
        e("begin", support)
    temperature = binding.library().pmeta_temperature(ctypes.byref(e.m))
    assert temperature == [4.0, 2.0, 0.5][shots - 1]
    z, p = np.array([3.0, 1.0], np.float32), np.full(3, 7.0, np.float32)
    assert e("probabilities", z, p) == OK
    want = np.exp(z / temperature) / np.exp(z / temperature).sum()
    np.testing.assert_allclose(p, [*want, 7.0], rtol=1e-5)  # nothing behind them is written
    large = np.array([-3e38, 3e38], np.float32)
    assert e("probabilities", large, large) == OK
    assert large.tolist() == [0.0, 1.0]


def test_the_temperature_of_one_class() -> None:
    e = ready(linear(temperatures=(4.0, 2.0)))
    e("classes", 1)
    for support, right in ((1, 4.0), (2, 2.0), (3, 2.0)):
        e("begin", support)
        assert binding.library().pmeta_temperature(ctypes.byref(e.m)) == right


def test_pixels_become_numbers_by_the_factors_of_their_channel() -> None:
    """(3, 2) pixels from the middle of a sample on, in two rounds."""
    copy = RawInstr("copy", {"y": 0, "x": SAMPLE + 1}, {"y": 8, "x": 2}, {"count": 2, "plane": 2})
    loop = RawInstr("loop", parameters={"rounds": 2, "body": 1})
    pixels = {"input_type": 1, "input_channels": 3, "input_plane": 2, "outputs": 4}
    programs = [INFER._replace(forward=2), INFER._replace(first=2)]
    data = written(programs, [loop, copy, ADD], **pixels)
    factors = np.array([1, 10, 100, 0.5, 0.25, 0.125], np.float32)
    at = flatfile.header(data)["at_scale"]
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
