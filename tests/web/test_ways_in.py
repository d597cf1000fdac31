"""Other ways into the page than its buttons for files: drop, paste, Stop, and sensors' files."""

import json
from pathlib import Path

import numpy as np
import pytest

from pmeta import device
from pmeta.web.page import page
from tests.helpers.chromium import Page, find
from tests.helpers.device_models import Case, case
from tests.helpers.teaching import arrays, begin, card, message, show, teach

pytestmark = pytest.mark.skipif(find() is None, reason="no Chromium")
DRAWN = """const canvas = new OffscreenCanvas(120, 90), context = canvas.getContext("2d");
context.fillStyle = "teal"; context.fillRect(0, 0, 80, 90);
const data = new DataTransfer();
data.items.add(new File([await canvas.convertToBlob()], "drawn.png", { type: "image/png" }));"""


@pytest.fixture(scope="module")
def windows() -> Case:
    """A classifier of sensor windows: float32 (4, 33)."""
    return case("signal", "pmeta", seed=1, n=10)


def test_pictures_are_dropped_and_pasted(tab: Page) -> None:
    drop = f"""(async () => {{ {DRAWN}
      const event = new DragEvent("drop", {{ dataTransfer: data, bubbles: true }});
      document.querySelector("{card(2)}").dispatchEvent(event); }})()"""
    tab.evaluate(drop)
    tab.wait(f"document.querySelectorAll('{card(2, '.thumb')}').length === 1")
    tab.click(card(1, ".name"))
    paste = f"""(async () => {{ {DRAWN}
      const event = new ClipboardEvent("paste", {{ clipboardData: data, bubbles: true }});
      document.activeElement.dispatchEvent(event); }})()"""
    tab.evaluate(paste)
    tab.wait(f"document.querySelectorAll('{card(1, '.thumb')}').length === 1")
    assert tab.problems() == []


def test_stop_ends_it_and_it_can_be_taught_again(
    tab: Page, pictures: dict[str, list[Path]]
) -> None:
    show(tab, pictures, 6)
    tab.click("#start")
    tab.wait("teachPage.isBusy")
    tab.click("#start")
    assert message(tab) == "Not taught: it was stopped"
    tab.wait("!teachPage.isBusy")
    assert tab.evaluate("teachPage.now.taught") is None
    teach(tab)


def test_windows_of_a_sensor_come_as_csv_and_json(
    browser: Page, windows: Case, tmp_path: Path
) -> None:
    html = tmp_path / "teach.html"
    html.write_text(page(windows.exported.data, "sensor"), encoding="utf-8")
    x = windows.raw  # (10, 4, 33)
    rows = np.concatenate([window.T for window in x[:3]])
    text = "\n".join(",".join(repr(float(v)) for v in row) for row in rows)
    (tmp_path / "walk.csv").write_text("x,y,z,w\n" + text + "\n")
    (tmp_path / "sit.json").write_text(json.dumps(x[3:6].tolist()))
    (tmp_path / "short.csv").write_text("1,2,3,4\n")
    begin(browser, html)
    for number, name in ((1, "walk.csv"), (2, "sit.json")):
        browser.choose(card(number, "button[aria-label^='Add files']"), [tmp_path / name])
        browser.wait(f"document.querySelectorAll('{card(number, '.thumb')}').length === 3")
    assert browser.evaluate("document.getElementById('live').hidden")
    teach(browser)
    native = device.DeviceModel(windows.exported.data)
    native.adapt(x[:6], [0, 0, 0, 1, 1, 1])
    (weights,) = arrays(browser, "[teachPage.now.taught.state.weights]", np.float32)
    np.testing.assert_allclose(weights, np.frombuffer(native.state(), np.float32), atol=1e-4)
    browser.choose("#try-files", [tmp_path / "short.csv"])
    assert "a window has 33 rows of 4 numbers; the file has 1 rows" in message(browser)
    assert browser.problems() == []


def test_float_pictures_are_refused() -> None:
    model = case("4conv", "pmeta", seed=1)
    with pytest.raises(ValueError, match="a page takes pictures as uint8, mine reads float32"):
        page(model.exported.data, "mine")
