"""Files written whole or not at all, also by two processes at once."""

import contextlib
import errno
import fcntl
import json
import os
from pathlib import Path
from typing import IO, Any


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

    Processes that write the same file take turns.
    """
    try:
        _check_place(path)
        part = path.with_name(f".{path.name}.part")
        with _open_alone(part) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.replace(part, path)
            except BaseException:  # Ctrl-C too
                with contextlib.suppress(OSError):
                    part.unlink()
                raise
    except OSError as error:
        raise cannot_write(path, error) from None


def _check_place(path: Path) -> None:
    """A file may be replaced; a folder, a pipe or a device may not."""
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if path.exists() and not path.is_file():
        raise OSError(errno.EEXIST, "it is there and no plain file")


def _open_alone(part: Path) -> IO[bytes]:
    """The empty file `part`, locked; waits while another process writes there."""
    while True:
        file = part.open("ab")
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(part)):
                file.truncate(0)
                return file
        file.close()  # the other process has put it in its place


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
    way_out = "make its folder" if error.errno == errno.ENOENT else "make room there"
    return ValueError(
        f"cannot write {path} ({error.strerror}): {way_out}, or choose another place."
    )


def check_folder_of(path: Path) -> None:
    """The folder of a file that is written after long work is there now."""
    if not path.parent.is_dir():
        error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        raise cannot_write(path, error)
