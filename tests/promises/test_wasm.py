"""The WebAssembly that ships was built from the C files as they are."""

from pmeta.web import build


def test_the_c_files_have_not_changed_since() -> None:
    assert build.STAMP.read_text().strip() == build.stamp(), (
        "the engine has changed: run python -m pmeta.web.build (clang-14, lld-14, wasi-libc) and "
        "commit pmeta/web/pmeta.wasm*"
    )
