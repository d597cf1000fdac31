"""Windows by hand: where they begin, their labels, scale and rate."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pmeta.data.recordings.files import Recording, RecordingError
from pmeta.data.recordings.windows import NO_LABEL, Windowing

PLAIN = Windowing(
    ("x", "y"), ("sit", "walk"), rate=10, length=4, stride=2, scale=(2.0, 1.0), shift=(0.0, -1.0)
)


def recording(n: int, rate: float | None = 10.0, labels: list[str] | None = None) -> Recording:
    values = np.column_stack([np.arange(n), 10 * np.arange(n)]).astype(np.float32)
    names = None if labels is None else np.array(labels)
    return Recording("anna/one.csv", "anna", ("x", "y"), values, rate, names, range(2, n + 2))


def test_windows_overlap_and_are_scaled() -> None:
    cut = PLAIN.cut(recording(7))
    assert cut.start.tolist() == [0, 2]
    assert cut.x[1].tolist() == [[4, 6, 8, 10], [19, 29, 39, 49]]
    assert cut.y.tolist() == [NO_LABEL, NO_LABEL]


def test_a_label_needs_its_share_of_the_rows() -> None:
    labels = ["sit", "sit", "sit", "sit", "walk", "walk", "walk", ""]
    cut = PLAIN.cut(recording(8, labels=labels))
    assert cut.y.tolist() == [0, NO_LABEL, 1]  # 4 of 4, 2 of 4, 3 of 4
    assert replace(PLAIN, share=1.0).cut(recording(8, labels=labels)).y.tolist() == [
        0,
        NO_LABEL,
        NO_LABEL,
    ]


def test_a_faster_recording_is_averaged_and_a_slower_one_interpolated() -> None:
    fast = PLAIN.cut(recording(16, rate=20.0))
    assert fast.x[0, 0].tolist() == [1, 5, 9, 13]  # twice the means of rows 0-1, 2-3, 4-5, 6-7
    slow = PLAIN.cut(recording(4, rate=5.0))
    assert slow.x[0, 0].tolist() == [0, 1, 2, 3]


def test_a_recording_of_nearly_the_rate_is_resampled_to_it() -> None:
    cut = PLAIN.cut(recording(50, rate=12.5))
    np.testing.assert_allclose(cut.x[3, 0], 2 * 1.25 * np.arange(6, 10), rtol=1e-6)


def test_what_cannot_be_cut_is_named() -> None:
    with pytest.raises(RecordingError, match=r"one\.csv: a window has 4 rows .* recording has 3"):
        PLAIN.cut(recording(3))
    with pytest.raises(
        RecordingError, match=r"one\.csv line 4: the labels are sit, walk, got 'fly'"
    ):
        PLAIN.cut(recording(5, labels=["sit", "sit", "fly", "sit", "sit"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 0.0}, "--rate must be positive"),
        ({"length": 0}, "--length must be from 1"),
        ({"stride": 0}, "--stride must be from 1"),
        ({"share": 0.5}, r"--share of a window's rows must be in \(0\.5, 1\]"),
    ],
)
def test_settings_that_cannot_be(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PLAIN, **change)  # type: ignore[arg-type]


def test_facts_there_and_back() -> None:
    assert Windowing.from_facts(json.loads(json.dumps(PLAIN.as_facts()))) == PLAIN
