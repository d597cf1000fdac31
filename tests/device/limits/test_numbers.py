"""Which numbers an instruction takes."""

import pytest

from pmeta.device import model_file as flatfile
from pmeta.device.binding import DeviceModel
from pmeta.device.instructions import LAYOUTS, NONE
from tests.helpers.device_examples import (
    ADD,
    BIG,
    BW_W,
    BW_W_ROWS,
    BW_W_STORED,
    BW_X,
    BW_X_GROUPED,
    CONV,
    EXAMPLES,
    GROUPED,
    MERGE,
    MUL,
    MUL_BW,
    NORMALISE,
    POOL_ROWS,
    PROTOTYPES,
    SHIFT,
    SIDE,
    SMALL,
    STRIPS,
    UPDATE,
    WIDE,
    WORDS,
)
from tests.helpers.device_files import opens, with_words

LIMITS: list[tuple[str, str, list[int], list[int]]] = [
    ("CONV", "channels", [1, 2], [0, 3]),  # four rounds of them, behind one, of nine
    ("CONV", "channel", [0, 1], [2, NONE]),
    ("CONV", "strip", [16, 65520], [0, 8, 15, 17, 24, 65536]),
    ("CONV", "first", [0], [1]),  # there are no rows
    ("CONV", "geom", [1], [2, NONE]),
    ("STRIPS", "channel", [0, 5], [6]),
    ("STRIPS", "rows", [1, 21844], [21845]),  # three rounds of rows within two sides
    ("STRIPS", "first", [0, SIDE], [SIDE + 1]),
    ("BW_W", "stored", [0, 6], [7]),
    ("BW_W", "strip", [16], [0, 15]),
    ("BW_W", "channels", [1, 5], [0, 6]),
    ("BW_W_STORED", "channels", [0, 20], [21]),
    ("BW_W_GROUPED", "channels", [0], [1]),
    ("BW_W", "first", [0], [1]),  # there are no rows
    ("BW_W_ROWS", "rows", [1, 21844], [21845]),
    ("BW_W_ROWS", "first", [0, SIDE], [SIDE + 1]),
    ("BW_W_ROWS", "stored", [0], [1]),
    ("BW_W_ROWS", "channels", [0], [1]),
    ("STRIPS_WHOLE", "rows", [1, 21844], [0]),
    ("BW_X", "channels", [1, 5], [0, 6]),
    ("BW_X", "strip", [16], [0, 15]),
    ("BW_X_GROUPED", "channels", [0], [1]),
    ("MAXPOOL", "channels", [1, BIG], [0, BIG + 1]),
    ("MAXPOOL", "first", [0], [1]),
    ("MAXPOOL", "window", [0], [1]),
    ("MAXPOOL", "place", [0], [1]),
    ("POOL_ROWS", "rows", [1, 32766], [SIDE, SIDE + 1]),
    ("POOL_ROWS", "first", [0, SIDE], [SIDE + 1]),
    ("POOL_ROWS", "window", [0, 2, 2 * SIDE], [1, 2 * SIDE + 1]),
    ("POOL_WINDOW", "place", [0, 2], [3, NONE]),
    ("MAXPOOL_BW", "channels", [1, BIG], [0, BIG + 1]),
    ("AVGPOOL", "channels", [1, BIG], [0, BIG + 1]),
    ("NORM", "channels", [3, 65535], [0, 7, 65538]),
    ("NORM", "plane", [1], [0]),
    ("NORM", "per_group", [1, 6], [0, 4]),
    ("NORM_BW", "channels", [3, 65535], [0, 7, 65538]),
    ("NORM_BW", "plane", [1], [0]),
    ("NORM_BW", "per_group", [1, 6], [0, 4]),
    ("NORM_ACC", "channels", [BIG], [BIG + 1]),
    ("NORM_ACC", "plane", [WORDS], [WORDS + 1]),
    ("MOMENTS", "channels", [1, BIG], [0, BIG + 1]),
    ("MOMENTS", "plane", [1], [0]),
    ("MOMENTS", "first", [0], [1]),
    ("MOMENT_ROWS", "width", [1, SIDE], [0, SIDE + 1]),
    ("MOMENT_ROWS", "rows", [1, 32766], [SIDE]),
    ("MOMENT_ROWS", "first", [0, SIDE], [SIDE + 1]),
    ("MOMENTS", "window", [0], [1]),
    ("MOMENT_WINDOW", "window", [0, 2, 2 * SIDE], [1, 2 * SIDE + 1]),
    ("GROUP_STAT", "channels", [3, 65535], [0, 7, 65538]),
    ("GROUP_STAT", "per_group", [1, 6], [0, 4]),
    ("GROUP_STAT", "count", [1, WORDS], [0, WORDS + 1]),
    ("NORMALISE", "channels", [1, BIG], [0, BIG + 1]),
    ("NORMALISE", "width", [1], [0]),
    ("NORMALISE", "rows", [1, 2], [0, 3]),
    ("NORMALISE", "window", [5], [0, 4]),
    ("NORMALISE", "place", [0, 3], [4, NONE]),
    ("SHIFT", "channels", [1, BIG], [0, BIG + 1]),
    ("SHIFT", "width", [1], [0]),
    ("SHIFT", "window", [5, 6], [0, 4]),
    ("SHIFT", "keep", [0, 5], [6]),
    ("NORM_COEF", "channels", [3, 65535], [0, 7, 65538]),
    ("NORM_COEF", "per_group", [1, 6], [0, 4]),
    ("NORM_COEF", "plane", [1, WORDS], [0, WORDS + 1]),
    ("NORM_COEF", "pooled", [1, WORDS], [0, WORDS + 1]),
    ("NORM_POOL_BW", "channels", [1, BIG], [0, BIG + 1]),
    ("NORM_POOL_BW", "stride", [0, BIG], [BIG + 1]),
    ("FC", "outputs", [1, WIDE], [0, WIDE + 1]),
    ("FC", "inputs", [1, WIDE], [0, WIDE + 1]),
    ("FC", "rows", [1, BIG], [0, BIG + 1]),
    ("FC_BW_W", "outputs", [1, WIDE], [0, WIDE + 1]),
    ("FC_BW_W", "inputs", [4, WIDE], [3, WIDE + 1]),
    ("FC_BW_W", "rows", [1, BIG], [0, BIG + 1]),
    ("FC_BW_W", "stored", [0, 7], [8]),
    ("FC_BW_X", "outputs", [1, WIDE], [0, WIDE + 1]),
    ("FC_BW_X", "inputs", [1, WIDE], [0, WIDE + 1]),
    ("FC_BW_X", "rows", [1, BIG], [0, BIG + 1]),
    ("BIAS_BW", "channels", [1, WIDE], [0, WIDE + 1]),
    ("BIAS_BW", "plane", [1], [0]),
    ("UPDATE", "layer", [0], [1]),
    ("UPDATE", "groups", [1, BIG], [0, BIG + 1]),
    ("UPDATE", "depth", [1], [0]),
    ("UPDATE", "filters", [1], [0]),
    ("PROTOTYPES", "outputs", [1, WIDE], [0, WIDE + 1]),
    ("PROTOTYPES", "inputs", [1, WIDE], [0, WIDE + 1]),
    ("MERGE", "groups", [1, 65535], [0, 65536]),
    ("MERGE", "depth", [3], [0, 4, 5]),
    ("MERGE", "filters", [1], [0]),
    ("MERGE", "taps", [1, 6], [0, 4]),
    ("SCORE", "channels", [1], [0]),
    ("SCORE", "plane", [1], [0]),
    ("SCORE_MEAN", "channels", [1, BIG], [0, BIG + 1]),
    ("SCORE_MEAN", "plane", [1, WORDS], [0, WORDS + 1]),
    ("COMPACT", "channels", [3, BIG], [2, BIG + 1]),
    ("COMPACT", "plane", [1], [0]),
    ("COMPACT", "stored", [1, 5], [0, 6]),
    ("ACT", "count", [1], [0]),
    ("ACT", "kind", [0, 3], [4]),
    ("ACT_BW", "kind", [0, 3], [4]),
    ("CURVE", "count", [1], [0]),
    ("CURVE", "kind", [0, 2], [3]),
    ("CURVE_BW", "kind", [0, 2], [3]),
    ("MUL", "factors", [1], [0]),
    ("MUL", "each", [1], [0]),
    ("LAYER_NORM", "channels", [1, BIG], [0, BIG + 1]),
    ("LAYER_NORM", "rows", [1, BIG], [0, BIG + 1]),
    ("LAYER_NORM_BW", "channels", [1, BIG], [0, BIG + 1]),
    ("LAYER_NORM_BW", "rows", [1, BIG], [0, BIG + 1]),
    ("ADD", "count", [1], [0]),
]


