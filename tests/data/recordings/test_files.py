"""Recordings: what is read, and that what is wrong is named with file and line."""

import re
from pathlib import Path

import numpy as np
import pytest

from pmeta.data.recordings.files import (
    MAX_BYTES,
    RecordingError,
    find_recordings,
    read_recordings,
)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "anna" / "one.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_csv_by_hand(tmp_path: Path) -> None:
    path = written(tmp_path, "x,label,timestamp,y\n1,walk,1000,2\n3, sit ,1010,-4.5\n5,,1020,6\n\n")
    [r] = read_recordings(path, tmp_path)
    assert (r.group, r.columns) == ("anna", ("x", "y"))
    np.testing.assert_array_equal(r.values, np.array([[1, 2], [3, -4.5], [5, 6]], np.float32))
    assert r.rate == pytest.approx(100)  # milliseconds
    assert r.labels is not None
    assert r.labels.tolist() == ["walk", "sit", ""]


def test_columns_are_chosen_in_order(tmp_path: Path) -> None:
    path = written(tmp_path, "x,y,z\n1,2,3\n")
    [r] = read_recordings(path, tmp_path, ("z", "x"))
    assert r.values.tolist() == [[3, 1]]
    assert (r.rate, r.labels) == (None, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,label\n1,a\n2,b,c\n", "line 3: a row has 2 fields as the header does, this one has 3"),
        ("x,label\n1,a\nfast,b\n", "line 3: x must be a finite number, got 'fast'"),
        ("x,label\n1,a\n2,a\nnan,b\n", "line 4: x must be a finite number, got 'nan'"),
        ("x,label\n1,a\n1e999,b\n", "line 3: x must be a finite number"),
        ("x,time\n1,0\n2,0.01\n3,2.5\n", "line 4: a gap in time of 2.49 s"),
        ("x,time\n1,0\n2,0.01\n3,0\n", "line 4: time goes back by 0.01 s"),
        ("x,time\n1,0\n\n2,0.01\n3,0\n", "line 5: time goes back by 0.01 s"),
        ("x,label\n1,a\n-1e39,b\n", "line 3: x must be a finite number, got '-1e+39' (the largest"),
        ("x,time\n1,0\n2,nan\n", "line 3: time must be a finite number, got 'nan'"),
        ("x\n1\n\nnan\n", "line 4: x must be a finite number"),
        ("x,time\n1,5\n2,5\n", "no two rows at different times"),
        ("x,time\n", "no rows below its header"),
        ("", "line 1: a recording begins with the names of its columns"),
        ("1,2,3\n4,5,6\n", "line 1: a recording begins with the names of its columns"),
        ("label,time\na,1\n", "line 1: a recording begins with the names of its columns"),
        ("x,x\n1,2\n", "line 1: each column has a name of its own"),
        ("x,time,timestamp\n1,2,3\n", "line 1: each column has a name of its own"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(RecordingError, match=f"^{re.escape(str(path))}.*{re.escape(message)}"):
        read_recordings(path, tmp_path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "x,y\n1,2\n")
    with pytest.raises(RecordingError, match=r"one\.csv line 1: the column 'z' is missing.*'x'"):
        read_recordings(path, tmp_path, ("x", "z"))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_bytes(b"x,y\n\xff\xfe,1\n")
    with pytest.raises(RecordingError, match="no CSV file of text"):
        read_recordings(path, tmp_path)


def test_arrays(tmp_path: Path) -> None:
    time = np.arange(4) / 50
    np.savez(tmp_path / "a.npz", x=np.ones((4, 2)), y=np.array(["s", "s", "w", "w"]), time=time)
    [r] = read_recordings(tmp_path / "a.npz", tmp_path)
    assert (r.columns, r.values.dtype, r.rate) == (("0", "1"), np.float32, pytest.approx(50))
    np.save(tmp_path / "b.npy", np.ones((3, 2), np.float32))
    assert read_recordings(tmp_path / "b.npy", tmp_path)[0].labels is None


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.ones(3)}, "x has the rows of a recording, .* got nothing"),
        ({"x": np.ones((2, 2, 2))}, r"got float64 of shape \(2, 2, 2\)"),
        ({"x": np.array([[1.0], [np.inf]])}, "row 1: x must be finite"),
        ({"x": np.array([[1.0], [1e39]])}, r"row 1: x must be finite, got 1e\+39 \(the largest"),
        ({"x": np.ones((2, 1)), "time": np.array(["0", "1"])}, "time holds numbers .* got <U1"),
        ({"x": np.ones((2, 1)), "time": np.array([0, 1], "M8[s]")}, "time holds numbers"),
        ({"x": np.ones((3, 1)), "y": np.ones(2)}, "y has one entry a row of x, 3"),
        ({"x": np.ones((3, 1)), "group": np.ones(2)}, "group has one entry a row of x, 3"),
        ({"x": np.ones((3, 1)), "time": np.array([0, 0.1, 9])}, "row 2: a gap in time of 8.9 s"),
        ({"x": np.ones((3, 1)), "columns": np.array(["a", "b"])}, "columns names the 1 columns"),
        ({"x": np.array([[{}]])}, "no .npy or .npz of plain arrays"),
    ],
)
def test_arrays_that_do_not_fit(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with pytest.raises(RecordingError, match=message):
        read_recordings(path, tmp_path)


@pytest.mark.parametrize("row", [0, 2, 3, 5])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_time_that_is_none_hides_no_gap(tmp_path: Path, row: int, value: float) -> None:
    time = np.array([0, 0.1, 0.2, 60, 60.1, 60.2])
    time[row] = value
    np.savez(tmp_path / "a.npz", x=np.ones((6, 1)), time=time)
    with pytest.raises(RecordingError, match=f"a.npz row {row}: time must be finite, got {value}"):
        read_recordings(tmp_path / "a.npz", tmp_path)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8])
