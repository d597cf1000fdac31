"""`pmeta data`: take in a data set of another layout, or look at one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from pmeta.base.arguments import Parser
from pmeta.base.terminal import printable
from pmeta.data.importers import KINDS, RECORDINGS, import_data
from pmeta.data.open import open_source, with_splits
from pmeta.data.sources import SPLITS, group, list_members, scan

SHEET_CLASSES, SHEET_IMAGES = 24, 12  # rows and columns of a contact sheet
SHEET_LETTERS = 28  # of the name of a class


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options of `pmeta data import` or `pmeta data info`."""
    parser = Parser(prog="pmeta data", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="{import,info}")
    kinds = "\n".join(f"  {kind:<21}{src}" for kind, (_, _, src) in KINDS.items())
    taking = commands.add_parser(
        "import",
        help="turn a published data set into a folder of classes",
        description=(
            f"Turn a published data set into a folder of classes.\n\nKIND and what SRC is:\n{kinds}"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    taking.add_argument("kind", metavar="KIND")
    taking.add_argument("src", metavar="SRC", type=Path)
    new = "the folder to make; it must not be there yet"
    taking.add_argument("dst", metavar="DST", type=Path, help=new)
    what = "classes, images and their size"
    info = commands.add_parser("info", help=what, description=f"{what.capitalize()}.")
    add = info.add_argument
    add("root", metavar="ROOT", help="a folder of classes, a .tar, a .zip, or glyphs")
    add("--size", type=int, metavar="N", help="fit the images to N x N (default: as they are)")
    add("--sheet", type=Path, metavar="PNG", help="write a contact sheet of some classes here")
    add("--json", action="store_true", help="print one JSON object")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    """Run `pmeta data` with these arguments."""
    options = parse(argv)
    if options.command == "import":
        import_data(options.kind, options.src, options.dst)
        if options.kind in RECORDINGS:
            files = [path.parts for path in options.dst.glob("*/*/*.csv")]
            print(f"{len({parts[-3] for parts in files})} people, {len(files)} recordings")
            return
        groups = group(list_members(options.dst, scan(options.dst)))
        sizes = [(own, len(members)) for (own, _), members in groups.items()]
        show({split: [n for own, n in sizes if own == split] for split in SPLITS})
    else:
        info(options)


def info(options: argparse.Namespace) -> None:
    """Open the set, which decodes it if need be, and say what is in it."""
    cached = open_source(options.root, options.size, None)
    classes = with_splits(cached)
    counts = {split: [count for own, _, _, count in classes if own == split] for split in SPLITS}
    _, height, width, channels = cached.images.shape
    if options.json:
        found = {"root": options.root, "height": height, "width": width, "channels": channels}
        print(json.dumps(found | {"images_per_class": counts, "skipped": cached.skipped}))
    else:
        show(counts)
        print(f"images  {height} x {width}, {'grey' if channels == 1 else 'colour'}")
        if cached.skipped:
            first = printable(": ".join(cached.skipped[0]))
            print(f"skipped {len(cached.skipped)} files, first {first}")
    if options.sheet:
        contact_sheet(cached.images, classes).save(options.sheet, format="PNG")


def show(counts: dict[str, list[int]]) -> None:
    """A line for each split."""
    for split, images in counts.items():
        line = f"{split:<8}{len(images)} classes, {sum(images)} images"
        if images:
            line += f" ({' to '.join(map(str, sorted({min(images), max(images)})))} each)"
        print(line)


def contact_sheet(images: np.ndarray, classes: list[tuple[str, str, int, int]]) -> Image.Image:
    """A row for each of some classes spread over the set, with their first images."""
    step = max(1, len(classes) // SHEET_CLASSES)
    chosen = classes[::step][:SHEET_CLASSES]
    _, height, width, channels = images.shape
    sheet = np.full(
        (len(chosen), height + 2, SHEET_IMAGES, width + 2, channels), 96, dtype=np.uint8
    )
    for row, (_, _, first, count) in enumerate(chosen):
        shown = images[first : first + min(count, SHEET_IMAGES)]  # (n, H, W, C)
        sheet[row, 1:-1, : len(shown), 1:-1] = shown.transpose(1, 0, 2, 3)
    flat = sheet.reshape(len(chosen) * (height + 2), SHEET_IMAGES * (width + 2), channels)
    pictures = Image.fromarray(flat[..., 0] if channels == 1 else flat)
    return with_names(pictures, [name for _, name, _, _ in chosen], height + 2)


def with_names(pictures: Image.Image, names: Sequence[str], row: int) -> Image.Image:
    """The same with a column of names at the left, one for each row of pictures."""
    font = ImageFont.load_default(max(8, min(16, row // 2)))
    shown = [
        name if len(name) <= SHEET_LETTERS else f"{name[: SHEET_LETTERS - 1]}…" for name in names
    ]
    margin = 8 + max(round(font.getlength(name)) for name in shown)
    sheet = Image.new(pictures.mode, (margin + pictures.width, pictures.height), "white")
    sheet.paste(pictures, (margin, 0))
    draw = ImageDraw.Draw(sheet)
    for i, name in enumerate(shown):
        draw.text((4, i * row + row / 2), name, fill="black", font=font, anchor="lm")
    return sheet
