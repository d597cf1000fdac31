"""The command: one page that needs nothing else, which Chromium opens without an error."""

import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pmeta.cli import main
from pmeta.method.methods import METHODS
from pmeta.training.run_folder import write_json
from tests.helpers.chromium import Page, chromium, find
from tests.helpers.report_folders import MINI, WALK, evaluation, table, write_run

SVG = "<svg xmlns='http://www.w3.org/2000/svg' width='8' height='8'><rect width='8'/></svg>"
NASTY = "<script>alert(1)</script>&\"'"


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that a report can hold: every method, policies, runs at every stage, nasty names."""
    root = tmp_path_factory.mktemp("report") / "out"
    for i, name in enumerate(METHODS):
        changes: dict[str, Any] = {"method": name}
        config = dataclasses.replace(MINI, **changes)
        write_run(
            root / "runs" / name,
            config,
            validations=3,
            val_accuracy=30.0 + i,
            memory_mb=1.0 + (i < 4),
        )
    (root / "runs" / "pmeta" / "evaluations").mkdir()
    write_json(
        root / "runs" / "pmeta" / "evaluations" / "mini-val-batch1.json", evaluation(split="val")
    )
    write_run(
        root / "runs" / "resnet", dataclasses.replace(MINI, backbone="resnet12"), validations=0
    )
    write_run(
        root / "runs" / "early", dataclasses.replace(MINI, n_shot=5), validations=1, best=False
    )
    write_run(root / "rl", WALK)
    write_run(root / "data", dataclasses.replace(MINI, data=f"/data/{NASTY}"))
    write_json(root / "table4.json", table(title=NASTY))
    write_json(
        root / "figure5.json",
        {"format": "pmeta-results", "version": 1, "title": "Shares", "series": []},
    )
    (root / "figure5.svg").write_text(SVG)
    return root


@pytest.fixture(scope="module")
def page(everything: Path) -> Path:
    out = everything.parent / "report.html"
    assert main(["report", str(everything), "-o", str(out), "--title", NASTY]) == 0
    return out


def test_it_says_what_it_read(
    everything: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_json(everything / "other.json", {})
    assert main(["report", str(everything), "-o", str(tmp_path / "x.html")]) == 0
    (everything / "other.json").unlink()
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/x.html: 10 runs, 1 table, 1 figure",
        f"not validated yet, so without pictures: {everything}/runs/resnet",
        f"left out, not a table of pmeta reproduce: {everything}/other.json",
    ]


def test_the_same_input_gives_the_same_page(everything: Path, page: Path, tmp_path: Path) -> None:
    assert main(["report", str(everything), "-o", str(tmp_path / "x.html"), "--title", NASTY]) == 0
    assert (tmp_path / "x.html").read_bytes() == page.read_bytes()


def test_the_page_needs_nothing_else_and_no_name_is_markup(page: Path) -> None:
    text = page.read_text()
    assert (
        re.findall(r"""(?:src|href)=["'](?!data:)|@import|url\(|https?://(?!www\.w3\.org)""", text)
        == []
    )
    assert len(re.findall("<script", text)) == 1 + len(
        re.findall('<script type="application/json"', text)
    )
    assert "alert(1)</script>" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_it_starts_without_torch(everything: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pmeta.cli import main; code = main(sys.argv[1:]); "
        "print(code, [n for n in ('torch', 'safetensors', 'tyro') if n in sys.modules])"
    )
    words = [sys.executable, "-c", code, "report", str(everything), "-o", str(tmp_path / "x.html")]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "0 []"


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["report", "--help"])
    assert end.value.code == 0
    assert "pmeta report runs/quickstart -o quickstart.html" in capsys.readouterr().out


