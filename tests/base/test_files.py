"""Files are written whole or not at all, and never through a link."""

import errno
import os
import secrets
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pmeta.base.files import check_can_write, lock, write_atomically


def error_of(function: Any, *args: Any) -> str:
    with pytest.raises(ValueError, match=r".+") as caught:
        function(*args)
    return str(caught.value)


def fail(*args: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, broken, fail)
    message = (
        f"cannot write {path} (No space left on device): make room there, or choose another place."
    )
    assert error_of(write_atomically, path, b"new") == message
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_ctrl_c_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    write_atomically(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"old")]


def test_only_a_plain_file_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, why in (
        (tmp_path / "pipe", "it is there and no plain file"),
        (tmp_path, "Is a directory"),
        (Path(), "Is a directory"),
    ):
        message = f"cannot write {path} ({why}): make room there, or choose another place."
        assert error_of(write_atomically, path, b"new") == message
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("name", [".file.part", ".file.0123abcd.part"])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_in_the_place_of_a_part_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, link: Any
) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    link(tmp_path / "precious", tmp_path / name)
    names = iter(["0123abcd"])
    monkeypatch.setattr(secrets, "token_hex", lambda count: next(names))
    if name == ".file.part":
        write_atomically(tmp_path / "file", b"new")
    else:
        assert "(File exists)" in error_of(write_atomically, tmp_path / "file", b"new")
    assert (tmp_path / "precious").read_bytes() == b"mine"
    assert (tmp_path / name).exists()


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / "file").symlink_to(tmp_path / "precious")
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "precious").read_bytes() == b"mine"
    assert (tmp_path / "file").read_bytes() == b"new"


def test_of_many_writers_the_last_leaves_a_whole_file(tmp_path: Path) -> None:
    path, texts = tmp_path / "file", [bytes([i]) * 100_000 for i in range(8)]
    writers = [threading.Thread(target=write_atomically, args=(path, text)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert path.read_bytes() in texts
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_writer_left_is_removed_later(tmp_path: Path) -> None:
    old, young, other = (
        tmp_path / f".{name}.part" for name in ("file.0123abcd", "file.01234567", "x.0123abcd")
    )
    for left in (old, young, other):
        left.write_bytes(b"cut")
    for left in (old, other):
        os.utime(left, (time.time() - 4000,) * 2)
    write_atomically(tmp_path / "file", b"new")
    assert {p.name for p in tmp_path.iterdir()} == {"file", young.name, other.name}


@pytest.mark.parametrize("broken", [False, True])
def test_a_look_whether_a_file_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    (tmp_path / "file").write_bytes(b"old")
    assert "make its folder" in error_of(check_can_write, tmp_path / "no" / "file")
    assert "Is a directory" in error_of(check_can_write, tmp_path)
    if broken:
        monkeypatch.setattr(os, "fsync", fail)
        assert "No space left on device" in error_of(check_can_write, tmp_path / "file")
    else:
        check_can_write(tmp_path / "file")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"old")]


def test_a_lock_keeps_others_out_and_the_file_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"mine")
    held = lock(tmp_path / "lock", wait=False)
    assert held is not None
    with pytest.raises(TimeoutError):
        lock(tmp_path / "lock", wait=False)
    held.release()
    again = lock(tmp_path / "lock", wait=True)
    assert again is not None
    again.release()
    assert (tmp_path / "lock").read_bytes() == b"mine"


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*args: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert lock(tmp_path / "lock", wait=False) is None