@pytest.mark.parametrize(("name", "parameter", "good", "bad"), LIMITS)
def test_numbers_of_an_instruction(
    name: str, parameter: str, good: list[int], bad: list[int]
) -> None:
    example = EXAMPLES[name]
    for value in good:
        assert example.but(**{parameter: value}).opens(), value
    for value in bad:
        assert not example.but(**{parameter: value}).opens(), value


@pytest.mark.parametrize("name", ["GROUP_STAT", "NORM_COEF", "NORM", "NORM_BW"])
def test_a_norm_of_one_channel(name: str) -> None:
    assert EXAMPLES[name].but(channels=1, per_group=1).opens()
    assert not EXAMPLES[name].but(channels=0, per_group=1).opens()


@pytest.mark.parametrize("name", ["SCORE", "SCORE_SUM", "SCORE_MEAN"])
def test_thresholds_drop_some_channels_at_most(name: str) -> None:
    for value, fits in ((0.0, True), (0.999, True), (1.0, False), (-0.001, False)):
        assert EXAMPLES[name].but(threshold=value).opens() == fits
    assert not EXAMPLES[name].but(threshold=float("nan")).opens()


def test_rounds_of_what_is_made_once() -> None:
    """Prototypes end a pass; a backward conv without parts has one round."""
    for example in (PROTOTYPES, BW_W_STORED, BW_X_GROUPED):
        assert not example._replace(rounds=2).opens()
    for example, most in ((CONV, 4), (STRIPS, SIDE - 1), (BW_W, 4), (BW_X, 4)):
        assert example._replace(rounds=most).opens()
        assert not example._replace(rounds=most + 1).opens()


