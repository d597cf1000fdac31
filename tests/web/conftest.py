"""A browser with the page of `pmeta page` in it, and pictures on the disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pmeta import zoo
from pmeta.web.page import page
from tests.helpers.chromium import Page, chromium, find
from tests.helpers.teaching import COLOURS, begin, drawn

CHROMIUM = find()
MODEL = zoo.FOLDER / "miniimagenet-4conv.pmeta"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    folder = tmp_path_factory.mktemp("pictures")
    found: dict[str, list[Path]] = {}
    for kind in COLOURS:
        found[kind] = [folder / f"{kind}{i}.png" for i in range(6)]
        for i, path in enumerate(found[kind]):
            drawn(kind, i).save(path)
    return found


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "teach.html"
    path.write_text(page(MODEL.read_bytes(), MODEL.stem), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    assert CHROMIUM
    with chromium(CHROMIUM, "--use-fake-device-for-media-stream") as tab:
        yield tab


@pytest.fixture
def tab(browser: Page, html: Path) -> Page:
    begin(browser, html)
    return browser
