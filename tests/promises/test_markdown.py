"""Every Markdown file: links lead somewhere, paths and commands exist, one sentence a line."""

import ast
import contextlib
import importlib
import io
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from pmeta.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "docs", "pmeta", "tests", "zoo")
PAGES = sorted([*ROOT.glob("*.md"), *(p for f in FOLDERS for p in (ROOT / f).rglob("*.md"))])
GENERATED = {
    *ROOT.glob("docs/results/table*.md"),
    *(ROOT / f"docs/results/{name}.md" for name in ("zoo", "paper", "cheetah", "navigation")),
}
FENCE = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
ABBREVIATIONS = "".join(f"(?<!{word})" for word in ("Eq", "Eqs", "Alg", "Sec", "Fig", "App", "al"))
NEXT_SENTENCE = re.compile(ABBREVIATIONS + r"[.!?][)*\"]* +([A-Z`*\[(]|p-Meta|pmeta)")
HELP = {  # commands whose options are those of their subcommands
    "train": (
        "train miniimagenet-4conv-5way-1shot",
        "train navigation-paper",
        "train har-conv1d",
    ),
    "data": ("data info", "data import"),
}


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def prose(page: str) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page, made of its headings as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        again = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", one) is not None for one in found)
        found.add(f"{slug}-{again}" if again else slug)
    return found


def broken(page: Path, link: str) -> str | None:
    """What is wrong with a relative link, if anything."""
    if re.match(r"[a-z]+:", link):
        return None
    path, _, anchor = unquote(link).partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return f"{link}: there is no {target}"
    if anchor and anchor not in anchors(target):
        return f"{link}: the anchors of {target.name} are {sorted(anchors(target))}"
    return None


@pytest.mark.parametrize("page", names(PAGES))
def test_links_lead_to_files_and_anchors(page: str) -> None:
    wrong = [broken(ROOT / page, link) for link in LINK.findall(prose(page))]
    assert [reason for reason in wrong if reason] == []


def test_a_broken_link_is_found() -> None:
    page = ROOT / "docs/guide/zoo.md"
    assert [broken(page, good) for good in ("data.md", "data.md#glyphs")] == [None, None]
    assert "there is no" in str(broken(page, "nowhere.md"))
    assert "there is no" in str(broken(page, "../../../outside.md"))
    assert "the anchors of" in str(broken(page, "data.md#gliphs"))


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs/README.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert pages - linked - GENERATED == {index}


@pytest.mark.parametrize("page", names(PAGES))
def test_paths_in_code_exist(page: str) -> None:
    paths = [re.split(r"[:\s]", span)[0] for span in CODE.findall(prose(page))]
    ours = [path for path in paths if re.match(rf"({'|'.join(FOLDERS)})/[^A-Z*<{{]+$", path)]
    assert [path for path in ours if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", names([page for page in PAGES if page not in GENERATED]))
def test_one_sentence_a_line(page: str) -> None:
    lines = CODE.sub("`code`", prose(page)).splitlines()
    texts = [re.sub(r"^ *\d+\. ", "", line) for line in lines if not re.match(r" *\|", line)]
    assert [line for line in texts if NEXT_SENTENCE.search(line)] == []


def test_two_sentences_on_a_line_are_found() -> None:
    assert NEXT_SENTENCE.search("One. Two.")
    assert NEXT_SENTENCE.search("One (two). `code` three.")
    assert not NEXT_SENTENCE.search("Eq. Nine, and App. A.")


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """The options that the help of each command lists."""
    listed = {}
    for command in COMMANDS:
        shown = io.StringIO()
        for words in HELP.get(command, (command,)):
            with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
                every = "--help-all" if command == "train" else "--help"
                main([*words.split(), every])
        listed[command] = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", shown.getvalue()))
    return listed


@pytest.mark.parametrize("page", names(PAGES))
def test_commands_and_their_options_exist(page: str, options: dict[str, set[str]]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = [line for block in FENCE.findall(text) for line in block.splitlines()]
    for line in [*blocks, *CODE.findall(prose(page))]:
        for command, rest in re.findall(r"^\W*pmeta ([a-z]\w*)(.*)", line):
            assert command in COMMANDS, line
            used = set(re.findall(r"(?<=[ \[])--?[a-z][\w-]*", rest.partition("  #")[0]))
            assert used <= options[command], f"{line}: {used - options[command]}"


@pytest.mark.parametrize("page", names(PAGES))
def test_python_compiles_and_its_imports_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for code in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, alias.name) for alias in node.names), code
