"""The models that ship with the package: where their files are, and what their cards say.

Needs no torch.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from pmeta.base.files import cache_folder

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """All models, by name."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def recognisers() -> list[str]:
    """Models that read recordings of sensors, by name: sensors/NAME.pmeta and its card, NAME.md."""
    return sorted(path.stem for path in (FOLDER / "sensors").glob("*.pmeta"))


def card(name: str) -> dict[str, Any]:
    """What is known of a model: data, schedule, accuracy, memory, files, settings."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def find(name: str, classes: int = 1) -> Path:
    """The smallest file of a model that tells `classes` apart; the largest where there is none."""
    if name in recognisers():
        return FOLDER / "sensors" / f"{name}.pmeta"
    files = sorted(card(name)["files"], key=lambda file: file["outputs"])
    enough = [file for file in files if file["outputs"] >= classes]
    path = home(name) / (enough or files[-1:])[0]["file"]
    if name in built() and not path.exists():
        raise ValueError(
            f"{name} is made on your machine, once, from a network of another package: run pmeta "
            f"zoo build {name}."
        )
    return path


def built() -> list[str]:
    """Models of which only what was learned here ships; `pmeta zoo build` makes their files."""
    return [name for name in names() if "made_from" in card(name)]


def whole() -> list[str]:
    """Models whose files ship."""
    return [name for name in names() if name not in built()]


def home(name: str) -> Path:
    """The folder of a model's files: the package's, or one of the user for a model that is built.

    Another release has other step sizes and so another folder."""
    if name not in built():
        return FOLDER
    learned = (FOLDER / f"{name}.safetensors").read_bytes()
    return cache_folder() / "zoo" / sha256(learned).hexdigest()[:16]
