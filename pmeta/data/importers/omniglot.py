"""Omniglot (Lake et al. 2015): 1,623 characters, in the split of Vinyals et al. 2016."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pmeta.data.importers.archives import reading, zip_members
from pmeta.data.importers.write import Picture

CHARACTERS = {"images_background": 964, "images_evaluation": 659}
DRAWING_BYTES = 2**20
"""At most; a drawing of 105 x 105 pixels has some hundred bytes."""
VALIDATION = ("Armenian", "Bengali", "Early_Aramaic", "Hebrew", "Mkhedruli_(Georgian)")
FIRST_OF_TEST = ("Gurmukhi", "character42")


def split_of(part: str, alphabet: str, character: str) -> str:
    """1,028, 172 and 423 characters: five background alphabets validate, and of the evaluation
    alphabets, in the order of the alphabet, all from Gurmukhi's character42 on test."""
    if part == "images_background":
        return "val" if alphabet in VALIDATION else "train"
    return "test" if (alphabet, character) >= FIRST_OF_TEST else "train"


def pictures(src: Path) -> Iterator[Picture]:
    """<part>/<alphabet>/<character>/<drawing>.png of images_background.zip and
    images_evaluation.zip, kept as they are."""
    for part in CHARACTERS:
        if not (src / f"{part}.zip").is_file():
            raise ValueError(
                f"{src / part}.zip is missing: the split takes characters of both zips."
            )
    for part, expected in CHARACTERS.items():
        path = src / f"{part}.zip"
        seen: set[str] = set()
        with reading(path, "copy it again"):
            for inside, read in zip_members(path, DRAWING_BYTES):
                match = re.fullmatch(rf"{part}/([^/]+)/([^/]+)/([^/.][^/]*\.png)", inside)
                if match:
                    alphabet, character, file = match.groups()
                    name = f"{alphabet}/{character}"
                    seen.add(name)
                    yield Picture(split_of(part, alphabet, character), name, file, read())
        if len(seen) != expected:
            raise ValueError(
                f"{part}.zip has {expected} characters, and {path} has {len(seen)}: it is not "
                "whole."
            )
