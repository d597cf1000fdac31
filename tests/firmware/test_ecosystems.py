"""The folders of other build systems, compiled as far as is possible without these systems: their
build files by CMake, their sources by the compilers for the part, against stubs. Warnings are
errors."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from pmeta import device
from pmeta.base import native
from pmeta.device import DeviceModel
from pmeta.firmware.example import patterns
from pmeta.firmware.folder import write_folder
from pmeta.firmware.targets import TARGETS
from tests.helpers.device_models import case

STUBS = Path(__file__).parent / "stubs"
GCC, GXX = "arm-none-eabi-gcc", "arm-none-eabi-g++"
M4F = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-psabi")

if shutil.which(GCC) is None:
    pytest.skip("needs apt-get install gcc-arm-none-eabi", allow_module_level=True)


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def written(folder: Path, target: str) -> Path:
    data = case("signal", "pmeta", seed=71).exported.data
    write_folder(folder, data, "signal", patterns(DeviceModel(data)), TARGETS[target])
    return folder


CORES = {
    "M0+": "-mcpu=cortex-m0plus -mfloat-abi=soft",
    "M33": "-mcpu=cortex-m33 -mfloat-abi=hard -mfpu=fpv5-sp-d16",
}


@pytest.mark.parametrize("core", CORES)
def test_cores_that_are_not_emulated_compile(core: str, tmp_path: Path) -> None:
    """Strict C99 without a warning, and no variables of the engine's own."""
    flags = (*CORES[core].split(), "-mthumb", "-std=c99", "-pedantic", *STRICT, "-O1")
    for source in native.sources(device.ENGINE):
        run(GCC, *flags, "-c", source, "-o", tmp_path / f"{source.stem}.o")
    sizes = run("arm-none-eabi-size", "-t", *sorted(tmp_path.glob("*.o"))).splitlines()[-1]
    assert sizes.split()[1:3] == ["0", "0"]


@pytest.mark.parametrize(("target", "place"), [("arduino", "src"), ("platformio", "src")])
def test_arduino_and_platformio_compile_with_a_stub(
    target: str, place: str, tmp_path: Path
) -> None:
    folder = written(tmp_path / "x", target)
    paths = [f"-I{folder / place}", f"-I{folder / 'lib/pmeta/src'}", f"-I{STUBS}"]
    for source in sorted(folder.rglob("*.c")):
        run(GCC, *M4F, "-std=gnu11", *STRICT, "-fsyntax-only", *paths, source)
    for source in [*folder.rglob("*.cpp"), *folder.rglob("*.ino")]:
        flags = (*M4F, "-std=gnu++14", *STRICT, "-fsyntax-only", *paths)
        run(GXX, *flags, "-include", "Arduino.h", "-x", "c++", source)


def quick_compiler(folder: Path) -> Path:
    """The compiler for the part, with warnings as errors and without the time that -O3 takes."""
    path = folder / "cc"
    path.write_text(f'#!/bin/sh\nexec {GCC} {" ".join((*M4F, *STRICT))} "$@" -O0\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("target", ["esp-idf", "zephyr"])
def test_esp_idf_and_zephyr_build_with_stubs(target: str, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("needs apt-get install cmake")
    folder, out = written(tmp_path / "x", target), tmp_path / "out"
    settings = (
        f"-DCMAKE_C_COMPILER={quick_compiler(tmp_path)}",
        *("-DCMAKE_SYSTEM_NAME=Generic", "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY"),
        f"-DZephyr_DIR={STUBS / 'cmake'}",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    )
    places = {"PMETA_STUBS": str(STUBS), "IDF_PATH": str(STUBS / "idf")}
    run("cmake", "-S", folder, "-B", out, *settings, **places)
    run("cmake", "--build", out, "-j2", **places)
    assert len(list(out.rglob("*.a"))) == 2
    commands = (out / "compile_commands.json").read_text()
    assert commands.count("-ffp-contract=fast") >= len(native.sources(device.ENGINE))