def test_mistakes(everything: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (
            ["report"],
            "the following arguments are required: RUN_OR_RESULTS (see pmeta report --help).",
        ),
        (
            ["report", str(everything), "-o", str(tmp_path)],
            f"-o names the file to write, {tmp_path} is a folder",
        ),
        (
            ["report", str(everything), "-o", str(tmp_path / "no" / "x.html")],
            "-o names a file in a folder that is there",
        ),
        (["report", str(tmp_path)], f"{tmp_path} holds neither: give another folder."),
    ):
        assert main(words) == 2
        assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    binary = find()
    if not binary:
        pytest.skip("Chromium is not installed here: apt-get install chromium")
    with chromium(binary) as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_opens_without_an_error_and_fits(
    browser: Page, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width, dark=dark)
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser.problems() == []
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shown = browser.evaluate(SIZES)
    assert len(shown) > 30
    assert all(w > 20 and h > 20 for w, h in shown)
    colors = browser.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert (colors[0] == "rgb(255, 255, 255)") == (not dark)


SIZES = """[...document.querySelectorAll('.picture')].map(s => s.getBoundingClientRect())
  .map(r => [r.width, r.height])"""
INLINE = """document.querySelectorAll('.card .picture').forEach(image => {
  const text = new TextDecoder().decode(
    Uint8Array.from(atob(image.src.split(',')[1]), c => c.charCodeAt(0)))
  const svg = new DOMParser().parseFromString(text, 'image/svg+xml').documentElement
  svg.style.cssText = 'width: 100%; max-width: 540px; height: auto'
  image.replaceWith(svg)
})"""
OVERLAPS = """[...document.querySelectorAll('svg')].flatMap(svg => {
  const names = [...svg.querySelectorAll('[id=name]')]
  const boxes = names.map(t => [t.textContent, t.getBoundingClientRect()])
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([, q]) =>
    Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1 &&
    Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 5
  ).map(([b]) => a + ' / ' + b))
})"""
OUTSIDE = """[...document.querySelectorAll('svg text')].filter(t => {
  const [p, q] = [t.getBoundingClientRect(), t.closest('.card').getBoundingClientRect()]
  return p.left < q.left || p.right > q.right
}).map(t => t.textContent)"""


def test_no_label_covers_another_or_leaves_its_card(browser: Page, page: Path) -> None:
    browser.open(page)
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    browser.evaluate(INLINE)
    assert browser.evaluate("document.querySelectorAll('svg [id=name]').length") > 30
    assert browser.evaluate(OVERLAPS) == []
    assert browser.evaluate(OUTSIDE) == []


def test_the_slider_goes_through_the_training(browser: Page, page: Path) -> None:
    browser.open(page)
    box = "[...document.querySelectorAll('.alpha')].find(b => b.querySelector('input'))"
    cell = f"[...{box}.querySelectorAll('td')].at(-1)"
    told = f"{box}.querySelector('output').textContent"
    state = f"[{told}, {cell}.textContent, {cell}.style.cssText, {cell}.className]"
    assert not browser.evaluate(f"{box}.querySelector('.slider').hidden")
    assert browser.evaluate(state) == ["1,200 tasks", ".150", "--s: 1.0;", "strong"]
    first = "(s => { s.value = 0; s.dispatchEvent(new Event('input')) })"
    browser.evaluate(f"{first}({box}.querySelector('input'))")
    assert browser.evaluate(state) == ["400 tasks", ".050", "--s: 0.6196152422706632;", ""]
    assert browser.problems() == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("<img src='missing.png'>", "broken picture"),
        ("<img src='data:image/png;base64,AAAA'>", "broken picture"),
        ("<script>throw new Error('oh')</script>", "exception: Error: oh"),
        ("<script>console.error('oh')</script>", "console"),
        ("<link rel=stylesheet href='missing.css'>", "failed: net::ERR_FILE_NOT_FOUND"),
        ("<script src='https://127.0.0.1:9/x.js'></script>", "request: https://127.0.0.1:9/x.js"),
        (
            "<style>@font-face { font-family: x; src: url(x.woff2) } "
            "body { font-family: x }</style>text",
            "request: file",
        ),
    ],
)
def test_the_browser_finds_what_is_wrong(
    browser: Page, tmp_path: Path, body: str, problem: str
) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text(f"<!doctype html><title>x</title><body>{body}</body>")
    browser.open(broken)
    assert any(found.startswith(problem) for found in browser.problems()), browser.problems()
    broken.write_text("<!doctype html><title>x</title><body>all is well</body>")
    browser.open(broken)
    assert browser.problems() == []
