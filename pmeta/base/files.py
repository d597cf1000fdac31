"""Files written whole or not at all, also by two processes at once."""

import contextlib
import errno
import glob
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from filelock import BaseFileLock

KEPT_SECONDS = 3600
"""For how long an unfinished file may belong to a process that is still writing."""
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def cache_folder(given: Path | None = None) -> Path:
    """Where what can be made again goes: the folder given, $PMETA_CACHE, or the user's cache folder
    ($XDG_CACHE_HOME/pmeta, ~/.cache/pmeta). Never into the data."""
    if given is not None:
        return Path(given)
    if os.environ.get("PMETA_CACHE"):
        return Path(os.environ["PMETA_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pmeta"


def write_atomically(path: Path, data: bytes) -> None:
    """Put a whole file in place of the old one, or leave the old one.

    Of processes that write the same file the last wins, with a whole file."""
    with _part_with(path, data) as part:
        os.replace(part, path)
        drop_left_parts(path)


def check_can_write(path: Path) -> None:
    """Raise ValueError now where a file could not be written after long work: its folder is not
    there, is not to be written, or is full."""
    with _part_with(path, bytes(4096)):
        pass


@contextlib.contextmanager
def _part_with(path: Path, data: bytes) -> Iterator[Path]:
    """An unfinished file for `path`, on the disk; it is removed unless it is put in its place."""
    try:
        _check_place(path)
        part = new_part(path)
        try:
            with part.open("r+b") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield part
        finally:  # after Ctrl-C too
            with contextlib.suppress(OSError):
                part.unlink()
    except OSError as error:
        raise cannot_write(path, error) from None


def _check_place(path: Path) -> None:
    """A file may be replaced; a folder, a pipe or a device may not."""
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if path.exists() and not path.is_file():
        raise no_plain_file()


def no_plain_file() -> OSError:
    """The error of a name that a pipe or a device has."""
    return OSError(errno.EEXIST, "it is there and no plain file")


def new_part(path: Path) -> Path:
    """A new empty file beside `path`, under a name that was free: nothing that lies there, such as
    a link to another file, is opened."""
    from secrets import token_hex  # 5 ms, which what only reads does without

    part = path.with_name(f".{path.name}.{token_hex(4)}.part")
    part.open("xb").close()
    return part


def drop_left_parts(path: Path) -> None:
    """Remove what writers of `path` left that were killed more than an hour ago."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.part"):
        with contextlib.suppress(OSError):
            if part.lstat().st_mtime < time.time() - KEPT_SECONDS:
                part.unlink()


def open_without_links(path: Path, flags: int) -> IO[bytes]:
    """A plain file that is written in place, opened as `flags` of os.open say; a link is
    refused."""
    opened = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    file = os.fdopen(opened, "ab" if flags & os.O_APPEND else "r+b", 0)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        file.close()
        raise no_plain_file()
    return file


def lock(path: Path, wait: bool) -> "BaseFileLock | None":
    """Hold the file `path` for this process until `release()`; None where the file system has no
    locks.

    A file of that name is left as it is, and a link is refused. Raises TimeoutError at once where
    another process holds it, unless `wait`."""
    from filelock import FileLock  # 25 ms, which most commands do without

    held = FileLock(path, thread_local=False, fallback_to_soft=False)
    try:
        held.acquire(blocking=wait)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        raise
    return held


def read_json(text: str | bytes) -> Any:
    """What a JSON text holds.

    Raises ValueError for what is none, and for what nests or counts beyond all measure."""
    try:
        found = json.loads(text)
        _check_numbers(found)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    return found


def _check_numbers(value: Any) -> None:
    """Whole numbers fit in 64 bits."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _check_numbers(part)
    elif type(value) is int and not -(2**63) <= value < 2**64:
        raise ValueError("a number in it has more than 64 bits")


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from None


def cannot_write(path: Path, error: OSError) -> ValueError:
    """The error that tells the user so."""
    why, way_out = error.strerror, "make room there"
    if error.errno == errno.ENOENT:
        way_out = "make its folder"
    if error.errno == errno.ELOOP:
        why, way_out = "it is a link, which may lead anywhere", "remove it"
    return ValueError(f"cannot write {path} ({why}): {way_out}, or choose another place.")
