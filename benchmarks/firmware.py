"""What a model takes of a Cortex-M: code, memory, stack, and instructions by layer, from QEMU.

    python benchmarks/firmware.py MODEL ... [--cores m4f m7 m55] [--engine FOLDER]

MODEL is a file that `pmeta export` wrote, or a model of the zoo. Each is adapted to one support
sample under `-icount shift=0`, where a nanosecond of the emulated clock is one instruction. Counts
are exact and the same on every machine; they are no times: a Cortex-M4F takes one to three cycles
for an instruction. The Cortex-M4F is QEMU's mps2-an386, which has room for every model.

It prints a row for each model and core: bytes of code (flash without model and samples), arena,
stack at its deepest, million instructions to open the model, for a sample in a step (mean over the
steps), for the update of a step, to infer, and for all steps on five samples. `--engine` takes
the C files of another version, to compare. Needs gcc-arm-none-eabi, libnewlib-arm-none-eabi and
qemu-system-arm.
"""

import re
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import tyro

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta import zoo
from pmeta.device import DeviceModel
from pmeta.firmware.example import patterns
from pmeta.firmware.folder import write_folder
from pmeta.firmware.targets import TARGETS, Target
from tests.helpers import boards

PROFILE = Path(__file__).parent / "firmware_c" / "profile.c"
MB = 1 << 20
CORES = {
    "m4f": replace(
        TARGETS["qemu-m4f"],
        machine="mps2-an386",
        hz=25_000_000,
        vectors=0,
        flash=0x400,
        flash_bytes=4 * MB - 1024,
        ram_bytes=4 * MB,
    ),
    "m7": TARGETS["qemu-m7"],
    "m55": TARGETS["qemu-m55"],
}
SUPPORT = 5


@dataclass(frozen=True)
class FirmwareBenchmark:
    """Count the instructions of models on emulated Cortex-M cores."""

    models: tyro.conf.Positional[tuple[str, ...]]
    """Files that `pmeta export` wrote, or models of the zoo."""
    cores: tuple[str, ...] = tuple(CORES)
    """Of m4f, m7 and m55."""
    engine: str = ""
    """Folder of the C files of another version."""


class Measured(NamedTuple):
    """Of one model on one core; millions of instructions."""

    code: int
    arena: int
    stack: int
    open: float
    feeds: list[float]
    steps: list[float]
    infer: float

    @property
    def adaptation(self) -> float:
        return SUPPORT * sum(self.feeds) + sum(self.steps)


def measure(data: bytes, target: Target, engine: str = "") -> Measured:
    """Build, run and read one model on one core."""
    model = DeviceModel(data)
    samples = patterns(model)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "x"
        write_folder(folder, data, "model", samples, target)
        shutil.copy(PROFILE, folder / "example.c")
        for path in Path(engine).glob("*.[ch]") if engine else ():
            shutil.copy(path, folder / "pmeta")
        elf = boards.build(folder)
        code = boards.sections(elf)[0] - len(data) - samples.bytes
        text = boards.emulate(elf, target.machine, "-icount", "shift=0", seconds=3600)
    if not text.endswith("\ndone\n"):
        raise SystemExit(f"the program on {target.machine} failed:\n{text[-2000:]}")
    return read(text, code, model.arena_bytes, 1e3 / target.hz)


def read(text: str, code: int, arena: int, scale: float) -> Measured:
    """The lines of profile.c; `scale` makes ticks to million instructions."""

    def numbers(name: str) -> list[float]:
        return [int(n) * scale for n in re.findall(rf"^{name} (\d+)$", text, re.M)]

    (stack,) = re.findall(r"^stack (\d+)$", text, re.M)
    return Measured(
        code,
        arena,
        int(stack),
        numbers("open")[0],
        numbers("feed"),
        numbers("step"),
        numbers("infer")[0],
    )


def main(config: FirmwareBenchmark) -> None:
    """Print the table."""
    print("| model | core | code | arena | stack | open | sample | step | infer | 5 samples |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in config.models:
        path = zoo.find(name) if name in (*zoo.names(), *zoo.recognisers()) else Path(name)
        data = path.read_bytes()
        for core in config.cores:
            m = measure(data, CORES[core], config.engine)
            feed, step = sum(m.feeds) / len(m.feeds), sum(m.steps) / len(m.steps)
            print(
                f"| {path.stem} | {core} | {m.code:,} | {m.arena:,} | {m.stack:,} | {m.open:.1f} | "
                f"{feed:.2f} | {step:.3f} | {m.infer:.2f} | {m.adaptation:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main(tyro.cli(FirmwareBenchmark, description=__doc__))
