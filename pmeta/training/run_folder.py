"""The run folder: settings, metrics and checkpoints, which survive a kill at any moment."""

import dataclasses
import hashlib
import json
import math
import os
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pmeta import zoo
from pmeta.base import shapes
from pmeta.base.errors import DivergedError
from pmeta.base.files import (
    cannot_write,
    lock,
    make_folder,
    open_without_links,
    write_atomically,
)
from pmeta.base.reading import converted, read, unlike
from pmeta.base.terminal import printable
from pmeta.training.upgrade import VERSION, upgraded

if TYPE_CHECKING:  # what reads JSON alone starts without torch
    from collections.abc import Callable

    from _typeshed import DataclassInstance
    from filelock import BaseFileLock
    from torch import Tensor

    from pmeta.method.learned import Meta
    from pmeta.training.settings import RunSettings

Config = TypeVar("Config", bound="DataclassInstance")
PREVIOUS = "previous"
"""The checkpoint before the last."""
CHECKSUM, INFO_CHECKSUM = "sha256", "info_sha256"
VERSIONED = ("torch", "numpy", "safetensors", "pillow")


ANOTHER = "give another folder"
MAY_DIFFER = ("out", "workers", "device", "tensorboard", "recompute")
"""Settings that a continued run may change: they change no result."""


def described(config: "RunSettings") -> dict[str, Any]:
    """Settings as config.json has them."""
    own = plain(dataclasses.asdict(config))
    return {"kind": config.kind, "settings_version": VERSION, **own}


class BusyError(ValueError):
    """Another process is at work in a run folder."""


class Checkpoint(NamedTuple):
    """Named tensors and what is known about them."""

    tensors: "dict[str, Tensor]"
    info: dict[str, Any]


def restored(meta: "Meta", tensors: "dict[str, Tensor]") -> "Meta":
    """`meta` with the weights, step sizes, attention and mask of a checkpoint.

    Raises ValueError where one is missing, has another shape, or holds what is no number."""
    from pmeta.method.outer import check_alike

    like = {**meta.parameters(), "mask": meta.mask}
    check_alike(tensors, like, "network and method")
    moved = {name: tensors[name].to(wanted.device) for name, wanted in like.items()}
    return dataclasses.replace(meta.with_parameters(moved), mask=moved["mask"].bool())


def write_checkpoint(path: Path, tensors: "dict[str, Tensor]", info: dict[str, Any]) -> None:
    """One file, tensors and info together, atomically.

    Raises DivergedError for numbers that are not finite: nothing can go on from them."""
    from safetensors.torch import save

    own = {key: t.detach().cpu().contiguous() for key, t in tensors.items()}
    for name, t in own.items():
        if not t.isfinite().all():
            raise DivergedError(
                f"a checkpoint holds finite numbers, and {name} has others, so that {path} is not "
                "written: the training diverged, lower its step sizes (--lr, --alpha-0)."
            )
    sums = {CHECKSUM: checksum(own), INFO_CHECKSUM: _checksum_of(info)}
    known = json.dumps({**info, **sums})  # one entry: more have no order
    write_atomically(path, save(own, {"info": known}))


def _checksum_of(info: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(info).encode()).hexdigest()


