"""The C engine: where its sources are, and how to compile them where no wheel has."""

import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
FLAGS = ("-std=c99", "-O3", "-ffp-contract=fast", "-fPIC")


def find(folder: Path = SOURCES, name: str = "_engine") -> Path:
    """The shared library: the one in the wheel, or else one compiled from the sources once and kept in the temporary folder."""
    built = folder.parent / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    checkout = (folder.parent.parent / "pyproject.toml").exists()  # there the sources may be newer
    if built.exists() and not (checkout and built.stat().st_mtime < max(p.stat().st_mtime for p in sources(folder))):
        return built
    text = b"".join(p.read_bytes() for p in [*sources(folder), *sorted(folder.glob("*.h"))]) + " ".join(FLAGS).encode()
    target = Path(tempfile.gettempdir()) / f"pmeta{name}-{hashlib.sha256(text).hexdigest()[:16]}-{os.getuid()}.so"
    if not target.exists():
        compile_library(target, files=sources(folder))
    return target


def sources(folder: Path = SOURCES) -> list[Path]:
    return sorted(folder.glob("*.c"))


def compiler() -> str:
    """The machine's C compiler.

    Raises RuntimeError when there is none."""
    found = next((c for c in (os.environ.get("CC", ""), "cc", "gcc", "clang") if c and shutil.which(c)), None)
    if found is None:
        raise RuntimeError(
            "the engine is compiled from C and no compiler was found: install a wheel of p-meta, or gcc or clang."
        )
    return found


def compile_library(target: Path, flags: tuple[str, ...] = FLAGS, files: list[Path] | None = None) -> Path:
    """Compile the engine, or other C files, into a shared library at `target`."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        new = Path(folder) / target.name
        subprocess.run([compiler(), *flags, "-shared", "-o", str(new), *map(str, files or sources()), "-lm"], check=True)
        new.rename(target)
    return target
