"""Hostile files for the engine under AddressSanitizer and UBSan, 64 and 32 bit.

    python benchmarks/fuzz.py [seconds [files]]

Mutated models (tests/device/c/fuzz.c) until so many seconds in all (half an hour), or so many files
(a million). 32 bit needs gcc-multilib. Ends with exit code 0 and the numbers of files when nothing
was found, else with the sanitizer's report.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta import device
from pmeta.base import native
from tests.helpers.device_models import case

HERE = Path(__file__).parent.parent
MODELS = (("mlp", 1), ("signal", 2), ("depthwise-12", 1), ("depthwise-12", 2), ("squeeze", 1))
"""And the size of micro-batches."""
FLAGS = ["-std=c99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def main() -> int:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 1800
    files = int(sys.argv[2]) if len(sys.argv) > 2 else 10**6
    runs = 2 * len(MODELS)
    total = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, (kind, batch) in enumerate(MODELS):
            exported = case(kind, "pmeta", seed=1, raw=kind == "depthwise-12", batch=batch).exported
            (folder / f"{i}").write_bytes(exported.data)
        for bits in (64, 32):
            program = build(folder, bits)
            for i, (kind, batch) in enumerate(MODELS):
                command = [program, folder / f"{i}", files // runs, seconds // runs, 1 + i]
                done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, check=False)
                print(
                    f"{bits} bit, {kind}, micro-batches of {batch}: {done.stdout.decode()}", end=""
                )
                if done.returncode:
                    return done.returncode
                total += int(re.match(r"\d+", done.stdout.decode())[0])  # type: ignore[index]
    print(f"{total:,} files in all, nothing found")
    return 0


def build(folder: Path, bits: int) -> Path:
    """The fuzzer with the engine in it."""
    program = folder / f"fuzz{bits}"
    files = [HERE / "tests" / "device" / "c" / "fuzz.c", *native.sources(device.ENGINE)]
    flags = [*FLAGS, f"-m{bits}", f"-I{device.ENGINE}", "-o", str(program)]
    subprocess.run([native.compiler(), *flags, *map(str, files), "-lm"], check=True)
    return program


if __name__ == "__main__":
    sys.exit(main())
