"""An example of every operation of the engine, with the sizes of its operands.

They are written by hand from docs/reference/format.md. A new operation needs an example here.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pmeta.device.instructions import LAYOUTS, RawInstr
from pmeta.device.model_file import Geom
from tests.helpers.device_files import around, opens

ARENA, MOST = 1 << 20, (1 << 30) - 4
"""Bytes of an ordinary arena, and of the largest one."""
BIG, SIDE, WORDS, WIDE = 65535, 32767, (1 << 30) - 1, (1 << 24) - 1
GROUPED = Geom(6, 11, 13, 9, 5, 6, 3, 2, 2, 3, 1, 2, 2, 1, 3)
"""A conv of depth 2 x 6 with 5 x 6 pixels of output."""
WHOLE = GROUPED._replace(c_out=20, groups=1)
"""One group: depth 6 x 6."""
POOL = Geom(5, 9, 10, 5, 5, 6, 3, 2, 2, 2, 1, 1, 1, 1, 5)
"""Windows of more than 4 pixels, so a byte for each place."""
SMALL = Geom(5, 7, 7, 5, 3, 3, 2, 2, 2, 2, 0, 0, 1, 1, 5)
"""Two bits for each place."""


class Example(NamedTuple):
    op: str
    parameters: Mapping[str, float]
    words: Mapping[str, int]
    """Of every operand; bytes of those that are packed."""
    macs: int = 0
    """Of one round, over and above the words that are moved."""
    geom: Geom | None = None
    flags: tuple[str, ...] = ()
    rounds: int = 1
    without: tuple[str, ...] = ()
    """Operands that are none."""

    def instr(self, **at: int) -> RawInstr:
        places = {name: 0 for name in self.words if name not in self.without}
        return RawInstr(self.op, {**places, **at}, {}, self.parameters, self.flags)

    def data(self, arena: int = ARENA, **at: int) -> bytes:
        return around(self.instr(**at), self.geom, self.rounds, arena)

    @property
    def packed(self) -> frozenset[str]:
        """Operands that are bytes: also weights of two bytes or one."""
        small = {"w"} if {"half", "byte"} & {*self.flags} else set()
        return LAYOUTS[self.op].marks["packed"] | (small & self.words.keys())

    def sizes(self) -> dict[str, int]:
        """Bytes of the operands that are there."""
        there = {name: n for name, n in self.words.items() if name not in self.without}
        return {name: n if name in self.packed else 4 * n for name, n in there.items()}

    def packing(self, flag: str, macs: int = 0, **words: int) -> "Example":
        """The same with weights of two bytes (half) or one."""
        return self._replace(flags=(flag,), words={**self.words, **words}, macs=macs or self.macs)

    def but(self, geom: Geom | None = None, /, **parameters: float) -> "Example":
        return self._replace(parameters={**self.parameters, **parameters}, geom=geom or self.geom)

    def opens(self) -> bool:
        return opens(self.data(MOST))


CONV = Example(
    "conv",
    {"geom": 1, "channels": 2, "strip": 32, "channel": 1},
    {"y": 2 * 30, "x": 6 * 143, "w": 2 * 12, "bias": 2, "patches": 12 * 32},
    2 * 30 * 12,
    GROUPED,
    rounds=4,
)
STRIPS = Example(
    "conv",
    {"geom": 1, "channels": 4, "strip": 16, "rows": 2, "first": 1, "channel": 5},
    {"y": 4 * 2 * 6, "x": 6 * 143, "w": 4 * 12, "bias": 4, "patches": 12 * 16},
    4 * 2 * 6 * 12,
    GROUPED,
    rounds=3,
)
WINDOW = STRIPS._replace(words={**STRIPS.words, "x": 6 * 7 * 13}, flags=("window",))
CONV_HALF = CONV.packing("half", 2 * CONV.macs, w=48, patches=12 * 36)
CONV_BYTE = CONV.packing("byte", 2 * CONV.macs, w=24, patches=12 * 36, scale=2)
STRIPS_WHOLE = STRIPS._replace(
    words={**STRIPS.words, "y": 4 * 30}, flags=("whole",), macs=4 * 2 * 6 * 12
)
BW_W = Example(
    "conv_bw_w",
    {"geom": 1, "stored": 0, "strip": 32, "channels": 5},
    {
        **{"acc": 20 * 36, "gy": 5 * 30, "x": 6 * 143},
        **{"gamma_fw": 6, "gamma_bw": 5, "patches": (36 + 16) * 32},
    },
    5 * 30 * 36,
    WHOLE,
    rounds=4,
)
BW_W_STORED = Example(
    "conv_bw_w",
    {"geom": 1, "stored": 4, "strip": 48},
    {
        **{"acc": 20 * 36, "gy": 20 * 30, "x": 4 * 143},
        **{"gamma_fw": 6, "gamma_bw": 20, "patches": (36 + 32) * 48},
    },
    20 * 30 * 36,
    WHOLE,
)
BW_W_GROUPED = Example(
    "conv_bw_w",
    {"geom": 1, "strip": 16},
    {
        **{"acc": 9 * 12, "gy": 9 * 30, "x": 6 * 143},
        **{"gamma_fw": 6, "gamma_bw": 9, "patches": (12 + 16) * 16},
    },
    9 * 30 * 12,
    GROUPED,
)
BW_W_LANES = BW_W_STORED.but(WHOLE._replace(c_out=16))._replace(
    words={
        **{"acc": 16 * 36, "gy": 16 * 30, "x": 4 * 143},
        **{"gamma_fw": 6, "gamma_bw": 16, "patches": (36 + 16) * 48},
    },
    macs=16 * 30 * 36,
)
BW_W_ROWS = Example(
    "conv_bw_w",
    {"geom": 1, "strip": 16, "rows": 2, "first": 1},
    {
        **{"acc": 20 * 36, "gy": 20 * 30, "x": 6 * 7 * 13},
        **{"gamma_fw": 6, "gamma_bw": 20, "patches": (36 + 32) * 16},
    },
    20 * 2 * 6 * 36,
    WHOLE,
    rounds=3,
)
BW_X = Example(
    "conv_bw_x",
    {"geom": 1, "channels": 5, "strip": 16},
    {"gx": 6 * 143, "gy": 5 * 30, "w": 5 * 36, "patches": 5 * 6 * 20},
    6 * 143 * 6 * 20,
    WHOLE,
    rounds=4,
)
BW_X_GROUPED = Example(
    "conv_bw_x",
    {"geom": 1, "strip": 32},
    {"gx": 6 * 143, "gy": 9 * 30, "w": 9 * 12, "patches": 3 * 6 * 36},
    6 * 143 * 6 * 3,
    GROUPED,
)
BW_X_HALF = BW_X.packing("half", w=2 * 5 * 36)
BW_X_BYTE = BW_X.packing("byte", w=5 * 36, scale=5)
MAXPOOL = Example(
    "maxpool",
    {"geom": 1, "channels": 5},
    {"y": 5 * 30, "x": 5 * 90, "index": 5 * 30, "w": 5},
    5 * 30 * 6,
    POOL,
)
TWO_BITS = MAXPOOL.but(SMALL)._replace(
    words={"y": 5 * 9, "x": 5 * 49, "index": 12, "w": 5}, macs=5 * 9 * 4
)
POOL_ROWS = Example(
    "maxpool",
    {"geom": 1, "channels": 5, "rows": 2, "first": 1},
    {"y": 5 * 9, "x": 5 * 4 * 7, "index": 12, "w": 5},
    5 * 9 * 4,
    SMALL,
    rounds=2,
    without=("index",),
)
POOL_WINDOW = POOL_ROWS.but(window=4, place=2)._replace(
    words={**POOL_ROWS.words, "y": 5 * 4 * 3}, macs=5 * 4 * 3 * 4
)
MAXPOOL_BW = Example(
    "maxpool_bw", {"geom": 1, "channels": 5}, {"gx": 450, "gy": 150, "index": 150}, 0, POOL
)
AVGPOOL = Example("avgpool", {"geom": 1, "channels": 4}, {"y": 120, "x": 360}, 120 * 6, POOL)
AVGPOOL_BW = Example("avgpool_bw", {"geom": 1, "channels": 4}, {"gx": 360, "gy": 120}, 720, POOL)
MOMENTS = Example("moments", {"channels": 3, "plane": 35}, {"stat": 6, "x": 105})
MOMENT_ROWS = Example(
    "moments",
    {"channels": 3, "plane": 35, "width": 7, "rows": 2, "first": 1},
    {"stat": 6, "x": 3 * 14},
    rounds=2,
)
MOMENT_WINDOW = MOMENT_ROWS.but(window=5)._replace(
    words={"stat": 3, "x": 2 * 5 * 7 + 2 * 7}, flags=("means",)
)
GROUP_STAT = Example(
    "group_stat",
    {"channels": 6, "count": 9, "per_group": 3},
    {"stat": 12, "means": 6, "rstd": 2},
)
NORMALISE = Example(
    "normalise",
    {"channels": 3, "width": 7, "rows": 2, "window": 5, "place": 3},
    {"xhat": 105, "y": 105, "stat": 6, "w": 3, "bias": 3},
)
SHIFT = Example("shift", {"channels": 3, "width": 7, "window": 5, "keep": 5}, {"x": 105})
NORM_COEF = Example(
    "norm_coef",
    {"channels": 6, "plane": 9, "pooled": 4, "per_group": 3},
    {"coef": 24, "stat": 12, "means": 6, "w": 6, "mean": 6, "products": 6},
)
NORM_POOL_BW = Example(
    "norm_pool_bw",
    {"geom": 1, "channels": 5, "stride": 7},
    {"x": 450, "gy": 150, "index": 150, "coef": 5 + 21},
    0,
    POOL,
)
NORM = Example(
    "norm",
    {"channels": 6, "plane": 9, "per_group": 3},
    {"xhat": 54, "y": 54, "w": 6, "bias": 6, "rstd": 2},
)
NORM_BW = Example(
    "norm_bw",
    {"channels": 6, "plane": 9, "per_group": 3},
    {"xhat": 54, "gy": 54, "w": 6, "rstd": 2, "mean": 6, "products": 6},
)
NORM_ACC = Example(
    "norm_acc",
    {"channels": 6, "plane": 9},
    {"acc_w": 6, "acc_b": 6, "mean": 6, "products": 6, "gamma_fw": 6, "gamma_bw": 6},
)
FC = Example(
    "fc", {"outputs": 5, "inputs": 7, "rows": 3}, {"y": 15, "x": 21, "w": 35, "bias": 5}, 105
)
FC_BW_W = Example(
    "fc_bw_w",
    {"outputs": 5, "inputs": 7, "rows": 3, "stored": 4},
    {"acc": 35, "gy": 15, "x": 12, "gamma_fw": 7, "gamma_bw": 5},
    105,
)
FC_BW_W_ALL = FC_BW_W.but(stored=0)._replace(words={**FC_BW_W.words, "x": 21})
FC_BW_X = Example(
    "fc_bw_x", {"outputs": 5, "inputs": 7, "rows": 3}, {"gx": 21, "gy": 15, "w": 35}, 105
)
FC_HALF, FC_BYTE = FC.packing("half", w=70), FC.packing("byte", w=35, scale=5)
FC_BW_X_HALF = FC_BW_X.packing("half", w=70)
FC_BW_X_BYTE = FC_BW_X.packing("byte", w=35, scale=5)
BIAS_BW = Example("bias_bw", {"channels": 3, "plane": 7}, {"acc": 3, "gy": 21, "gamma_bw": 3})
UPDATE = Example("update", {"groups": 2, "depth": 3, "filters": 5}, {"w": 30, "acc": 30})
PROTOTYPES = Example(
    "prototypes", {"outputs": 5, "inputs": 7}, {"w": 35, "bias": 5, "acc": 35, "count": 5}
)
MERGE = Example(
    "merge",
    {"groups": 2, "depth": 6, "filters": 5, "taps": 3},
    {"acc": 60, "part": 60, "row": 4, "column": 10},
)
SCORE = Example(
    "score",
    {"channels": 5, "plane": 7},
    {"gamma": 5, "x": 35, "module": 2 * 25 + 2 * 5, "scratch": 15},
)
SCORE_SUM = SCORE._replace(op="score_sum", words={"sum": 5, "x": 35, "module": 60, "scratch": 15})
SCORE_HALF = SCORE.packing("half", module=25 + 10)
SCORE_BYTE = SCORE.packing("byte", module=13 + 20)
SCORE_MEAN = Example("score_mean", {"channels": 5, "plane": 1}, {"gamma": 5, "sum": 5, "order": 5})
COMPACT = Example("compact", {"channels": 5, "plane": 7, "stored": 3}, {"x": 35, "gamma": 5})
ACT = Example("act", {"count": 17}, {"x": 17, "mask": 3})
ACT_BW = Example("act_bw", {"count": 16}, {"g": 16, "mask": 2})
CURVE = Example("curve", {"count": 17}, {"x": 17, "kept": 17})
CURVE_BW = Example("curve_bw", {"count": 17}, {"g": 17, "kept": 17})
MUL = Example("mul", {"factors": 3, "each": 5}, {"y": 15, "x": 15, "s": 3})
MUL_BW = Example("mul_bw", {"factors": 3, "each": 5}, {"gs": 3, "gy": 15, "x": 15})
LAYER_NORM = Example(
    "layer_norm",
    {"channels": 5, "rows": 3},
    {"xhat": 15, "y": 15, "w": 5, "bias": 5, "rstd": 3},
)
LAYER_NORM_BW = Example(
    "layer_norm_bw",
    {"channels": 5, "rows": 3},
    {"xhat": 15, "gy": 15, "w": 5, "rstd": 3, "mean": 5, "products": 5},
)
ADD = Example("add", {"count": 9}, {"y": 9, "x": 9})
COPY = Example("copy", {"count": 9, "plane": 3}, {"y": 9, "x": 9})
EXAMPLES = {name: value for name, value in globals().items() if isinstance(value, Example)}
