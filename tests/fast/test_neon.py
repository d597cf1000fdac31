"""The kernels with NEON, emulated: the bits that x86 computes.

QEMU says nothing about how fast they are."""

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from pmeta.fast import conv_c, library, norm_pool_c
from tests.fast.test_library import everything

KERNELS = (
    "cv_winograd",
    "cv_winograd_weight",
    "cv_thin",
    "cv_thin_weight",
    "np_forward",
    "np_backward",
    "np_twice",
    "np_sums",
)
COMPILE = ("clang-14", "--target=aarch64-linux-gnu", "-fuse-ld=lld", "-static")
WARN = ("-pedantic", "-Wall", "-Wextra", "-Werror")

if any(shutil.which(tool) is None for tool in ("clang-14", "ld.lld-14", "qemu-aarch64")):
    pytest.skip(
        "needs apt-get install clang-14 lld-14 qemu-user libc6-dev-arm64-cross "
        "libgcc-12-dev-arm64-cross",
        allow_module_level=True,
    )


def content(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, Tensor):
        return ctypes.string_at(value.data_ptr(), value.untyped_storage().nbytes())
    return bytes(value)  # a number of ctypes


def packed(name: str, sizes: tuple[int, ...], arguments: list[bytes]) -> bytes:
    head = struct.pack("<7i", KERNELS.index(name), *sizes, len(arguments))
    return head + b"".join(struct.pack("<i", len(a)) + a for a in arguments)


def test_the_bits_are_those_of_x86(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, right = [], []

    def call(name: str, sizes: tuple[int, ...], *arguments: Any) -> None:
        asked.append(packed(name, sizes, [content(a) for a in arguments]))
        library.call(name, sizes, *arguments)
        results = arguments[:-1] if name.startswith("cv") else arguments  # the last is scratch
        right.append(([content(a) for a in results], sum(len(content(a)) for a in arguments)))

    for module in (conv_c, norm_pool_c):
        monkeypatch.setattr(module, "call", call)
    everything()
    program = tmp_path / "calls"
    sources = Path(library.__file__).parent / "c"
    files = [Path(__file__).parent / "c" / "calls.c", sources / "lanes.c", sources / "lanes_4.c"]
    subprocess.run(
        [*COMPILE, *library.FLAGS, *WARN, "-o", str(program), *map(str, files), "-lm"], check=True
    )
    found = subprocess.run(
        ["qemu-aarch64", str(program)], input=b"".join(asked), capture_output=True, check=True
    ).stdout
    at = 0
    for results, size in right:
        assert found[at : at + sum(map(len, results))] == b"".join(results)
        at += size
    assert at == len(found) > 0
    assert {struct.unpack_from("<i", a)[0] for a in asked} == set(range(len(KERNELS)))