def test_numbers_of_any_size_are_read(tmp_path: Path, dtype: type) -> None:
    most = np.finfo(np.float32).max if dtype == np.float64 else np.ones(1, dtype)[0] * 100
    np.save(tmp_path / "a.npy", np.full((2, 1), most, dtype))
    [r] = read_recordings(tmp_path / "a.npy", tmp_path)
    assert np.isfinite(r.values).all()


def test_a_group_for_each_row_of_an_array(tmp_path: Path) -> None:
    x, time = np.arange(6.0)[:, None], np.array([0, 0.1, 0.2, 7, 7.1, 7.2])
    who = np.array(["anna/watch"] * 3 + ["ben"] * 3)
    np.savez(tmp_path / "all.npz", x=x, y=np.arange(6) // 2, time=time, group=who)
    anna, ben = read_recordings(tmp_path / "all.npz", tmp_path)
    assert (anna.group, ben.group) == ("anna/watch", "ben")
    assert ben.values[:, 0].tolist() == [3, 4, 5]
    assert ben.rate == pytest.approx(10)  # the gap between two recordings is none
    assert ben.labels is not None
    assert ben.labels.tolist() == ["1", "2", "2"]
    assert ben.name.endswith("all.npz rows 3 to 5")


def test_the_group_of_a_file_in_no_folder_is_in_its_name(tmp_path: Path) -> None:
    for name in ("anna_watch_01", "ben_7", "loose"):
        (tmp_path / f"{name}.csv").write_text("x\n1\n")
    found = [read_recordings(path, tmp_path)[0].group for path in find_recordings(tmp_path)]
    assert found == ["anna/watch", "ben", ""]


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.csv"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(RecordingError, match="a recording has at most 1,073,741,824"):
        read_recordings(path, tmp_path)


def test_hidden_files_are_none(tmp_path: Path) -> None:
    written(tmp_path, "x\n1\n")
    (tmp_path / ".trash").mkdir()
    (tmp_path / ".trash" / "two.csv").write_text("x\n1\n")
    (tmp_path / "notes.txt").write_text("hello")
    assert [p.name for p in find_recordings(tmp_path)] == ["one.csv"]
    with pytest.raises(RecordingError, match="no recordings at"):
        find_recordings(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordingError, match="a folder of recordings holds"):
        find_recordings(tmp_path / "empty")
