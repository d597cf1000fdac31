"""What a person does on the page of `pmeta page`, and pictures to show it."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from tests.helpers.chromium import Page

COLOURS = {"disc": (200, 60, 40), "square": (40, 90, 200), "bars": (60, 160, 70)}
PACK = """((list) => list.map((one) => {
  const b = new Uint8Array(one.buffer, one.byteOffset, one.byteLength);
  let s = ""; for (const v of b) s += String.fromCharCode(v); return btoa(s); }))"""


def drawn(kind: str, number: int, size: tuple[int, int] = (200, 150)) -> Image.Image:
    """A shape of its kind, each a little elsewhere."""
    rng = np.random.default_rng([number, len(kind)])
    image = Image.new("RGB", size, tuple(int(v) for v in rng.integers(200, 250, 3)))
    draw, colour = ImageDraw.Draw(image), COLOURS[kind]
    x, y = int(rng.integers(50, 75)), int(rng.integers(20, 50))
    if kind == "disc":
        draw.ellipse((x, y, x + 80, y + 80), fill=colour)
    elif kind == "square":
        draw.rectangle((x, y, x + 75, y + 75), fill=colour)
    else:
        for k in range(4):
            draw.rectangle((x - 30 + 32 * k, 0, x - 16 + 32 * k, size[1]), fill=colour)
    return image


def begin(tab: Page, place: Path | str, **window: Any) -> None:
    """Open the page and wait until its model is there."""
    tab.open(place, **window)
    tab.wait("document.querySelectorAll('.class').length === 2")


def card(number: int, inside: str = "") -> str:
    """The selector of a class, or of something in its card."""
    return f"#classes .class:nth-child({number}) {inside}"


def name(tab: Page, number: int, text: str) -> None:
    """Write over the name of a class, key by key."""
    tab.click(card(number, ".name"))
    tab.evaluate("document.activeElement.select()")
    tab.call("Input.insertText", text=text)
    tab.press("Enter", 13, "\r")


def show(tab: Page, pictures: dict[str, list[Path]], count: int) -> None:
    """Make a class of each kind, with so many pictures by its button Files."""
    for number, (kind, paths) in enumerate(pictures.items(), 1):
        if number > 2:
            tab.click("#add-class")
        name(tab, number, kind)
        tab.choose(card(number, "button[aria-label^='Add files']"), paths[:count])
        tab.wait(f"document.querySelectorAll('{card(number, '.thumb')}').length === {count}")


def teach(tab: Page) -> None:
    """Press Teach and wait for the end."""
    tab.click("#start")
    tab.wait("!teachPage.isBusy && teachPage.now.taught")


def arrays(tab: Page, expression: str, dtype: Any) -> list[np.ndarray]:
    """Typed arrays of the page."""
    packed = tab.evaluate(f"(async () => {PACK}(await {expression}))()")
    return [np.frombuffer(base64.b64decode(one), dtype) for one in packed]


def message(tab: Page) -> str:
    """What the page says went wrong."""
    tab.wait("!document.getElementById('message').hidden")
    return tab.evaluate("document.querySelector('#message span').textContent")
