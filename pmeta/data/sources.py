"""Where the pictures lie: a folder of classes, or the same folder inside .tar and .zip files.

Nothing is ever unpacked.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

SPLITS = ("train", "val", "test")
SPLIT_NAMES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
FRACTIONS = (0.64, 0.16, 0.20)  # of the classes, where the source has no splits of its own
# a larger file is no picture for few-shot learning: it is skipped, never read whole
MAX_FILE_BYTES = 64 * 2**20


class SourceFile(NamedTuple):
    """A file on disk below the root; an archive counts as one file, so looking for changes never
    reads inside it."""

    path: str  # relative to the root, with "/"
    size: int
    mtime_ns: int


class Member(NamedTuple):
    """A file that may be a picture: plain, or a stretch of a .tar, or a member of a .zip."""

    path: str  # relative to the root, as if every archive were unpacked there
    file: str  # the file on disk that holds it
    offset: int  # in that file; -1 in a .zip
    size: int
    inner: str = ""  # the name inside the .zip


def scan(root: Path) -> list[SourceFile]:
    """Every file below `root` (itself, if it is an archive), sorted; names that begin with a dot
    are left out."""
    if root.is_file():
        if not is_archive(root.name):
            raise ValueError(f"data must be a folder, a .tar or a .zip, got the file {root}.")
        stat = root.stat()
        return [SourceFile(root.name, stat.st_size, stat.st_mtime_ns)]
    if not root.is_dir():
        raise ValueError(
            f"no data at {root}: give a folder of classes, a .tar, a .zip, or the word glyphs."
        )
    return sorted(_walk(root, "", set()))


def _walk(folder: Path, prefix: str, seen: set[tuple[int, int]]) -> Iterator[SourceFile]:
    here = os.stat(folder)
    if (here.st_dev, here.st_ino) in seen:  # links may point back up
        return
    seen.add((here.st_dev, here.st_ino))
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.is_dir():
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", seen)
            elif entry.is_file():
                stat = entry.stat()
                yield SourceFile(prefix + entry.name, stat.st_size, stat.st_mtime_ns)


def fingerprint(files: Iterable[SourceFile]) -> str:
    """Sixteen hex digits that change when a name, a size or a modification time does."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(
            f"{file.path}\0{file.size}\0{file.mtime_ns}\n".encode("utf-8", "surrogateescape")
        )
    return digest.hexdigest()[:16]


def list_members(root: Path, files: Iterable[SourceFile]) -> list[Member]:
    """The plain files and, for archives directly in the root, what they hold; of two equal paths
    the plain file counts."""
    base = root if root.is_dir() else root.parent
    members: dict[str, Member] = {}
    inside: dict[str, Member] = {}
    for path, size, _ in files:
        if "/" not in path and is_archive(path):
            for member in _inside(base / path):
                inside[member.path] = member
        else:
            members[path] = Member(path, str(base / path), 0, size)
    return list({**inside, **members}.values())


def is_archive(name: str) -> bool:
    return name.lower().endswith((".tar", ".zip"))


def _inside(archive: Path) -> list[Member]:
    listed = _inside_zip(archive) if archive.name.lower().endswith(".zip") else _inside_tar(archive)
    members = [m for m in listed if not any(is_hidden(part) for part in m.path.split("/"))]
    stem = re.match(r"[a-z]+", archive.name.lower())
    split = SPLIT_NAMES.get(stem.group()) if stem else None
    # train-00.tar that holds <class>/x.jpg
    if split and not any(_split(m.path.split("/")) for m in members):
        members = [m._replace(path=f"{split}/{m.path}") for m in members]
    return members


def _inside_tar(archive: Path) -> list[Member]:
    try:
        # uncompressed, so that every process can seek in it
        with tarfile.open(archive, "r:") as tar:
            return [
                Member(_clean(info.name), str(archive), info.offset_data, info.size)
                for info in tar
                if info.isreg()
            ]
    except tarfile.TarError as error:
        raise ValueError(
            f"cannot read {archive} as an uncompressed tar ({error}): unpack it or make a .zip."
        ) from None


def _inside_zip(archive: Path) -> list[Member]:
    try:
        with zipfile.ZipFile(archive) as file:
            infos = file.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"cannot read {archive} as a zip ({error}): copy it again.") from None
    return [
        Member(_clean(i.filename), str(archive), -1, i.file_size, i.filename)
        for i in infos
        if not i.is_dir()
    ]


def _clean(name: str) -> str:
    # drops "./"; the name is a label here, never a place to write to
    return str(PurePosixPath(name))


def is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


@functools.lru_cache(maxsize=8)
def _zip(path: str, mtime_ns: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)  # kept open from member to member, until the file changes


def read(member: Member) -> bytes:
    """The bytes of one member."""
    if member.size > MAX_FILE_BYTES:
        raise ValueError(
            f"{member.size} bytes, more than the {MAX_FILE_BYTES} that a picture may have"
        )
    if member.offset < 0:
        with _zip(member.file, os.stat(member.file).st_mtime_ns).open(member.inner) as inside:
            return inside.read(member.size)
    with open(member.file, "rb") as file:
        file.seek(member.offset)
        return file.read(member.size)


def group(members: Iterable[Member]) -> dict[tuple[str, str], list[Member]]:
    """(split, class) -> its members, all sorted; the split is "" where the source has none.

    The class is the path of folders above the file, below the split; a folder that wraps everything
    else is passed over.
    """
    parts = {tuple(m.path.split("/")): m for m in members if "/" in m.path}
    while (
        parts
        and len({p[0] for p in parts}) == 1
        and all(len(p) >= 3 and not _split(p) for p in parts)
    ):
        parts = {p[1:]: m for p, m in parts.items()}
    with_splits = any(_split(p) for p in parts)
    groups: dict[tuple[str, str], list[Member]] = {}
    for p in sorted(parts):
        if not with_splits:
            groups.setdefault(("", "/".join(p[:-1])), []).append(parts[p])
        elif _split(p):
            groups.setdefault((_split(p), "/".join(p[1:-1])), []).append(parts[p])
    return dict(sorted(groups.items()))


def _split(path: Sequence[str]) -> str:
    """The split that a path split/class/file begins with; empty where it does not."""
    return SPLIT_NAMES.get(path[0].lower(), "") if len(path) >= 3 else ""


def split_classes(classes: Iterable[str], seed: int = 0) -> dict[str, list[str]]:
    """Share out classes that came without splits: in the order of sha256(seed, class), the first 64
    %, the next 16 %, the last 20 %. The same on every machine, whatever the order they are given
    in.

    >>> {split: len(names) for split, names in split_classes(map(str, range(100))).items()}
    {'train': 64, 'val': 16, 'test': 20}
    """
    order = sorted(
        classes,
        key=lambda name: hashlib.sha256(f"{seed}/{name}".encode("utf-8", "replace")).digest(),
    )
    first = round(FRACTIONS[0] * len(order))
    second = first + round(FRACTIONS[1] * len(order))
    parts = order[:first], order[first:second], order[second:]
    return {split: sorted(part) for split, part in zip(SPLITS, parts, strict=True)}


def split_owners(classes: Iterable[str], seed: int = 0) -> dict[str, str]:
    """The split that each class falls into by `split_classes`."""
    shared = split_classes(classes, seed)
    return {name: split for split, names in shared.items() for name in names}
