"""One decoded copy, whole or not there, for all processes."""

import json
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from pmeta.base.files import cache_folder
from pmeta.data.cache import open_or_build

CONTENT = {
    "shape": [2, 1, 1, 1],
    "classes": [["", "a", 0, 2]],
    "skipped": [["a/x", "not an image"]],
}


def build(file):
    file.write(b"\x05\x06")
    return CONTENT


def fail(file):
    raise AssertionError("built again")


def test_built_once_then_opened(tmp_path):
    first = open_or_build(tmp_path, "key", "mark", "root", build)
    again = open_or_build(tmp_path, "key", "mark", "root", fail)
    for cached in (first, again):
        assert isinstance(cached.images, np.memmap)
        assert cached.images.ravel().tolist() == [5, 6]
        assert cached.classes == [("", "a", 0, 2)]
        assert cached.skipped == [("a/x", "not an image")]
    with pytest.raises(ValueError, match="read-only"):
        again.images[0] = 1


def test_a_cut_or_broken_copy_is_built_again(tmp_path):
    open_or_build(tmp_path, "key", "mark", "root", build)
    (tmp_path / "key-mark.u8").write_bytes(b"\x05")
    assert open_or_build(tmp_path, "key", "mark", "root", build).images.ravel().tolist() == [5, 6]
    (tmp_path / "key-mark.json").write_text('{"shape": [2, 1')
    assert open_or_build(tmp_path, "key", "mark", "root", build).images.ravel().tolist() == [5, 6]


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / ".key-old.u8.0123abcd.part").write_bytes(bytes(1000))
    (tmp_path / ".other-mark.u8.0123abcd.part").write_bytes(bytes(1000))  # may be at work
    (tmp_path / ".key-mark.json.0123abcd.part").write_text("{")
    (tmp_path / "mine.tmp").write_text("no cache")
    open_or_build(tmp_path, "key", "mark", "root", build)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".key.lock",
        ".other-mark.u8.0123abcd.part",
        "key-mark.json",
        "key-mark.u8",
        "mine.tmp",
    ]


def test_links_in_the_cache_are_not_followed(tmp_path):
    (tmp_path / "precious").write_bytes(b"mine")
    cache = tmp_path / "cache"
    cache.mkdir()
    for name in (f"key-mark.u8.{os.getpid()}.tmp", ".key.lock"):
        (cache / name).symlink_to(tmp_path / "precious")
    with pytest.raises(ValueError, match="cannot write decoded images"):
        open_or_build(cache, "key", "mark", "root", build)
    (cache / ".key.lock").unlink()
    open_or_build(cache, "key", "mark", "root", build)
    assert (tmp_path / "precious").read_bytes() == b"mine"


def test_a_failed_build_leaves_nothing_behind(tmp_path):
    with pytest.raises(AssertionError):
        open_or_build(tmp_path, "key", "mark", "root", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".key.lock"]


def test_another_source_is_built_meanwhile(tmp_path):
    """A slow build keeps nobody out but those who want the same."""

    def both(file):
        assert open_or_build(tmp_path, "other", "mark", "root", build).images.size == 2
        return build(file)

    assert open_or_build(tmp_path, "key", "mark", "root", both).images.size == 2


def test_only_older_states_of_the_same_source_are_dropped(tmp_path):
    open_or_build(tmp_path, "key", "old", "root", build)
    open_or_build(tmp_path, "key", "other", "another root", build)
    open_or_build(tmp_path, "key2", "old", "root", build)
    open_or_build(tmp_path, "key", "new", "root", build)
    assert {path.stem for path in tmp_path.glob("*.u8")} == {"key-other", "key2-old", "key-new"}


def test_a_broken_neighbour_does_no_harm(tmp_path):
    (tmp_path / "key-older.json").write_text("{")
    open_or_build(tmp_path, "key", "new", "root", build)
    assert (tmp_path / "key-older.json").exists()


def slow_build(file):
    count = int(os.environ["PMETA_TEST_SIZE"])
    with open(os.environ["PMETA_TEST_LOG"], "a") as log:
        log.write("built\n")
    for _ in range(count):
        file.write(b"\x07")
    return {**CONTENT, "shape": [count, 1, 1, 1]}


def open_in_child(folder, queue):
    cached = open_or_build(Path(folder), "key", "mark", "root", slow_build)
    queue.put(int(cached.images.astype(np.int64).sum()))


def test_processes_that_start_at_once_share_one_build(tmp_path, monkeypatch):
    monkeypatch.setenv("PMETA_TEST_SIZE", "300000")
    monkeypatch.setenv("PMETA_TEST_LOG", str(tmp_path / "log"))
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    children = [
        context.Process(target=open_in_child, args=(str(tmp_path / "cache"), queue))
        for _ in range(4)
    ]
    for child in children:
        child.start()
    sums = [queue.get(timeout=120) for _ in children]
    for child in children:
        child.join()
    assert sums == [7 * 300000] * 4
    assert (tmp_path / "log").read_text() == "built\n"
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {
        ".u8",
        ".json",
        ".lock",
    }


def test_where_the_copy_goes(tmp_path, monkeypatch):
    monkeypatch.delenv("PMETA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / "pmeta"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert cache_folder() == tmp_path / "me" / ".cache" / "pmeta"
    monkeypatch.setenv("PMETA_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    assert cache_folder(tmp_path / "given") == tmp_path / "given"


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ValueError,
        match=r"cannot write decoded images to .*file/x .*: set PMETA_CACHE to a folder\.",
    ):
        open_or_build(tmp_path / "file" / "x", "key", "mark", "root", build)


def test_the_json_is_small_and_readable(tmp_path):
    open_or_build(tmp_path, "key", "mark", "root", build)
    assert json.loads((tmp_path / "key-mark.json").read_text()) == {"root": "root", **CONTENT}
