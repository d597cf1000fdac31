"""Open all pictures of a source: each decoded once, in parallel, and kept in the cache."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from PIL import Image

from pmeta.base import processes
from pmeta.base.files import cache_folder
from pmeta.base.terminal import printable
from pmeta.data.cache import Cached, open_or_build
from pmeta.data.decode import UNREADABLE, DifferentSizesError, decode, open_picture, orientation
from pmeta.data.glyphs import open_glyphs
from pmeta.data.sources import Member, fingerprint, group, list_members, read, scan, split_owners

VERSION = 1  # of the decoding and of the JSON: a change here decodes again
PARALLEL_FROM = 2000  # with fewer files, starting processes costs more than it saves
CHUNK = 64
GREY = ("1", "L", "LA", "I;16", "I;16B", "I;16L")
Decoded = bytes | str | DifferentSizesError
"""The pixels, or why the file is skipped, or why nothing works."""


def open_source(
    root: str | Path, size: int | None, channels: int | None, cache: Path | None = None
) -> Cached:
    """All splits of a folder, .tar or .zip, or of the embedded set `glyphs`."""
    if size is not None and size < 1:
        raise ValueError(f"the size of images must be at least 1, got {size}.")
    if channels not in (None, 1, 3):
        raise ValueError(f"images have 1 channel (grey) or 3 (colour), got {channels}.")
    if str(root) == "glyphs":
        return open_glyphs(size, channels, cache)
    return open_files(Path(root), size, channels, cache)


def with_splits(cached: Cached, seed: int = 0) -> list[tuple[str, str, int, int]]:
    """The classes with the split that each falls into, also where the source has none."""
    if any(split for split, *_ in cached.classes):
        return cached.classes
    owner = split_owners((name for _, name, *_ in cached.classes), seed)
    return [(owner[name], name, first, count) for _, name, first, count in cached.classes]


def open_files(
    root: Path, size: int | None, channels: int | None, cache: Path | None = None
) -> Cached:
    """The images of `root`, fitted to size x size, decoded now if that has not been done since the
    source last changed.

    `size` None takes them as they are (all must be equal); `channels` None is 1 if every picture is
    grey, else 3.
    """
    root = root.resolve()
    files = scan(root)
    folder = cache_folder(cache)
    key = f"{root.name}-{size or 'own'}-{channels or 'auto'}"

    def build(file: BinaryIO) -> dict[str, Any]:
        groups = group(list_members(root, files))
        members = [member for group_members in groups.values() for member in group_members]
        if not members:
            raise ValueError(
                f"{root} has no classes: expected <class>/<image> or "
                f"{{train,val,test}}/<class>/<image>."
            )
        shape = (size, size) if size else _own_size(members)
        depth = channels or (1 if all(mode in GREY for mode, _ in _headers(members)) else 3)
        _check_space(folder, len(members) * shape[0] * shape[1] * depth)
        decoded = decode_many(members, shape, depth, exact=size is None)
        return _write_groups(file, groups, decoded, (*shape[::-1], depth))

    return open_or_build(folder, key, f"{fingerprint(files)}-v{VERSION}", str(root), build)


def _write_groups(
    file: BinaryIO,
    groups: dict[tuple[str, str], list[Member]],
    decoded: Iterator[Decoded],
    shape: tuple[int, int, int],
) -> dict[str, Any]:
    owners = [(key, member.path) for key, members in groups.items() for member in members]
    counts: Counter[tuple[str, str]] = Counter()
    skipped = []
    for (key, path), pixels in zip(owners, decoded, strict=True):
        if isinstance(pixels, bytes):
            file.write(pixels)
            counts[key] += 1
        elif isinstance(pixels, str):
            skipped.append((path, pixels))
        else:
            raise DifferentSizesError(f"{path} is {pixels}")
    report_skipped(skipped, len(owners))
    if not counts:
        raise ValueError(
            f"none of the {len(owners)} files in the class folders is a readable image."
        )
    firsts = itertools.accumulate(counts.values(), initial=0)
    classes = [
        (*key, first, count) for (key, count), first in zip(counts.items(), firsts, strict=False)
    ]
    return {"shape": [counts.total(), *shape], "classes": classes, "skipped": skipped}


def decode_many(
    members: list[Member], shape: tuple[int, int], channels: int, exact: bool
) -> Iterator[Decoded]:
    """The pixels of each member, or why there are none, in order."""
    jobs = [(members[i : i + CHUNK], shape, channels, exact) for i in range(0, len(members), CHUNK)]
    for results in processes.run(
        _decode_chunk, jobs, "decoding images", parallel=len(members) >= PARALLEL_FROM
    ):
        yield from results


def _decode_chunk(job: tuple[list[Member], tuple[int, int], int, bool]) -> list[Decoded]:
    members, shape, channels, exact = job
    return [_decode_or_reason(member, shape, channels, exact) for member in members]


def _decode_or_reason(
    member: Member, shape: tuple[int, int], channels: int, exact: bool
) -> Decoded:
    try:
        return decode(read(member), shape, channels, exact)
    except DifferentSizesError as error:
        return error
    except Image.UnidentifiedImageError:
        return "not an image"
    except UNREADABLE as error:
        return str(error).rstrip(".") or type(error).__name__


def _headers(members: list[Member]) -> Iterator[tuple[str, tuple[int, int]]]:
    """(mode, upright size) of those members that are images, without decoding them."""
    for member in members:
        with warnings.catch_warnings(), contextlib.suppress(*UNREADABLE):
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_picture(read(member)) as image:
                on_its_side = orientation(image) in (5, 6, 7, 8)
                yield image.mode, (image.size[::-1] if on_its_side else image.size)


def _own_size(members: list[Member]) -> tuple[int, int]:
    for _, size in _headers(members):
        return size
    raise ValueError(f"none of the {len(members)} files in the class folders is a readable image.")


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"the decoded images take {needed / 1e9:.2f} GB and {folder} has {free / 1e9:.2f} GB "
            "free: set PMETA_CACHE to a folder with more."
        )


def report_skipped(skipped: list[tuple[str, str]], total: int, shown: int = 10) -> None:
    """Name the files that were left out, on stderr."""
    if not skipped:
        return
    print(f"skipped {len(skipped)} of {total} files:", file=sys.stderr)
    for path, why in skipped[:shown]:
        print(f"  {printable(path)}: {printable(why)}", file=sys.stderr)
    if len(skipped) > shown:
        print(f"  and {len(skipped) - shown} more", file=sys.stderr)
