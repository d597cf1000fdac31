"""Omniglot (Lake et al. 2015): 1,623 characters of 50 alphabets, 20 drawings each, in the split of
Vinyals et al. 2016."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from pmeta.data.importers.write import Picture

CHARACTERS = {"images_background": 964, "images_evaluation": 659}
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
        try:
            with zipfile.ZipFile(path) as archive:
                for info in archive.infolist():
                    match = re.fullmatch(
                        rf"{part}/([^/]+)/([^/]+)/([^/.][^/]*\.png)", info.filename
                    )
                    if match:
                        alphabet, character, file = match.groups()
                        seen.add(f"{alphabet}/{character}")
                        yield Picture(
                            split_of(part, alphabet, character),
                            f"{alphabet}/{character}",
                            file,
                            archive.read(info),
                        )
        except (zipfile.BadZipFile, zlib.error, RuntimeError) as error:
            raise ValueError(f"cannot read {path} ({error}): copy it again.") from None
        if len(seen) != expected:
            raise ValueError(
                f"{part}.zip has {expected} characters, and {path} has {len(seen)}: it is not "
                "whole."
            )
