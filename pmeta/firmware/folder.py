"""A folder that builds as it is: the engine, the model, an example and the build files."""

import re
from pathlib import Path

from pmeta.base.errors import own_version
from pmeta.base.files import cannot_write, make_folder, write_atomically
from pmeta.device import ENGINE, DeviceModel
from pmeta.firmware import c_text, fit
from pmeta.firmware.example import Lesson
from pmeta.firmware.targets import Target

TEMPLATES = Path(__file__).parent / "templates"
COMMON = ("board.h", "example.c", "example.h", "lesson.h", "text.c", "text.h")
BORROWED = {
    "cortex-m": {"common/main.c": "main.c"},
    "generic": {"common/main.c": "main.c"},
    "zephyr": {"common/main.c": "src/main.c"},
    "platformio": {"arduino/src/board.cpp": "src/board.cpp"},
}
"""By kind of target: templates that are not in its own folder, and where they go."""
SOURCES = {
    "cortex-m": ("pmeta", ""),
    "generic": ("pmeta", ""),
    "arduino": ("src", "src"),
    "esp-idf": ("components/pmeta", "main"),
    "zephyr": ("pmeta", "src"),
    "platformio": ("lib/pmeta/src", "src"),
}
"""Where the engine goes, and where the example."""


def write_folder(out: Path, data: bytes, name: str, samples: Lesson, target: Target) -> list[Path]:
    """Write the folder of a model that fits the target; the files that it has now.

    Raises ValueError where the model does not fit, or where `out` has something in it."""
    model = DeviceModel(data)
    name = c_text.safe(name)
    need = fit.needs(model, len(data), samples.bytes)
    fit.check_fit(need, target)
    _check_empty(out)
    values = _values(model, need, name, target)
    texts = {
        place: _filled(template, values) for template, place in places(target.kind).items()
    } | _example(model, data, name, samples, target)
    texts["README.md"] = _filled(f"readme/{target.kind}.md", values) + _filled(
        "readme/README.md", values
    )
    for place, text in texts.items():
        make_folder((out / place).parent)
        write_atomically(out / place, text.encode())
    return [out / place for place in sorted(texts)]


def places(kind: str) -> dict[str, str]:
    """Templates of a kind of target, and where they go: as they lie in the folder of the kind."""
    own = [path for path in (TEMPLATES / kind).rglob("*") if path.is_file()]
    names = [path.relative_to(TEMPLATES).as_posix() for path in own]
    return {name: name.removeprefix(f"{kind}/") for name in names} | BORROWED.get(kind, {})


def _check_empty(out: Path) -> None:
    try:
        full = out.exists() and (not out.is_dir() or any(out.iterdir()))
    except OSError as error:
        raise cannot_write(out, error) from None
    if full:
        raise ValueError(
            f"a folder is written whole, {out} has something in it: name a new one, or empty it."
        )


def _example(
    model: DeviceModel, data: bytes, name: str, samples: Lesson, target: Target
) -> dict[str, str]:
    """The files of C that are the same everywhere: place and text."""
    engine, place = SOURCES[target.kind]
    classes = int(samples.labels.max()) + 1 if model.classifies else 0
    lesson = "lesson_classifier.c" if model.classifies else "lesson_policy.c"
    own = {
        **{file: (TEMPLATES / "common" / file).read_text() for file in COMMON},
        "lesson.c": (TEMPLATES / "common" / lesson).read_text(),
        "model.c": c_text.model_c(data),
        "model.h": c_text.model_h(c_text.model_facts(name, data, model)),
        "samples.c": c_text.samples_c(samples.support, samples.labels, samples.query),
        "samples.h": c_text.samples_h(len(samples.support), len(samples.query), classes),
    }
    files = sorted(path for path in ENGINE.iterdir() if path.suffix in (".c", ".h"))
    return {
        **{str(Path(engine) / path.name): path.read_text() for path in files},
        **{str(Path(place) / file): text for file, text in own.items()},
    }


def _values(model: DeviceModel, need: fit.Needs, name: str, target: Target) -> dict[str, str]:
    """What the templates ask for between @ signs."""
    slot = 256 + -(-model.state_bytes // 256) * 256  # pmeta_slot_bytes
    room = target.ram_bytes is not None and need.ram + 2 * slot <= target.ram_bytes
    numbers = {
        "MODEL_BYTES": need.model,
        "SAMPLE_BYTES": model.sample_bytes,
        "SAMPLES_BYTES": need.samples,
        "ARENA_BYTES": need.arena,
        "INFER_BYTES": model.infer_bytes,
        "STATE_BYTES": model.state_bytes,
        "SLOT_BYTES": slot,
        "CODE": fit.CODE_BYTES,
        "STACK": fit.STACK_BYTES,
        "OTHER": need.outputs + fit.OTHER_BYTES,
        "RAM_NEED": need.ram,
        "FLASH_NEED": need.flash,
    }
    named = ("board", "machine", "cpu", "flash_bytes", "ram_bytes")
    return {
        **{key: f"{value:,}" for key, value in numbers.items()},
        "MODEL": name,
        "VERSION": own_version() or "0.0.0",
        "TARGET": target.name,
        **{name.upper(): str(getattr(target, name)) for name in named},
        **{name.upper(): f"0x{getattr(target, name):08x}" for name in ("vectors", "flash", "ram")},
        "STACK_BYTES": str(fit.STACK_BYTES),
        "STACK_WITH_SYSTEM": str(2 * fit.STACK_BYTES),
        "DEFINES": f"-DBOARD_SLOT_BYTES={slot}" if room else "",
        "SHAPE": " x ".join(map(str, model.input_shape)),
        "TYPE": model.input_type,
    }


def _filled(template: str, values: dict[str, str]) -> str:
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    return re.sub(r"@([A-Z_]+)@", lambda found: values[found[1]], text)
