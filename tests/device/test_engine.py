"""The engine in C alone: gradients, memory safety, what it asks of the machine.

Each program fails by its exit code.
"""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from pmeta import device
from pmeta.base import native
from tests.device.test_constants import with_constants
from tests.device.test_memory_passes import forced
from tests.helpers.device_golden import among, check, reference
from tests.helpers.device_models import GOLDEN, Case, case
from tests.helpers.pictures import scenes

PROGRAMS = Path(__file__).parent / "c"
STRICT = (
    "-std=c99",
    "-pedantic",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-psabi",
    f"-I{device.ENGINE}",
)
FAST = ("-O3", "-ffp-contract=fast")
SANITIZED = ("-O2", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def build(name: str, folder: Path, flags: tuple[str, ...]) -> Path:
    """A test program linked with the engine, whose files are compiled once in a folder."""
    for source in native.sources(device.ENGINE):
        if not (folder / f"{source.stem}.o").exists():
            subprocess.run(
                [
                    native.compiler(),
                    *STRICT,
                    *flags,
                    "-c",
                    str(source),
                    "-o",
                    str(folder / f"{source.stem}.o"),
                ],
                check=True,
            )
    sources = [
        str(PROGRAMS / f"{name}.c"),
        *(str(folder / f"{source.stem}.o") for source in native.sources(device.ENGINE)),
    ]
    subprocess.run(
        [native.compiler(), *STRICT, *flags, "-o", str(folder / name), *sources, "-lm"], check=True
    )
    return folder / name


def run(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sanitized")
    return {
        name: build(name, folder, SANITIZED)
        for name in ("gradients", "operations", "replay", "fuzz")
    }


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fast")


@pytest.mark.parametrize("program", ["gradients", "operations"])
def test_gradients_against_finite_differences(program: str, fast: Path) -> None:
    assert run(build(program, fast, FAST)).endswith(" 0 failures\n")


@pytest.mark.parametrize("program", ["gradients", "operations"])
def test_gradients_under_sanitizers(program: str, sanitized: dict[str, Path]) -> None:
    assert run(sanitized[program]).endswith(" 0 failures\n")


def test_a_wrong_kernel_fails_the_program(tmp_path: Path) -> None:
    """The test of the test: a sign changed in one kernel is found and becomes an exit code."""
    source = (device.ENGINE / "norm.c").read_text()
    wrong = tmp_path / "norm.c"
    wrong.write_text(source.replace("wr * gy[i] - a", "wr * gy[i] + a"))
    assert wrong.read_text() != source
    others = [str(p) for p in native.sources(device.ENGINE) if p.name != "norm.c"]
    command = [
        native.compiler(),
        *STRICT,
        "-O1",
        "-o",
        str(tmp_path / "x"),
        str(PROGRAMS / "gradients.c"),
        str(wrong),
        *others,
        "-lm",
    ]
    subprocess.run(command, check=True)
    assert subprocess.run([str(tmp_path / "x")], capture_output=True, check=False).returncode == 1


def replay(c: Case, program: Path, folder: Path, classes: int = 5) -> tuple[bytes, np.ndarray]:
    """Adapted weights and scores of a program in C, on an arena full of NaN between guards."""
    files = {name: folder / name for name in ("model", "samples", "labels", "state", "scores")}
    files["model"].write_bytes(c.exported.data)
    files["samples"].write_bytes(np.ascontiguousarray(c.raw).tobytes())
    files["labels"].write_bytes(c.y.byte().numpy().tobytes())
    run(program, *files.values(), classes)
    return files["state"].read_bytes(), np.frombuffer(
        files["scores"].read_bytes(), np.float32
    ).reshape(len(c.y), -1)


@pytest.mark.parametrize(("kind", "method", "batch"), GOLDEN)
def test_golden_under_sanitizers(
    kind: str, method: str, batch: int, sanitized: dict[str, Path], tmp_path: Path
) -> None:
    """Weights and scores equal PyTorch's, and neither sanitizers nor guards found anything."""
    raw = kind in ("4conv", "depthwise", "norm")
    c = case(kind, method, seed=21, raw=raw, n=3, batch=batch)
    if raw:
        c = c.on(scenes(3, c.raw.shape[-1], np.random.default_rng(21)))
    state, scores = replay(c, sanitized["replay"], tmp_path)
    model = c.device()
    model.restore(state)
    check(c, model.weights())
    w = {name: torch.from_numpy(w) for name, w in reference(c).items()}
    with torch.no_grad():
        want = torch.func.functional_call(c.net.model, w, (c.x,)).numpy()
    np.testing.assert_allclose(scores, want, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("kind", ["4conv", "mlp"])
def test_fewer_classes_under_sanitizers(
    kind: str, sanitized: dict[str, Path], tmp_path: Path
) -> None:
    c = case(kind, "pmeta", seed=24, n=3)
    model = c.device()
    model.restore(replay(c, sanitized["replay"], tmp_path, classes=3)[0])
    check(c, model.weights(), among(3))


HOSTILE = [("depthwise-12", 1), ("depthwise-12", 2), ("signal", 2), ("mlp", 1), ("squeeze-v3", 1)]
"""Models that the fuzzer changes, and the size of their micro-batches."""
HOSTILE_FILES = (1000, 20, 1)
"""Files of each, seconds at most, seed."""


def hostile(kind: str, batch: int) -> bytes:
    return case(kind, "pmeta", seed=22, raw=kind == "depthwise-12", batch=batch).exported.data


@pytest.mark.parametrize(("kind", "batch"), HOSTILE)
def test_hostile_files(kind: str, batch: int, sanitized: dict[str, Path], tmp_path: Path) -> None:
    """A short run of the fuzzer; the long one is in benchmarks/fuzz.py."""
    (tmp_path / "model").write_bytes(hostile(kind, batch))
    found = run(sanitized["fuzz"], tmp_path / "model", *HOSTILE_FILES).split()
    files, opened, ran = int(found[0]), int(found[2]), int(found[4])
    assert files > 100
    assert files > opened > 0
    assert ran > 0


def small_file(constants: str, monkeypatch: pytest.MonkeyPatch) -> Case:
    """4Conv streamed below an updated conv, with packed constants."""
    c = case("4conv", "pmeta", seed=23, raw=True, n=3, live=["conv2", "norm3", "fc"])
    found = forced(lambda layout: layout.stream == (2, 2), monkeypatch)
    small = with_constants(c, constants)
    assert found
    return small


@pytest.mark.parametrize("constants", ["float16", "int8"])
def test_small_files_under_sanitizers(
    constants: str, sanitized: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = small_file(constants, monkeypatch)
    model = c.device()
    model.restore(replay(c, sanitized["replay"], tmp_path)[0])
    check(c, model.weights())
    found = run(sanitized["fuzz"], tmp_path / "model", 300, 20, 1).split()
    files, opened, ran = int(found[0]), int(found[2]), int(found[4])
    assert files > opened > 0
    assert ran > 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("method", ["pmeta", "maml"])
def test_the_operating_system_counts_what_was_planned(
    method: str, fast: Path, tmp_path: Path
) -> None:
    """A process with the model in read-only memory: arena, weights, sample, stack, to 10 %."""
    c = case(
        "4conv-84",
        method,
        seed=23,
        raw=True,
        n=2,
        live=("conv3", "conv4", "fc") if method == "pmeta" else None,
    )
    for name, data in (
        ("model", c.exported.data),
        ("samples", c.raw.tobytes()),
        ("labels", c.y.byte().numpy().tobytes()),
    ):
        (tmp_path / name).write_bytes(data)
    command = [
        build("memory", fast, FAST),
        *(tmp_path / name for name in ("model", "samples", "labels")),
    ]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    if done.returncode == 77:
        pytest.skip("the limit on locked memory is too low to make code resident first")
    assert done.returncode == 0, f"exit code {done.returncode}"
    measured, arena, file, sample, stack = map(int, done.stdout.split())
    assert (arena, file) == (c.exported.arena_bytes, len(c.exported.data))
    promised = arena + file + sample + stack
    assert abs(measured - promised) <= 0.1 * promised
    assert stack < 8192


def test_the_engine_asks_for_nothing_but_string_and_math(tmp_path: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("needs nm")
    library = native.compile_library(
        tmp_path / "engine.so", native.sources(device.ENGINE), ("-std=c99", "-O1", "-fPIC")
    )
    undefined = {
        line.split()[-1].split("@")[0]
        for line in run("nm", "-D", "--undefined-only", library).splitlines()
    }
    hidden = {name for name in undefined if name.startswith("_")}  # the dynamic loader's own
    assert undefined - hidden <= {"memcpy", "memmove", "memset", "memcmp", "expf", "logf", "sqrtf"}


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-Wconversion", "-Wno-sign-conversion")])
def test_strict_c99_without_a_warning(
    compiler: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    for source in native.sources(device.ENGINE):
        subprocess.run(
            [compiler, *STRICT, *flags, "-c", str(source), "-o", str(tmp_path / "x.o")], check=True
        )


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x87")
def test_processors_that_compute_in_more_than_float(tmp_path: Path) -> None:
    run(
        native.compiler(),
        *STRICT,
        "-mfpmath=387",
        "-O2",
        "-c",
        device.ENGINE / "tile.c",
        "-o",
        tmp_path / "x.o",
    )


def test_the_wheel_compiles_every_file() -> None:
    settings = tomllib.loads((device.ENGINE.parents[2] / "pyproject.toml").read_text())["tool"][
        "setuptools"
    ]
    (extension,) = [e for e in settings["ext-modules"] if e["name"] == "pmeta.device._engine"]
    assert sorted(extension["sources"]) == [
        f"pmeta/device/engine/{p.name}" for p in native.sources(device.ENGINE)
    ]
    assert sorted(extension["depends"]) == [
        f"pmeta/device/engine/{p.name}" for p in sorted(device.ENGINE.glob("*.h"))
    ]
    assert set(extension["extra-compile-args"]) <= set(native.FLAGS)


def test_the_header_is_good_for_cpp(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")
    (tmp_path / "x.cpp").write_text(
        '#include "pmeta.h"\n'
        "int main() { pmeta_model m; return pmeta_open(&m, nullptr, 0) == PMETA_OK; }\n"
    )
    subprocess.run(
        [
            "g++",
            "-Wall",
            "-Werror",
            f"-I{device.ENGINE}",
            "-c",
            str(tmp_path / "x.cpp"),
            "-o",
            str(tmp_path / "x.o"),
        ],
        check=True,
    )


def test_no_compiler_and_a_broken_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(
        native.CompileError, match="and false ended with 1: set CC to another compiler"
    ):
        native.compile_library(tmp_path / "x.so", native.sources(device.ENGINE))
    monkeypatch.setenv("CC", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        native.CompileError,
        match="no compiler was found: install a wheel of p-meta, or gcc or clang",
    ):
        native.compile_library(tmp_path / "x.so", native.sources(device.ENGINE))
    assert list(tmp_path.iterdir()) == []


def test_a_built_library_that_is_older_than_a_header_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / "package" / "device" / "engine"
    folder.mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    (folder / "one.c").write_text('#include "one.h"\nint one(void) { return ONE; }\n')
    (folder / "one.h").write_text("#define ONE 1\n")
    built = folder.parent / f"_engine{sysconfig.get_config_var('EXT_SUFFIX')}"
    built.touch()
    assert native.find(folder, "_engine") == built
    later = built.stat().st_mtime + 5
    os.utime(folder / "one.h", (later, later))
    assert native.find(folder, "_engine") != built


def test_a_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "engine.so").write_bytes(b"no library")
    with pytest.raises(
        native.CompileError, match=r"^cannot load the engine \(.*\): set TMPDIR to a folder"
    ):
        device.library(tmp_path / "engine.so")


def test_a_library_that_another_user_left_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "one.c").write_text("int one(void) { return 1; }\n")
    own = native.find(tmp_path / "sources", "_engine")
    assert native.find(tmp_path / "sources", "_engine") == own
    me = os.getuid()
    own.rename(str(own).replace(f"-{me}.so", f"-{me + 1}.so"))
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    with pytest.raises(
        native.CompileError, match="is another user's: set TMPDIR to a folder of yours"
    ):
        native.find(tmp_path / "sources", "_engine")


@pytest.mark.parametrize(("kind", "batch"), [("signal", 2), ("mlp", 1), ("signal", 1)])
def test_hostile_files_on_32_bit(kind: str, batch: int, tmp_path: Path) -> None:
    """Offsets of 30 bits wrap around there."""
    (tmp_path / "x.c").write_text("int main(void) { return 0; }\n")
    flags = (*SANITIZED, "-m32", f"-I{device.ENGINE}", "-w")
    command = [native.compiler(), *flags, "-o", str(tmp_path / "fuzz")]
    if subprocess.run([*command, str(tmp_path / "x.c")], capture_output=True).returncode:
        pytest.skip("no compiler for 32 bit here (gcc-multilib)")
    files = [PROGRAMS / "fuzz.c", *native.sources(device.ENGINE)]
    subprocess.run([*command, *map(str, files), "-lm"], check=True)
    (tmp_path / "model").write_bytes(case(kind, "pmeta", seed=22, batch=batch).exported.data)
    assert run(tmp_path / "fuzz", tmp_path / "model", 500, 20, 8).endswith("nothing found\n")
