"""Pictures in the browser have the pixels that `pmeta adapt` gives them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pmeta import device, zoo
from pmeta.device.samples import read_picture
from pmeta.web.page import page
from tests.helpers.chromium import chromium, find
from tests.helpers.pictures import scenes
from tests.helpers.teaching import arrays, card

CHROMIUM = find()
MODEL = zoo.FOLDER / "miniimagenet-4conv.pmeta"
SIZES = {
    "wide": (301, 97),
    "tall": (90, 333),
    "same": (84, 84),
    "small": (31, 40),
    "large": (1600, 900),
    "upright": (900, 1600),
    "portrait": (300, 400),
}


def files(folder: Path) -> dict[str, Path]:
    """Pictures of all kinds, by what is special."""
    scene = Image.fromarray(scenes(1, 400, np.random.default_rng(0))[0].transpose(1, 2, 0))
    made = {kind: scene.resize(size) for kind, size in SIZES.items()}
    made |= {"grey": scene.convert("L"), "palette": scene.quantize(64)}
    found = {kind: folder / f"{kind}.png" for kind in made}
    for kind, path in found.items():
        made[kind].save(path)
    clear = scene.convert("RGBA")
    clear.paste((0, 0, 0, 0), (0, 0, 200, 200))
    clear.save(folder / "clear.png")
    exif = Image.Exif()
    exif[0x112] = 6  # lies on its side
    scene.resize((300, 200)).save(folder / "turned.jpg", quality=95, exif=exif)
    return {**found, "clear": folder / "clear.png", "turned": folder / "turned.jpg"}


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_pixels_are_those_of_pmeta_adapt(tmp_path: Path) -> None:
    given, native = files(tmp_path), device.load(MODEL)
    (tmp_path / "teach.html").write_text(page(MODEL.read_bytes(), "x"), encoding="utf-8")
    assert CHROMIUM
    with chromium(CHROMIUM) as tab:
        tab.open(tmp_path / "teach.html")
        tab.choose(card(1, "button[aria-label^='Add files']"), list(given.values()))
        tab.wait(f"document.querySelectorAll('{card(1, '.thumb')}').length === {len(given)}")
        seen = arrays(tab, "teachPage.now.classes[0].samples", np.uint8)
    for (kind, path), pixels in zip(given.items(), seen, strict=True):
        wanted = read_picture(path, native).reshape(-1)
        away = np.abs(pixels.astype(int) - wanted)
        # JPEG decoders may round differently; all else is exact.
        assert away.max() <= (3 if kind == "turned" else 0), (kind, away.max())
