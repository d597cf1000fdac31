"""Archives that ask for too much, or are damaged: an error in words, in little memory."""

import io
import pickle
import tarfile
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from pmeta.data.importers import archives, import_data
from pmeta.data.importers.omniglot import CHARACTERS
from pmeta.data.importers.write import Picture, write_pictures
from pmeta.data.open import open_files


def omniglot(src: Path, data: bytes, how: int = zipfile.ZIP_DEFLATED) -> Path:
    """A drawing in each of the two zips."""
    for part in CHARACTERS:
        with zipfile.ZipFile(src / f"{part}.zip", "w", how) as archive:
            archive.writestr(f"{part}/Greek/character01/0394_01.png", data)
    return src


def tgz(path: Path, files: dict[str, bytes], mode: Literal["w:gz", "w:xz"] = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def refused(kind: str, src: Path, dst: Path, words: str, most: int = 8 * 2**20) -> None:
    """An error in these words, and less memory than the archive asks for."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=words):
            import_data(kind, src, dst)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most
    assert not dst.exists()


def test_a_drawing_of_many_megabytes_is_not_unpacked(tmp_path: Path) -> None:
    src = omniglot(tmp_path, bytes(64 * 2**20))
    assert (src / "images_background.zip").stat().st_size < 100_000
    words = r"at most 1,048,576 bytes, images_background/Greek/.*\.png in .* has 67,108,864"
    refused("omniglot", src, tmp_path / "dst", words)


def test_a_bird_of_many_megabytes_is_not_unpacked(tmp_path: Path) -> None:
    src = tgz(tmp_path / "cub.tgz", {"CUB/images/001.Albatross/a.jpg": bytes(64 * 2**20)})
    words = r"at most 16,777,216 bytes, CUB/images/001\.Albatross/a\.jpg in .* has 67,108,864"
    refused("cub", src, tmp_path / "dst", words)


def test_a_part_of_cifar_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pmeta.data.importers.cifar100.PART_BYTES", 2**20)
    src = tgz(tmp_path / "cifar.tar.gz", {"cifar-100-python/train": bytes(32 * 2**20)})
    words = r"at most 1,048,576 bytes, cifar-100-python/train in .* has 33,554,432"
    refused("cifar-fs", src, tmp_path / "dst", words)


@pytest.mark.parametrize(
    ("limit", "value", "words"),
    [
        ("MOST_MEMBERS", 2, r"has more than 2 members, .* has: do not trust it"),
        ("ARCHIVE_BYTES", 100, r"has more than 100 bytes when unpacked, .* has: do not trust it"),
    ],
)
@pytest.mark.parametrize("kind", ["cub", "cifar-fs", "omniglot"])
def test_too_many_members_or_bytes_in_all(
    kind: str, limit: str, value: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, limit, value)
    if kind == "omniglot":
        src = tmp_path
        for part in CHARACTERS:
            with zipfile.ZipFile(src / f"{part}.zip", "w") as archive:
                for i in range(3):
                    archive.writestr(f"{i}", bytes(40))
    else:
        src = tgz(tmp_path / "x.tgz", {f"x/{i}": bytes(40) for i in range(3)})
    refused(kind, src, tmp_path / "dst", words)


def damaged(path: Path) -> None:
    """A stretch of 0xFF over the packed bytes, behind the name and the settings of LZMA."""
    data = bytearray(path.read_bytes())
    at = data.index(b".png") + 20
    data[at : at + 16] = b"\xff" * 16
    path.write_bytes(data)


@pytest.mark.parametrize("how", [zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_corrupt_member(how: int, tmp_path: Path) -> None:
    src = omniglot(tmp_path, np.random.default_rng(0).bytes(500), how)
    for part in CHARACTERS:
        damaged(src / f"{part}.zip")
    refused("omniglot", src, tmp_path / "dst", r"cannot read .*\.zip \(.*\): copy it again", 2**25)


def test_a_corrupt_member_of_a_folder_of_classes_is_skipped(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a/bad.png", np.random.default_rng(0).bytes(500))
    damaged(tmp_path / "x.zip")
    with pytest.raises(ValueError, match=r"none of the 1 files .* is a readable image"):
        open_files(tmp_path / "x.zip", 8, 3, tmp_path / "cache")


@pytest.mark.parametrize("kind", ["cub", "cifar-fs"])
def test_a_tar_whose_packing_is_corrupt(kind: str, tmp_path: Path) -> None:
    name = "a.jpg" if kind == "cub" else "meta"
    content = np.random.default_rng(0).integers(0, 16, 5000, np.uint8).tobytes()
    path = tgz(tmp_path / "x.tgz", {f"images/001.A/{name}": content}, "w:xz")
    data = bytearray(path.read_bytes())
    data[400:500] = b"\xff" * 100
    path.write_bytes(data)
    refused(kind, path, tmp_path / "dst", r"cannot read .*x\.tgz \(", 2**27)


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/x", "a\x1b[2Jb", "a\nb", "", ".x", "a\\b", "x" * 300]
)
def test_a_class_does_not_leave_the_folder(name: str, tmp_path: Path) -> None:
    content = {"image_data": np.zeros((1, 8, 8, 3), np.uint8), "class_dict": {name: [0]}}
    src = tmp_path / "src"
    src.mkdir()
    (src / "mini-imagenet-cache-train.pkl").write_bytes(pickle.dumps(content, 2))
    (tmp_path / "in").mkdir()
    words = r"cannot be the name of a picture here|cannot write .* \(File name too long\)"
    with pytest.raises(ValueError, match=words):
        import_data("miniimagenet-pickle", src, tmp_path / "in" / "dst")
    left = {p.relative_to(tmp_path).parts[0] for p in tmp_path.rglob("*")}
    assert left == {"src", "in"}
    assert not list(tmp_path.rglob("*.png"))


@pytest.mark.parametrize(
    "content",
    [
        {"image_data": np.zeros((1, 8, 8, 3), np.uint8), "class_dict": {"a": [5]}},
        {"image_data": np.zeros((1, 8, 8, 3), np.uint8), "class_dict": {"a": 5}},
        {"image_data": np.zeros((1, 8, 8, 3), np.uint8), "class_dict": {7: [0]}},
        {"image_data": np.zeros((1, 8, 8, 3), np.uint8), "class_dict": ["a"]},
    ],
)
def test_a_pickle_of_other_things_is_named(content: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "mini-imagenet-cache-train.pkl").write_bytes(pickle.dumps(content, 2))
    words = r"is not miniimagenet-pickle as it was published|names in a pickle are strings, got int"
    with pytest.raises(ValueError, match=words):
        import_data("miniimagenet-pickle", tmp_path, tmp_path / "dst")


def test_more_pictures_than_the_set_has(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    pictures = (Picture("train", "a", f"{i}.png", b"x") for i in range(4))
    with pytest.raises(ValueError, match=r"^cub has 3 pictures, .* has more: the source is not"):
        write_pictures(pictures, "cub", tmp_path / "src", tmp_path / "dst", 3)
