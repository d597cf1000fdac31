"""Hostile files for the engine under AddressSanitizer and UBSan, 64 and 32 bit.

    python benchmarks/fuzz.py [seconds [files]]

Mutated models (tests/device/c/fuzz.c) for so many seconds (half an hour), or until there were so
many files (a million) of each width; 64 and 32 bit run at the same time. 32 bit needs gcc-multilib.
Ends with exit code 0 and the numbers of files when nothing was found, else with the sanitizer's
report.
"""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta import device
from pmeta.base import native
from tests.device.test_constants import with_constants
from tests.helpers.device_models import case

HERE = Path(__file__).parent.parent
MODELS = (
    *(("mlp", 1, "float32"), ("signal", 2, "float32"), ("squeeze", 1, "float32")),
    *(("depthwise-12", 1, "float32"), ("depthwise-12", 2, "float32")),
    *(("mlp", 1, "int8"), ("depthwise-12", 1, "float16")),
)
"""The size of micro-batches, and the type of the constants."""
FLAGS = ["-std=c99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


class Count(NamedTuple):
    """Of files: all, those that opened, those that ran."""

    files: int
    opened: int
    ran: int


def main() -> int:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 1800
    files = int(sys.argv[2]) if len(sys.argv) > 2 else 10**6
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor() as pool:
        folder = Path(name)
        for i, model in enumerate(MODELS):
            (folder / f"{i}").write_bytes(written(*model))
        found = list(pool.map(lambda bits: fuzzed(folder, bits, seconds, files), (64, 32)))
    for bits, counts in zip((64, 32), found, strict=True):
        total = Count(*(sum(column) for column in zip(*counts, strict=True)))
        print(
            f"{bits} bit: {total.files:,} files, {total.opened:,} opened, {total.ran:,} ran, "
            f"{'nothing found' if len(counts) == len(MODELS) else 'STOPPED'}"
        )
    return 0 if all(len(counts) == len(MODELS) for counts in found) else 1


def written(kind: str, batch: int, constants: str) -> bytes:
    """A file whose lowest and last layers are updated where the others are packed."""
    c = case(kind, "pmeta", seed=1, raw=kind == "depthwise-12", batch=batch)
    if constants == "float32":
        return c.exported.data
    names = [layer.name for layer in c.net.layers]
    live = [names[0], names[-1]]
    c = case(kind, "pmeta", seed=1, raw=kind == "depthwise-12", batch=batch, live=live)
    return with_constants(c, constants).exported.data


def fuzzed(folder: Path, bits: int, seconds: int, files: int) -> list[Count]:
    """What came of each model, up to the first with which something was found."""
    program = build(folder, bits)
    counts: list[Count] = []
    for i, (kind, batch, constants) in enumerate(MODELS):
        share = [files // len(MODELS), seconds // len(MODELS), 1 + i]
        command = [str(program), str(folder / f"{i}"), *map(str, share)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        name = f"{bits} bit, {kind}, micro-batches of {batch}, {constants}"
        print(f"{name}: {done.stdout}", end="", flush=True)
        if done.returncode:
            return counts
        words = done.stdout.split()
        counts.append(Count(int(words[0]), int(words[2]), int(words[4])))
    return counts


def build(folder: Path, bits: int) -> Path:
    """The fuzzer with the engine in it."""
    program = folder / f"fuzz{bits}"
    files = [HERE / "tests" / "device" / "c" / "fuzz.c", *native.sources(device.ENGINE)]
    flags = [*FLAGS, f"-m{bits}", f"-I{device.ENGINE}", "-o", str(program)]
    subprocess.run([native.compiler(), *flags, *map(str, files), "-lm"], check=True)
    return program


if __name__ == "__main__":
    sys.exit(main())
