"""The page of `pmeta page` in headless Chromium: its real buttons, a fake camera, the numbers of
the native engine, and what happens with wrong files."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pmeta import device, zoo
from pmeta.cli.device.page import server
from pmeta.device.model_file import seal
from pmeta.device.samples import read_picture
from tests.helpers.chromium import Page, find
from tests.helpers.teaching import arrays, begin, card, message, name, show, teach

CHROMIUM = find()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
MODEL = zoo.FOLDER / "miniimagenet-4conv.pmeta"


@pytest.fixture
def address(html: Path) -> Iterator[str]:
    """The page as `pmeta page --open` serves it."""
    with server(html.read_bytes()) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}/"
        running.shutdown()


def test_pictures_are_taught_and_told_apart_as_by_the_native_engine(
    tab: Page, pictures: dict[str, list[Path]], tmp_path: Path
) -> None:
    show(tab, pictures, 5)
    teach(tab)
    native = device.load(MODEL)
    x = np.stack([read_picture(path, native) for paths in pictures.values() for path in paths[:5]])
    seen = arrays(tab, "teachPage.now.classes.flatMap((one) => one.samples)", np.uint8)
    np.testing.assert_array_equal(np.stack(seen), x.reshape(len(x), -1))
    learned = np.arange(len(x)) % 5 < 4  # one of five is put aside
    native.adapt(x[learned], np.repeat([0, 1, 2], 4), classes=list(pictures))

    tried = [paths[5] for paths in pictures.values()]
    tab.choose("#try-files", tried)
    tab.wait("document.querySelectorAll('#tried .thumb').length === 3")
    tab.wait("document.querySelector('#verdict b')")
    queries = np.stack([read_picture(path, native) for path in tried])
    scores = arrays(tab, "teachPage.remote.scores(teachPage._trial._tried)", np.float32)
    np.testing.assert_allclose(np.stack(scores), native.scores(queries), atol=1e-4)
    (weights,) = arrays(tab, "[teachPage.now.taught.state.weights]", np.float32)
    np.testing.assert_allclose(weights, np.frombuffer(native.state(), np.float32), atol=1e-4)
    labels = tab.evaluate(
        "teachPage.remote.predict(teachPage._trial._tried).then((p) => p.map((q) => q.label))"
    )
    assert labels == native.predict(queries).labels.tolist() == [0, 1, 2]
    assert tab.evaluate("document.querySelector('#verdict').textContent") == "bars"
    assert "3 of 3 put aside" in tab.evaluate("document.querySelector('#accuracy').textContent")
    costs = tab.evaluate("document.querySelector('#costs').textContent")
    assert "learned from12" in costs
    assert f"{native.high_water_bytes / 1000:.0f} kB" in costs
    assert tab.evaluate("performance.getEntriesByType('resource').map((e) => e.name)") == []
    assert tab.problems() == []


def test_mirrored_copies_are_learned_too_if_asked(
    tab: Page, pictures: dict[str, list[Path]]
) -> None:
    show(tab, pictures, 2)
    tab.click("#mirror")
    teach(tab)
    native = device.load(MODEL)
    x = np.stack([read_picture(path, native) for paths in pictures.values() for path in paths[:2]])
    native.adapt(x, np.repeat([0, 1, 2], 2), mirror=True)
    (weights,) = arrays(tab, "[teachPage.now.taught.state.weights]", np.float32)
    np.testing.assert_allclose(weights, np.frombuffer(native.state(), np.float32), atol=1e-4)
    assert "learned from6, mirrored too" in tab.evaluate(
        "document.querySelector('#costs').textContent"
    )


def test_what_is_downloaded_loads_again_here_and_in_python(
    tab: Page, pictures: dict[str, list[Path]], html: Path, tmp_path: Path
) -> None:
    tab.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    show(tab, pictures, 2)
    teach(tab)
    for button, file in (("#save", "taught.pmeta"), ("#save-names", "taught-classes.json")):
        tab.click(button)
        for _ in range(200):
            if (tmp_path / file).exists():
                break
            tab.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert json.loads((tmp_path / "taught-classes.json").read_text()) == list(pictures)
    saved = device.load(tmp_path / "taught.pmeta")
    tried = [paths[5] for paths in pictures.values()]
    assert saved.predict(tried).names == list(pictures)

    begin(tab, html)
    tab.choose("#load", [tmp_path / "taught.pmeta"])
    tab.wait("document.querySelectorAll('.class').length === 3")
    assert tab.evaluate("teachPage.now.classes.map((one) => one.name)") == list(pictures)
    tab.choose("#try-files", tried[:1])
    tab.wait("document.querySelector('#verdict b')?.textContent === 'disc'")


def test_undo_and_forget(tab: Page, pictures: dict[str, list[Path]]) -> None:
    show(tab, {kind: pictures[kind] for kind in ("disc", "square")}, 2)
    teach(tab)
    tab.click("#undo")
    tab.wait("!teachPage.now.taught")
    assert tab.evaluate("document.querySelectorAll('.thumb').length") == 4
    tab.click("#undo")
    tab.wait("document.querySelectorAll('.thumb').length === 2")
    tab.click("#forget")
    tab.wait("document.querySelectorAll('.thumb').length === 0")
    assert tab.problems() == []


def test_wrong_and_hostile_files_are_told_and_the_page_lives_on(
    tab: Page, pictures: dict[str, list[Path]], tmp_path: Path
) -> None:
    good = MODEL.read_bytes()
    (tmp_path / "text.pmeta").write_bytes(b"hello, this is text" * 20)
    tab.choose("#load", [tmp_path / "text.pmeta"])
    assert message(tab).startswith("text.pmeta: ")
    greedy = bytearray(good)
    greedy[24:32] = b"\xfc\xff\xff\xff" * 2  # arena_bytes, infer_bytes
    (tmp_path / "greedy.pmeta").write_bytes(seal(bytes(greedy)))
    tab.choose("#load", [tmp_path / "greedy.pmeta"])
    tab.wait("document.querySelector('#message span').textContent.startsWith('greedy.pmeta: ')")
    (tmp_path / "photo.png").write_bytes(b"no picture")
    tab.choose(card(1, "button[aria-label^='Add files']"), [tmp_path / "photo.png"])
    tab.wait("document.querySelector('#message span').textContent.includes('photo.png')")
    tab.click("#start")
    tab.wait("document.querySelector('#message span').textContent.includes('add some to Class 1')")
    show(tab, {kind: pictures[kind] for kind in ("disc", "square")}, 1)
    teach(tab)
    assert tab.problems() == []


def permit(tab: Page, setting: str) -> None:
    tab.call("Browser.setPermission", permission={"name": "camera"}, setting=setting)


def test_the_camera_shows_teaches_and_names_what_it_sees(
    browser: Page, address: str, pictures: dict[str, list[Path]]
) -> None:
    begin(browser, address)
    permit(browser, "granted")
    name(browser, 1, "camera")
    browser.click(card(1, ".camera-button"))
    browser.wait("document.querySelector('video')?.videoWidth > 0")
    for count in (1, 2):
        browser.click(card(1, ".shoot"))
        browser.wait(f"document.querySelectorAll('{card(1, '.thumb')}').length === {count}")
    (sample, _) = arrays(browser, "teachPage.now.classes[0].samples", np.uint8)
    assert sample.std() > 20  # the fake camera's picture, not an empty frame
    name(browser, 2, "disc")
    browser.choose(card(2, "button[aria-label^='Add files']"), pictures["disc"][:2])
    browser.wait(f"document.querySelectorAll('{card(2, '.thumb')}').length === 2")
    teach(browser)
    browser.click("#live")
    browser.wait("document.querySelector('#verdict b')?.textContent === 'camera'")
    browser.click("#live")
    browser.wait("!document.querySelector('video')")
    assert browser.problems() == []


def test_a_camera_that_is_denied_is_told(browser: Page, address: str) -> None:
    begin(browser, address)
    permit(browser, "denied")
    browser.click(card(1, ".camera-button"))
    assert "The camera was not allowed" in message(browser)
    assert browser.evaluate("document.querySelector('video')") is None
    browser.click("#add-class")
    browser.wait("document.querySelectorAll('.class').length === 3")


def test_the_page_could_not_call_home_if_it_wanted(browser: Page, address: str) -> None:
    begin(browser, address)
    tried = browser.evaluate(f"fetch('{address}').then(() => 'sent', (error) => error.name)")
    assert tried == "TypeError"
    inside = f"fetch('{address}').then(() => postMessage('sent'), () => postMessage('refused'))"
    worker = f"""new Promise((done) => {{
      const code = new Blob([{json.dumps(inside)}]);
      new Worker(URL.createObjectURL(code)).onmessage = (event) => done(event.data); }})"""
    assert browser.evaluate(worker) == "refused"


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1200, True)])
def test_it_fits_a_phone_and_the_dark(browser: Page, html: Path, width: int, dark: bool) -> None:
    begin(browser, html, width=width, dark=dark)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    light = browser.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number)"
    )
    assert (sum(light) < 300) == dark


def test_it_works_by_keyboard(tab: Page, pictures: dict[str, list[Path]]) -> None:
    show(tab, {kind: pictures[kind] for kind in ("disc", "square")}, 1)
    reached = set()
    for _ in range(30):
        tab.press("Tab", 9)
        reached.add(tab.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"start", "add-class", "try-files", "undo", "load", "name", "thumb"} <= reached
    tab.evaluate("document.getElementById('start').focus()")
    tab.press(" ", 32, " ")
    tab.wait("!teachPage.isBusy && teachPage.now.taught")
