"""The engine as WebAssembly: `python -m pmeta.web.build` compiles pmeta.wasm.

The file is kept in the repository, so that a page can be written where there is no clang. The
compiler of Debian 12 gives the same bytes every time; a test builds it again and compares, and
another sees from the stamp whether the C files have changed since."""

import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from pmeta.base import native
from pmeta.base.files import write_atomically
from pmeta.device import ENGINE

WASM = Path(__file__).parent / "pmeta.wasm"
STAMP = WASM.with_suffix(".wasm.sha256")
"""The hash of the C files and flags that WASM was made from."""
CLANG = "clang-14"
"""Of Debian 12: another release optimises otherwise and gives other bytes."""
COMPILE = (
    *("--target=wasm32-wasi", "-std=c99", "-O2", "-msimd128", "-mbulk-memory", "-fno-math-errno"),
    *("-ffp-contract=off", "-Wall", "-Wextra", "-Werror"),
    "-DPMETA_MOST_WORK=2e10f",  # half a minute for a sample: a page must not seem dead
)
LINK = (
    *("-nostartfiles", "-nodefaultlibs", "-Wl,--no-entry", "-Wl,--strip-all"),
    # A stack that overflows runs into address 0 and stops, not into the data.
    *("-Wl,--stack-first", "-Wl,-z,stack-size=65536", "-Wl,--export=__heap_base"),
)


def calls() -> list[str]:
    """The functions of pmeta.h, all of which JavaScript may call."""
    text = re.sub(r"/\*.*?\*/", "", (ENGINE / "pmeta.h").read_text(encoding="utf-8"), flags=re.S)
    return re.findall(r"^\w[\w *]*?\b(pmeta_\w+)\(", text, re.M)


def stamp() -> str:
    """A hash of all that decides the bytes of WASM, but the compiler."""
    files = [*native.sources(ENGINE), *sorted(ENGINE.glob("*.h"))]
    told = hashlib.sha256(" ".join((CLANG, *COMPILE, *LINK)).encode())
    for path in files:
        told.update(path.name.encode() + path.read_bytes())
    return told.hexdigest()


def build(target: Path) -> None:
    """Compile the engine into `target`.

    Raises CompileError where clang, lld or wasi-libc is missing."""
    if shutil.which(CLANG) is None:
        raise native.CompileError(
            f"WebAssembly is compiled by {CLANG}, which is not there: apt-get install clang-14 "
            "lld-14 wasi-libc on Debian 12."
        )
    exports = [f"-Wl,--export={name}" for name in calls()]
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / target.name
        names = [
            path.name for path in native.sources(ENGINE)
        ]  # the bytes do not know where they were made
        command = [CLANG, *COMPILE, *LINK, *exports, "-o", str(new), *names, "-lm", "-lc"]
        code = subprocess.run(command, check=False, cwd=ENGINE).returncode
        if code:
            raise native.CompileError(
                f"{CLANG} ended with {code}: apt-get install clang-14 lld-14 wasi-libc on Debian "
                "12."
            )
        write_atomically(target, new.read_bytes())


def main() -> None:
    build(WASM)
    write_atomically(STAMP, f"{stamp()}\n".encode())
    print(f"{WASM}: {WASM.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
