"""C libraries: find the one that the wheel brings, or compile it once where there is none."""

import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

FLAGS = ("-std=c99", "-O3", "-ffp-contract=fast", "-fPIC")


class CompileError(ValueError):
    """There is no compiled library, and none can be made."""


def find(folder: Path, name: str, flags: tuple[str, ...] = FLAGS) -> Path:
    """The shared library of the C files in `folder`: `name` beside it, or compiled once and kept in
    the temporary folder."""
    built = folder.parent / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    files = [*sources(folder), *sorted(folder.glob("*.h"))]
    checkout = (folder.parents[2] / "pyproject.toml").exists()  # there the sources may be newer
    if built.exists() and not (
        checkout and built.stat().st_mtime < max(p.stat().st_mtime for p in files)
    ):
        return built
    text = b"".join(p.read_bytes() for p in files) + " ".join(flags).encode()
    target = (
        Path(tempfile.gettempdir())
        / f"pmeta{name}-{hashlib.sha256(text).hexdigest()[:16]}-{os.getuid()}.so"
    )
    if not target.exists():
        compile_library(target, sources(folder), flags)
    # the temporary folder is everybody's, and what is loaded runs
    if target.lstat().st_uid != os.getuid():
        raise CompileError(
            f"the compiled engine must be your own, {target} is another user's: set TMPDIR to a "
            "folder of yours."
        )
    return target


def sources(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.c"))


def compiler() -> str:
    """The machine's C compiler.

    Raises CompileError when there is none."""
    found = next(
        (c for c in (os.environ.get("CC", ""), "cc", "gcc", "clang") if c and shutil.which(c)), None
    )
    if found is None:
        raise CompileError(
            "the engine is compiled from C and no compiler was found: install a wheel of p-meta, "
            "or gcc or clang."
        )
    return found


def compile_library(target: Path, files: list[Path], flags: tuple[str, ...] = FLAGS) -> Path:
    """Compile C files into a shared library at `target`.

    Raises CompileError when the compiler does not."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        new = Path(folder) / target.name
        command = [compiler(), *flags, "-shared", "-o", str(new), *map(str, files), "-lm"]
        code = subprocess.run(command, check=False).returncode
        if code:
            raise CompileError(
                f"the engine is compiled from C, and {command[0]} ended with {code}: set CC to "
                "another compiler."
            )
        new.rename(target)
    return target