def checksum(tensors: "dict[str, Tensor]") -> str:
    """SHA-256 of names, types, shapes and numbers."""
    import torch

    digest = hashlib.sha256()
    for name, t in sorted(tensors.items()):
        digest.update(f"{name} {t.dtype} {tuple(t.shape)} ".encode())
        digest.update(t.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def read_checkpoint(path: Path, otherwise: str) -> Checkpoint:
    """The file that `write_checkpoint` wrote; `otherwise` says what to do with another one."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            info = read("its information", file.metadata()["info"], shapes.Info, otherwise)
            sums = (
                info.pop(CHECKSUM, None),
                info.pop(INFO_CHECKSUM, None),
            )  # None: of older releases
            if sums[0] not in (None, checksum(tensors)) or sums[1] not in (
                None,
                _checksum_of(info),
            ):
                raise ValueError("its checksum does not fit, a bit has changed")
            return Checkpoint(tensors, info)
    except (SafetensorError, TypeError, AttributeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is no checkpoint of ours ({error}): {otherwise}.") from None


def write_json(path: Path, value: Any) -> None:
    """JSON for people to read, atomically."""
    write_atomically(path, (json.dumps(plain(value), indent=2) + "\n").encode())


def plain(value: Any) -> Any:
    """The same without nan and infinity, which JSON does not have: None.

    >>> plain({"ci95": float("nan"), "alpha": [0.5]})
    {'ci95': None, 'alpha': [0.5]}
    """
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Run:
    """RUN/config.json, metrics.jsonl, last.safetensors, best.safetensors, and JSON beside the two
    for people to read."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._lock: BaseFileLock | None = None

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Let others train in the folder."""
        if self._lock:
            self._lock.release()
            self._lock = None

    def config(self) -> dict[str, Any]:
        """The settings of the run, and the versions it was started with under "versions".

        Raises ValueError where the folder is no run."""
        try:
            text = (self.path / "config.json").read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            named = f", or name one of {', '.join(zoo.names())}" if not self.path.exists() else ""
            raise ValueError(
                f"a run folder holds a config.json, {self.path} does not: train one with pmeta "
                f"train{named}."
            ) from None
        return self._upgraded(read(self._config, text, shapes.Config, ANOTHER))

    @property
    def _config(self) -> str:
        return f"the config.json in {self.path}"

    def _upgraded(self, config: dict[str, Any]) -> dict[str, Any]:
        try:
            return upgraded(config)
        except ValueError as error:
            raise unlike(self._config, error, ANOTHER) from None

    def settings(self, config: type[Config]) -> Config:
        """The settings of the run as the dataclass that they were written from."""
        return converted(self._config, self.config(), config, ANOTHER)

    def start(self, config: "RunSettings") -> None:
        """Begin the run, or make sure that the run which is there has the same settings.

        A run without a checkpoint, such as one whose data were not there, may begin anew with
        others."""
        self._check(config)  # a folder that is refused is left as it is
        self.lock()
        try:
            self._check(config)
            self._drop_parts()
            if not self.begun():
                versions = {name: version(name) for name in VERSIONED}
                versions["python"] = platform.python_version()
                write_json(self.path / "config.json", {**described(config), "versions": versions})
        except ValueError:
            self.close()
            raise

    def _check(self, config: "RunSettings") -> None:
        """Raise ValueError where the folder is one of something else, or of another run."""
        self._read_metrics()
        if (self.path / "config.json").exists():
            self.config()
        if self.begun():
            self.compare(config)

    def _drop_parts(self) -> None:
        """Remove what a killed process that held the lock was writing."""
        for name in ("config", "metrics", "last", PREVIOUS, "best"):
            for part in self.path.glob(f".{name}.*.part"):
                part.unlink()

    def begun(self) -> bool:
        """Whether there is a checkpoint."""
        names = ("last", PREVIOUS, "best")
        return any((self.path / f"{name}.safetensors").exists() for name in names)

    def compare(self, config: "RunSettings") -> None:
        """Raise ValueError unless the run that is there has these settings."""
        if not (self.path / "config.json").exists():
            raise ValueError(
                f"a checkpoint has the config.json of its run beside it, in {self.path} there is "
                "none: choose another --out."
            )
        old, new = self.config(), described(config)
        changed = [k for k, v in new.items() if k not in MAY_DIFFER and old.get(k) != v]
        if changed:
            was = ", ".join(f"{k}={old.get(k)!r} (now {new[k]!r})" for k in changed)
            raise ValueError(
                f"a run is continued with the settings it was started with; {self.path} has {was}: "
                "choose another --out."
            )

    def lock(self) -> None:
        """Make the folder and lock it for this process, until it ends or `close()`."""
        make_folder(self.path)
        place = self.path / ".lock"
        try:
            self._lock = lock(place, wait=False)
        except TimeoutError:
            raise BusyError(
                f"one process trains in a run folder, and another is at work in {self.path}."
            ) from None
        except OSError as error:
            raise cannot_write(place, error) from None

    def save(self, name: str, tensors: "dict[str, Tensor]", info: dict[str, Any]) -> None:
        """Write the checkpoint `name`: one file, tensors and info together, and the info once more
        as JSON. The last one before it is kept as `previous`."""
        if name == "last":
            self._keep_previous()
        write_checkpoint(self.path / f"{name}.safetensors", tensors, info)
        write_json(self.path / f"{name}.json", info)

    def _keep_previous(self) -> None:
        last, previous = (self.path / f"{name}.safetensors" for name in ("last", PREVIOUS))
        part = previous.with_name(f".{previous.name}.part")
        try:
            if last.exists():
                part.unlink(missing_ok=True)
                os.link(last, part)  # there is a last one at any moment
                os.replace(part, previous)
        except OSError:  # a file system without links
            write_atomically(previous, last.read_bytes())

    def newest(self, check: "Callable[[dict[str, Tensor]], None]") -> Checkpoint | None:
        """The last checkpoint that passes `check`, or the one before it, with a word; None where
        there is none."""
        try:
            found = self.load("last")
            if found is not None:
                check(found.tensors)
                return found
            why = "there is no last.safetensors"
        except ValueError as error:
            if not (self.path / f"{PREVIOUS}.safetensors").exists():
                raise
            why = str(error)
        found = self.load(PREVIOUS)
        if found is not None:
            check(found.tensors)
            word = f"going back to the checkpoint before the last: {printable(why)}"
            print(word, file=sys.stderr)
        return found

    def load(self, name: str) -> Checkpoint | None:
        """The checkpoint `name`, or None where there is none."""
        path = self.path / f"{name}.safetensors"
        return read_checkpoint(path, "remove it to begin anew") if path.exists() else None

    def best(self) -> Checkpoint:
        """The best model; raises ValueError where none is chosen yet."""
        found = self.load("best")
        if found is None:
            raise ValueError(
                f"{self.path} has no best model yet: it is chosen from the validations after "
                "--freeze-at; go on with pmeta train."
            )
        return found

    def log(self, record: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        try:
            with open_without_links(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
                file.write((json.dumps(plain(record)) + "\n").encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise cannot_write(path, error) from None

    def logged_lines(self, info: dict[str, Any]) -> int:
        """How many lines had been logged when a checkpoint was written; older releases kept their
        length in bytes."""
        if "lines" in info:
            return int(info["lines"])
        path = self.path / "metrics.jsonl"
        data = path.read_bytes() if path.exists() else b""
        return data[: info["metrics_length"]].count(b"\n")

    def rewind_metrics(self, lines: int) -> None:
        """Drop the lines that were logged after the checkpoint from which the run goes on.

        From here on the file is one of its own, even where it had another name elsewhere. Raises
        ValueError where there are fewer lines."""
        data = self._read_metrics()
        ends = [m.end() for m in re.finditer(b"\n", data)]
        if len(ends) < lines:
            raise ValueError(
                f"the checkpoint in {self.path} was written behind {lines} lines of metrics.jsonl, "
                f"which has {len(ends)}: put back the whole file, or choose another --out."
            )
        if data:
            write_atomically(self.path / "metrics.jsonl", data[: ends[lines - 1] if lines else 0])

    def _read_metrics(self) -> bytes:
        """What metrics.jsonl holds before lines are added; a link is refused."""
        path = self.path / "metrics.jsonl"
        try:
            with open_without_links(path, os.O_RDWR) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise cannot_write(path, error) from None

    def metrics(self) -> list[dict[str, Any]]:
        """All that was logged, oldest first, without a last line that is not whole."""
        path = self.path / "metrics.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        where, otherwise = f"of the metrics.jsonl in {self.path}", "leave this run out"
        return [
            read(f"line {i} {where}", line, shapes.Metrics, otherwise)
            for i, line in enumerate(lines, 1)
        ]

    def calibration(self) -> dict[str, Any] | None:
        """What `pmeta calibrate` found; None where it has not run."""
        path = self.path / "calibration.json"
        return self.json("calibration", shapes.Calibration) if path.exists() else None

    def json(self, name: str, shape: Any = dict[str, Any]) -> Any:
        """A JSON file of the run, which is there."""
        path = self.path / f"{name}.json"
        try:
            text = path.read_bytes()
        except OSError as error:
            raise ValueError(f"cannot read {path} ({error.strerror}): train again.") from None
        return read(path, text, shape)

    def tasks_done(self) -> int:
        """Tasks that the run was trained on, by last.json; 0 where that is missing or broken: going
        on writes it anew."""
        try:
            return self.json("last", shapes.Info)["tasks"]
        except (ValueError, KeyError):
            return 0


class Shipped(Run):
    """A model of the zoo, to be read as if it were the run that it comes from."""

    def config(self) -> dict[str, Any]:
        return upgraded(zoo.card(self.path.name)["config"])

    def calibration(self) -> dict[str, Any] | None:
        return zoo.card(self.path.name).get("calibration")

    def load(self, name: str) -> Checkpoint | None:
        return Run(zoo.FOLDER).load(self.path.name) if name == "best" else None


def open_run(path: str) -> Run:
    """A run folder, or a model of the zoo by its name, to be read; a folder of such a name is
    ./NAME."""
    if path in zoo.recognisers():
        raise ValueError(f"{path} ships as a file without its run: give a run folder of your own.")
    zoo.check(path)
    return Shipped(path) if path in zoo.names() else Run(path)
