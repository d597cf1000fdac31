"""One HTML file with the engine, a model and all of the page inside."""

import base64
import gzip
import hashlib
import html
import re
from pathlib import Path

from pmeta.device import DeviceModel
from pmeta.device.support import no_classifier

FOLDER = Path(__file__).parent
WORKER = ("js/pmeta.js", "js/pictures.js", "js/readings.js", "js/worker.js")
SCRIPT = (
    *("js/remote.js", "teach/state.js", "teach/view.js", "teach/camera.js"),
    *("teach/cards.js", "teach/trial.js", "teach/page.js"),
)
POLICY = (
    "default-src 'none'; script-src '{script}' 'wasm-unsafe-eval'; style-src '{style}'; worker-src "
    "blob:; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
"""What the browser holds the page to: no address but its own parts."""


def page(model: bytes, name: str, title: str = "Teach it") -> str:
    """The page for a .pmeta file that `name` tells people about.

    Raises ValueError where the model is no classifier, or reads what the page cannot give."""
    _check(DeviceModel(model), name)
    script, style = bundle(SCRIPT), _read("teach/teach.css")
    parts = {
        "policy": POLICY.format(script=_hash(script), style=_hash(style)),
        "title": html.escape(title),
        "name": html.escape(name),
        "footer": (
            f"Model <b>{html.escape(name)}</b>, {len(model) / 1000:,.0f} kB, adapted by pmeta's C "
            "engine in WebAssembly."
        ),
        "engine": _pack((FOLDER / "pmeta.wasm").read_bytes()),
        "model": _pack(model),
        "worker": bundle(WORKER),
        "style": style,
        "script": script,
    }
    template = _read("teach/teach.html")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def bundle(names: tuple[str, ...]) -> str:
    """Modules one behind the other as one script: what they import from each other is there
    already."""
    text = "\n".join(_read(name) for name in names)
    text = re.sub(r'^import .*? from "\..*?";\n', "", text, flags=re.M)
    text = re.sub(r"^export (?=(async )?(function|class|const))", "", text, flags=re.M)
    return f'"use strict";\n(() => {{\n{text}}})();\n'


def _check(model: DeviceModel, name: str) -> None:
    shape, picture = model.input_shape, model.input_type == "uint8"
    if not model.classifies:
        what, _ = no_classifier(model)
        raise ValueError(f"a page teaches a classifier, {name} is {what}: adapt it in Python.")
    if model.reads == "recordings":
        raise ValueError(
            f"a page takes windows that are cut and scaled already, {name} reads recordings: use "
            "pmeta adapt."
        )
    if picture and not (len(shape) == 3 and shape[0] in (1, 3)):
        raise ValueError(
            f"a page takes pictures of 1 or 3 channels, {name} reads uint8 samples of shape "
            f"{shape}."
        )
    if not picture and len(shape) > 2:
        raise ValueError(
            f"a page takes pictures as uint8, {name} reads float32 samples of shape {shape}: "
            "export it with pixels."
        )


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _pack(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
