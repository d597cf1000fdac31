"""pmeta.wasm is what the C files give, byte by byte, and nothing more than the calls of pmeta.h."""

import re
import shutil
from pathlib import Path

import pytest

from pmeta.base.native import CompileError
from pmeta.device import ENGINE
from pmeta.web import build
from tests.helpers import node

JS = (build.WASM.parent / "js/pmeta.js").read_text(encoding="utf-8")
HEADER = (ENGINE / "pmeta.h").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which(build.CLANG) is None, reason=f"no {build.CLANG}")
def test_the_file_that_ships_is_built_from_these_sources(tmp_path: Path) -> None:
    build.build(tmp_path / "again.wasm")
    assert (tmp_path / "again.wasm").read_bytes() == build.WASM.read_bytes(), (
        "run python -m pmeta.web.build and commit pmeta.wasm"
    )


def test_without_the_compiler_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompileError, match="apt-get install clang-14 lld-14 wasi-libc"):
        build.build(tmp_path / "x.wasm")


def test_every_call_of_the_header_is_found() -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
    declared = re.findall(r"\b(pmeta_\w+)\([^;{}]*\);", text)
    assert build.calls() == declared
    assert {"pmeta_open", "pmeta_feed", "pmeta_crc32", "pmeta_message"} <= set(declared)


@pytest.mark.skipif(node.NODE is None, reason="no node")
def test_it_exports_these_calls_and_asks_for_nothing() -> None:
    found = node.run(
        """const fs = await import("node:fs");
        const module = await WebAssembly.compile(fs.readFileSync(wasm));
        const names = WebAssembly.Module.exports(module).map((e) => e.name);
        return [names, WebAssembly.Module.imports(module)];""",
        wasm=build.WASM,
    )
    assert sorted(found[0]) == sorted([*build.calls(), "memory", "__heap_base"])
    assert found[1] == []


def test_javascript_reads_the_fields_in_the_order_of_the_struct() -> None:
    (struct,) = re.findall(r"typedef struct pmeta_model \{(.*?)\} pmeta_model;", HEADER, re.S)
    plain = re.sub(r"/\*.*?\*/", "", struct, flags=re.S)
    words = re.findall(r"(?:size_t|uint32_t|unsigned char) ([\w*, ]+);", plain)  # of 32 bits each
    fields = [name.strip(" *") for part in words for name in part.split(",")]
    (listed,) = re.findall(r"const FIELDS = \[(.*?)\];", JS, re.S)
    read = re.findall(r'"(\w+)"', listed)
    assert read == fields[: len(read)]
    assert read[-1] == "support"
