"""The run folder: settings, metrics and checkpoints, each written so that a kill at any moment loses nothing."""

import fcntl
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

VERSIONED = ("torch", "numpy", "safetensors", "pillow")


class Checkpoint(NamedTuple):
    """Named tensors and what is known about them."""

    tensors: dict[str, Tensor]
    info: dict[str, Any]


def write_atomically(path: Path, data: bytes) -> None:
    """Put a whole file in place of the old one, or leave the old one."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def write_json(path: Path, value: Any) -> None:
    """JSON for people to read, atomically."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


class Run:
    """RUN/config.json, metrics.jsonl, last.safetensors, best.safetensors, and JSON beside the two for people to read."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._lock: IO[str] | None = None

    def config(self) -> dict[str, Any]:
        """The settings of the run, and the versions it was started with under "versions".

        Raises ValueError where the folder is no run."""
        try:
            return json.loads((self.path / "config.json").read_text())
        except FileNotFoundError:
            raise ValueError(f"a run folder holds a config.json, {self.path} does not: train one with pmeta train.") from None

    def start(self, config: dict[str, Any], may_differ: tuple[str, ...] = ()) -> None:
        """Begin the run, or make sure that the run which is there has the same settings."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise ValueError(f"one process trains in a run folder, and another is at work in {self.path}.") from None
        if not (self.path / "config.json").exists():
            versions = {name: version(name) for name in VERSIONED} | {"python": platform.python_version()}
            write_json(self.path / "config.json", {**config, "versions": versions})
            return
        old = self.config()
        changed = [k for k, v in config.items() if k not in may_differ and old.get(k) != v]
        if changed:
            was = ", ".join(f"{k}={old.get(k)!r} (now {config[k]!r})" for k in changed)
            raise ValueError(
                f"a run is continued with the settings it was started with; {self.path} has {was}: choose another --out."
            )

    def close(self) -> None:
        """Let others train in the folder."""
        if self._lock:
            self._lock.close()
            self._lock = None

    def save(self, name: str, tensors: dict[str, Tensor], info: dict[str, Any]) -> None:
        """Write the checkpoint `name`: one file, tensors and info together, and the info once more as JSON."""
        plain = {key: t.detach().cpu().contiguous() for key, t in tensors.items()}
        write_atomically(self.path / f"{name}.safetensors", save(plain, {"info": json.dumps(info)}))
        write_json(self.path / f"{name}.json", info)

    def load(self, name: str) -> Checkpoint | None:
        """The checkpoint `name`, or None where there is none."""
        path = self.path / f"{name}.safetensors"
        if not path.exists():
            return None
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            return Checkpoint({name: file.get_tensor(name) for name in names}, json.loads(file.metadata()["info"]))

    def log(self, record: dict[str, Any]) -> int:
        """Append a line to metrics.jsonl; returns its length, to be kept in the next checkpoint."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
            return file.tell()

    def rewind_metrics(self, length: int) -> None:
        """Drop the lines that were logged after the checkpoint from which the run goes on."""
        path = self.path / "metrics.jsonl"
        if path.exists():
            os.truncate(path, length)

    def metrics(self) -> list[dict[str, Any]]:
        """All that was logged, oldest first."""
        path = self.path / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
