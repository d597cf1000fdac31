"""How the page looks, in light, in dark and in print, and the little that moves in it: report.css and report.js."""

from pathlib import Path

from pmeta.report.palette import COLORS
from pmeta.report.plot import css

HERE = Path(__file__).parent


def style() -> str:
    """All rules of the page, with a class for the colour of each method."""
    colors = "".join(f".{css(method)} {{ --c: {color} }}\n" for method, color in COLORS.items())
    return (HERE / "report.css").read_text(encoding="utf-8") + colors


def script() -> str:
    """What runs in the page; without it everything can be read all the same."""
    return (HERE / "report.js").read_text(encoding="utf-8")
