"""Pictures of any kind to uint8 arrays of one shape, in parallel."""

from __future__ import annotations

import contextlib
import io
import itertools
import shutil
import struct
import sys
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import ExifTags, Image, ImageOps

from pmeta.base import processes as pool
from pmeta.data.cache import Cached, cache_folder, open_or_build
from pmeta.data.glyphs import open_glyphs
from pmeta.data.sources import Member, fingerprint, group, list_members, read, scan

VERSION = 1  # of the decoding and of the JSON: a change here decodes again
PARALLEL_FROM = 2000  # with fewer files, starting processes costs more than it saves
CHUNK = 64
GREY = ("1", "L", "LA", "I;16", "I;16B", "I;16L")
# What Pillow and zipfile raise for files that are broken, encrypted or no images.
UNREADABLE = (
    *(OSError, ValueError, SyntaxError, EOFError, RuntimeError, MemoryError),
    *(
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
        struct.error,
        zlib.error,
        zipfile.BadZipFile,
    ),
)
TURN = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes a picture upright, by its EXIF orientation."""


class DifferentSizesError(ValueError):
    """Not an unreadable file but a question to the user, so it is not skipped."""


Decoded = (
    bytes | str | DifferentSizesError
)  # the pixels, or why the file is skipped, or why nothing works


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
    return open_images(Path(root), size, channels, cache)


def open_images(
    root: Path, size: int | None, channels: int | None, cache: Path | None = None
) -> Cached:
    """The images of `root`, fitted to size x size, decoded now if that has not been done since the source last changed.

    `size` None takes them as they are (all must be equal); `channels` None is 1 if every picture is grey, else 3.
    """
    root = root.resolve()
    found = scan(root)
    folder = cache_folder(root if root.is_dir() else root.parent, cache)
    key = f"{root.name}-{size or 'own'}-{channels or 'auto'}"

    def build(file: BinaryIO) -> dict[str, Any]:
        groups = group(list_members(root, found))
        members = [member for group_members in groups.values() for member in group_members]
        if not members:
            raise ValueError(
                f"{root} has no classes: expected <class>/<image> or {{train,val,test}}/<class>/<image>."
            )
        shape = (size, size) if size else _own_size(members)
        depth = channels or (1 if _all_grey(members) else 3)
        _check_space(folder, len(members) * shape[0] * shape[1] * depth)
        return _write_groups(
            file,
            groups,
            decode_many(members, shape, depth, exact=size is None),
            (*shape[::-1], depth),
        )

    return open_or_build(folder, key, f"{fingerprint(found)}-v{VERSION}", str(root), build)


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
    for results in pool.run(
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


def decode(data: bytes, shape: tuple[int, int], channels: int, exact: bool = False) -> bytes:
    """One picture as height * width * channels bytes, for shape = (width, height).

    Turned upright by its EXIF orientation; transparent parts become white; 16 bits a pixel become 8; scaled so that the
    short side fits and cropped at the centre. With `exact` a picture of another size is an error.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(io.BytesIO(data)) as opened:
            image = _upright(opened)
    if exact and image.size != shape:
        raise DifferentSizesError(
            f"{image.width}x{image.height} and others are {shape[0]}x{shape[1]}: give a size to fit them to."
        )
    flat = _flatten(image).convert("L" if channels == 1 else "RGB")
    return ImageOps.fit(flat, shape, Image.Resampling.BICUBIC).tobytes()


def _orientation(image: Image.Image) -> Any:
    return image.getexif().get(ExifTags.Base.Orientation, 1)


def _upright(image: Image.Image) -> Image.Image:
    """A copy. Pillow's own `exif_transpose` also writes the EXIF again, which fails where other tags are odd."""
    turn = TURN.get(_orientation(image))
    return image.copy() if turn is None else image.transpose(turn)


def _flatten(image: Image.Image) -> Image.Image:
    """At most 8 bits a channel, nothing transparent."""
    if image.mode.startswith("I;16"):
        pixels = np.asarray(image)
        white = pixels == image.info.get("transparency", -1)
        return Image.fromarray(np.where(white, 255, pixels >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(
            f"32-bit pixels (mode {image.mode}): what counts as white in them is unknown"
        )
    if image.has_transparency_data:
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image


def _headers(members: list[Member]) -> Iterator[tuple[str, tuple[int, int]]]:
    """(mode, upright size) of those members that are images, without decoding them."""
    for member in members:
        with warnings.catch_warnings(), contextlib.suppress(*UNREADABLE):
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(read(member))) as image:
                on_its_side = _orientation(image) in (5, 6, 7, 8)
                yield image.mode, (image.size[::-1] if on_its_side else image.size)


def _all_grey(members: list[Member]) -> bool:
    return all(mode in GREY for mode, _ in _headers(members))


def _own_size(members: list[Member]) -> tuple[int, int]:
    for _, size in _headers(members):
        return size
    raise ValueError(f"none of the {len(members)} files in the class folders is a readable image.")


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"the decoded images take {needed / 1e9:.2f} GB and {folder} has {free / 1e9:.2f} GB free:"
            " set PMETA_CACHE to a folder with more."
        )


def report_skipped(skipped: list[tuple[str, str]], total: int, shown: int = 10) -> None:
    """Name the files that were left out, on stderr."""
    if not skipped:
        return
    print(f"skipped {len(skipped)} of {total} files:", file=sys.stderr)
    for path, why in skipped[:shown]:
        print(f"  {path}: {why}", file=sys.stderr)
    if len(skipped) > shown:
        print(f"  and {len(skipped) - shown} more", file=sys.stderr)