def test_strips_of_a_backward_conv_have_one_group() -> None:
    assert BW_W_ROWS.but(GROUPED._replace(c_out=20, c_in=6, groups=1)).opens()
    assert not BW_W_ROWS.but(GROUPED._replace(c_out=20, c_in=6, groups=2)).opens()


def test_a_window_and_strips_of_a_pool() -> None:
    """A window is for strips alone, strips are for windows that do not overlap, without places."""
    assert not CONV._replace(flags=("window",), rounds=1).opens()
    assert not POOL_ROWS._replace(without=()).opens()
    for geom, fits in (
        (SMALL._replace(kh=1, sh=1, ho=7), True),
        (SMALL._replace(kh=2, sh=1, ho=6), False),
        (SMALL._replace(kh=2, dh=2, sh=2), False),
        (SMALL._replace(kh=2, dh=2, sh=3, ho=2), True),
        (SMALL._replace(kh=2, ph=1, ho=4), False),
    ):
        assert POOL_ROWS.but(geom).opens() == fits, geom


def test_weights_of_many_groups() -> None:
    """Depth and filters below 2^30, or their product would not fit in 64 bits."""
    for example in (UPDATE, MERGE.but(taps=1)):
        assert example.but(groups=1, depth=1 << 14, filters=(1 << 14) - 1).opens()
        assert not example.but(groups=1, depth=1 << 15, filters=1 << 15).opens()
        assert not example.but(groups=5, depth=1 << 31, filters=1 << 31).opens()
        assert not example.but(groups=2, depth=NONE, filters=NONE).opens()


def test_products_of_two_numbers() -> None:
    """None of them is too large by itself."""
    for example in (MUL, MUL_BW):
        assert not example.but(factors=1 << 16, each=1 << 16).opens()
        assert not example.but(factors=1 << 15, each=1 << 15).opens()
    assert not NORMALISE.but(width=1 << 31, window=1 << 30, rows=1, place=0).opens()
    assert not SHIFT.but(width=1 << 31, window=1 << 30).opens()


def test_an_unknown_operation_is_refused() -> None:
    data = ADD.data()
    at = flatfile.header(data)["at_instrs"] + 80  # behind the one of inference
    assert opens(with_words(data, at, LAYOUTS["add"].number))
    for op in (0, 41, 1 << 31):
        assert not opens(with_words(data, at, op))


@pytest.mark.parametrize("op", [39, 40])
def test_a_reserved_number_is_refused(op: int) -> None:
    """Packing of inputs, which no engine does: such a file is to be exported again."""
    assert op not in [layout.number for layout in LAYOUTS.values()]
    data = ADD.data()
    at = flatfile.header(data)["at_instrs"] + 80
    with pytest.raises(ValueError, match="an instruction that does not fit: write it again"):
        DeviceModel(with_words(data, at, op))
