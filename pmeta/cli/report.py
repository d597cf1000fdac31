"""`pmeta report`: one self-contained HTML page from run folders and results, to pass on."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from pmeta.base.arguments import Parser
from pmeta.base.files import write_atomically
from pmeta.base.terminal import printable
from pmeta.report.page import found, page
from pmeta.report.read import Given, read

EXAMPLE = """examples:
  pmeta report runs/first                          a run
  pmeta report runs/quickstart -o quickstart.html  all runs in a folder, side by side
  pmeta report results runs/navigation             results of pmeta reproduce, and a run"""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options. (argparse: the command starts without torch and without tyro.)"""
    parser = Parser(
        prog="pmeta report",
        description=__doc__,
        epilog=EXAMPLE,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = "a run folder, a table of pmeta reproduce (tableN.json), or a folder of these"
    parser.add_argument("paths", nargs="+", metavar="RUN_OR_RESULTS", help=what)
    page, file = "the page (report.html)", Path("report.html")
    parser.add_argument("-o", "--out", type=Path, default=file, metavar="FILE", help=page)
    parser.add_argument("--title", default="p-Meta report", help="the page's heading")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    """Run `pmeta report` with these arguments."""
    options = parse(argv)
    if options.out.is_dir():
        raise ValueError(
            f"-o names the file to write, {options.out} is a folder: "
            f"say {options.out / 'report.html'}."
        )
    if not options.out.resolve().parent.is_dir():
        raise ValueError(
            f"-o names a file in a folder that is there, {options.out.parent} is not: "
            "make it first."
        )
    given = read(options.paths)
    write_atomically(options.out, page(given, options.title).encode(errors="replace"))
    print(printable(told(options.out, given), lines=True))


def told(out: Path, given: Given) -> str:
    """What was written, and what was found but not used."""
    line = f"{out}: {found(given)}"
    waiting = [str(run.path) for run in given.runs if not run.chosen]
    lines = [line] + [f"not validated yet, so without pictures: {path}" for path in waiting]
    return "\n".join(
        lines + [f"left out, not a table of pmeta reproduce: {path}" for path in given.left_out]
    )
