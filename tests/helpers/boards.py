"""Emulated boards: build a folder of `pmeta firmware`, run it under QEMU, read what it prints."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np

TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm", "make")
INSTALL = "apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm make"
SEMIHOSTING = ("-semihosting-config", "enable=on,target=native")


class Printed(NamedTuple):
    """What the example has said."""

    text: str
    losses: list[float]
    classes: list[int]
    arena: int
    reached: int
    stack: int
    state: np.ndarray
    """The adapted weights, float32."""


def missing() -> list[str]:
    """Tools that are not here."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def build(folder: Path, *arguments: str, engine: Path | None = None) -> Path:
    """firmware.elf; the objects of an engine that was built before for the same core are taken."""
    if engine is not None:
        shutil.copytree(engine / "build" / "pmeta", folder / "build" / "pmeta")
        for path in (folder / "build" / "pmeta").iterdir():
            path.touch()
    command = ["make", "-s", "-j2", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "firmware.elf"


def emulate(elf: Path, machine: str, *options: str, seconds: int = 300) -> str:
    """All that the program prints; the exit code of QEMU says nothing and is not looked at."""
    screen = ("-nographic", "-monitor", "none", "-serial", "none")
    command = ["qemu-system-arm", "-M", machine, *screen, *SEMIHOSTING, *options]
    return subprocess.run(
        [*command, "-kernel", str(elf)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    ).stdout


def read(text: str) -> Printed:
    """The example's lines; it fails where the last one is not `done`."""
    assert text.endswith("\ndone\n"), text[-2000:]
    found = re.search(r"^arena (\d+) bytes, reached (\d+); stack (\d+) bytes$", text, re.M)
    assert found, text
    arena, reached, stack = map(int, found.groups())
    words = [word for line in re.findall(r"^state (.*)$", text, re.M) for word in line.split()]
    return Printed(
        text,
        [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+)$", text, re.M)],
        [int(best) for best in re.findall(r"^query \d+: class (\d+)", text, re.M)],
        arena,
        reached,
        stack,
        np.array([int(word, 16) for word in words], np.uint32).view(np.float32),
    )


def sections(elf: Path) -> tuple[int, int]:
    """Bytes of flash, with code and constants, and of RAM."""
    out = subprocess.run(
        ["arm-none-eabi-size", str(elf)], capture_output=True, text=True, check=True
    ).stdout
    text, data, bss = (int(n) for n in out.splitlines()[1].split()[:3])
    return text + data, data + bss
