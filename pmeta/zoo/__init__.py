"""The models that ship with the package: where their files are, and what their cards say.

Needs no torch.
"""

from pathlib import Path
from typing import Any

from pmeta.base.reading import read
from pmeta.zoo.shapes import Card

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """All models, by name."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def recognisers() -> list[str]:
    """Models that read recordings of sensors, by name: sensors/NAME.pmeta and its card, NAME.md."""
    return sorted(path.stem for path in (FOLDER / "sensors").glob("*.pmeta"))


def card(name: str) -> dict[str, Any]:
    """What is known of a model: data, schedule, accuracy, memory, files, settings."""
    path = FOLDER / f"{name}.json"
    return read(path, path.read_bytes(), Card, "install pmeta anew")


def find(name: str, classes: int = 1) -> Path:
    """The smallest file of a model that tells `classes` apart; the largest where there is none."""
    if name in recognisers():
        return FOLDER / "sensors" / f"{name}.pmeta"
    files = sorted(card(name)["files"], key=lambda file: file["outputs"])
    enough = [file for file in files if file["outputs"] >= classes]
    return FOLDER / (enough or files[-1:])[0]["file"]


def check(name: str) -> None:
    """Raise ValueError for a model that does not ship any more."""
    if name == "efficientnet-lite0" and not Path(name).exists():
        raise ValueError(
            f"{name} does not ship: take miniimagenet-4conv64, or adapt EfficientNet-Lite0 as "
            "examples/efficientnet_lite0.py does."
        )
