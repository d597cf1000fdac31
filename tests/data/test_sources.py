"""Folders, tars and zips of classes."""

import io
import os
import tarfile
import zipfile

import pytest

from pmeta.data.sources import (
    MAX_FILE_BYTES,
    Member,
    fingerprint,
    group,
    list_members,
    read,
    scan,
    split_classes,
)


def write(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(path.encode())
    return root


def tar(path, *names, **kinds):
    with tarfile.open(path, kinds.get("mode", "w")) as file:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            file.addfile(info, io.BytesIO(name.encode()))


def zip_file(path, *names):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(name, name)


def layout(root):
    """{(split, class): contents} as the package sees it; each test file holds its own name."""
    groups = group(list_members(root, scan(root)))
    return {key: [read(member).decode() for member in members] for key, members in groups.items()}


def test_folder_with_splits(tmp_path):
    write(
        tmp_path,
        "train/b/2.png",
        "train/b/1.png",
        "train/a/1.png",
        "test/c/1.png",
        "README",
        "train/stray.png",
    )
    assert layout(tmp_path) == {
        ("test", "c"): ["test/c/1.png"],
        ("train", "a"): ["train/a/1.png"],
        ("train", "b"): ["train/b/1.png", "train/b/2.png"],
    }


def test_splits_in_capitals(tmp_path):
    write(tmp_path, "Train/a/1.png", "Test/a/1.png", "VAL/b/1.png")
    assert list(layout(tmp_path)) == [("test", "a"), ("train", "a"), ("val", "b")]


def test_folder_without_splits_and_deeper_classes(tmp_path):
    write(tmp_path, "Greek/alpha/1.png", "Greek/beta/1.png", "Latin/a/1.png")
    assert list(layout(tmp_path)) == [("", "Greek/alpha"), ("", "Greek/beta"), ("", "Latin/a")]


def test_a_class_may_be_called_train(tmp_path):
    write(tmp_path, "train/1.jpg", "bus/1.jpg")
    assert list(layout(tmp_path)) == [("", "bus"), ("", "train")]


def test_other_words_for_val(tmp_path):
    write(tmp_path, "train/a/1.png", "validation/b/1.png")
    assert list(layout(tmp_path)) == [("train", "a"), ("val", "b")]


def test_hidden_files_are_left_out(tmp_path):
    write(tmp_path, "a/1.png", "a/.DS_Store", ".pmeta-cache/x/1.png", "__MACOSX/a/1.png")
    assert layout(tmp_path) == {("", "a"): ["a/1.png"]}


def test_a_folder_around_everything_is_passed_over(tmp_path):
    write(tmp_path, "mini-imagenet/train/a/1.png", "mini-imagenet/val/b/1.png")
    assert list(layout(tmp_path)) == [("train", "a"), ("val", "b")]


def test_links_that_point_upwards_end(tmp_path):
    write(tmp_path, "a/1.png")
    os.symlink(tmp_path, tmp_path / "a" / "loop")
    assert layout(tmp_path) == {("", "a"): ["a/1.png"]}


@pytest.mark.parametrize("make", [tar, zip_file])
def test_the_root_may_be_an_archive(tmp_path, make):
    path = tmp_path / ("birds.tar" if make is tar else "birds.zip")
    make(path, "./train/a/1.png", "./val/b/1.png")
    assert {key: len(found) for key, found in layout(path).items()} == {
        ("train", "a"): 1,
        ("val", "b"): 1,
    }


def test_a_folder_of_archives_is_read_as_if_unpacked(tmp_path):
    tar(tmp_path / "train-00.tar", "train/a/1.png")
    tar(tmp_path / "train-01.tar", "train/a/2.png", "train/b/1.png")
    zip_file(tmp_path / "val-00.zip", "val/c/1.png")
    assert layout(tmp_path) == {
        ("train", "a"): ["train/a/1.png", "train/a/2.png"],
        ("train", "b"): ["train/b/1.png"],
        ("val", "c"): ["val/c/1.png"],
    }


def test_an_archive_named_after_a_split_stands_for_its_folder(tmp_path):
    tar(tmp_path / "train.tar", "a/1.png", "b/1.png")
    zip_file(tmp_path / "val_0.zip", "c/1.png")
    assert list(layout(tmp_path)) == [("train", "a"), ("train", "b"), ("val", "c")]


def test_an_unpacked_file_counts_before_the_same_one_in_an_archive(tmp_path):
    tar(tmp_path / "train.tar", "train/a/1.png")
    write(tmp_path, "train/a/1.png").joinpath("train/a/1.png").write_bytes(b"newer")
    assert layout(tmp_path) == {("train", "a"): ["newer"]}


def test_names_that_climb_out_of_an_archive_are_only_labels(tmp_path):
    inside = tmp_path / "in"
    inside.mkdir()
    tar(inside / "x.tar", "../../evil/1.png", "/abs/evil/1.png", "a/1.png")
    before = sorted(tmp_path.rglob("*"))
    layout(inside / "x.tar")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_zip_that_changes_is_read_anew(tmp_path):
    zip_file(tmp_path / "x.zip", "a/1.png", "b/1.png")
    assert list(layout(tmp_path / "x.zip")) == [("", "a"), ("", "b")]
    zip_file(tmp_path / "x.zip", "c/longer.png", "d/1.png")
    os.utime(tmp_path / "x.zip", ns=(7, 7))
    assert layout(tmp_path / "x.zip") == {("", "c"): ["c/longer.png"], ("", "d"): ["d/1.png"]}


def test_links_inside_a_tar_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    with tarfile.open(tmp_path / "x.tar", "w") as file:
        for kind, name in ((tarfile.SYMTYPE, "a/link.png"), (tarfile.LNKTYPE, "a/hard.png")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "../secret"
            file.addfile(info)
    assert layout(tmp_path / "x.tar") == {}


def test_errors_say_what_to_do(tmp_path):
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(
        ValueError, match=r"data must be a folder, a \.tar or a \.zip, got the file .*x\.txt\."
    ):
        scan(tmp_path / "x.txt")
    with pytest.raises(
        ValueError,
        match=(
            r"no data at .*nowhere: give a folder of classes, a \.tar, a \.zip, or the word glyphs"
        ),
    ):
        scan(tmp_path / "nowhere")
    tar(tmp_path / "packed.tar", "a/1.png", mode="w:gz")
    with pytest.raises(
        ValueError,
        match=r"cannot read .*packed\.tar as an uncompressed tar .*: unpack it or make a \.zip",
    ):
        layout(tmp_path / "packed.tar")
    (tmp_path / "broken.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"cannot read .*broken\.zip as a zip .*: copy it again"):
        layout(tmp_path / "broken.zip")


def test_a_huge_file_is_not_read():
    with pytest.raises(
        ValueError,
        match=f"{MAX_FILE_BYTES + 1} bytes, more than the {MAX_FILE_BYTES} that a picture may",
    ):
        read(Member("a/1.png", "/nowhere", 0, MAX_FILE_BYTES + 1))


def test_the_fingerprint_changes_with_names_sizes_and_times(tmp_path):
    write(tmp_path, "a/1.png", "a/2.png")
    marks = [fingerprint(scan(tmp_path))]
    assert fingerprint(scan(tmp_path)) == marks[0]
    os.utime(tmp_path / "a/1.png", ns=(1, 1))
    marks.append(fingerprint(scan(tmp_path)))
    (tmp_path / "a/1.png").write_bytes(b"longer than it was")
    os.utime(tmp_path / "a/1.png", ns=(1, 1))
    marks.append(fingerprint(scan(tmp_path)))
    (tmp_path / "a/2.png").rename(tmp_path / "a/3.png")
    marks.append(fingerprint(scan(tmp_path)))
    assert len(set(marks)) == 4


def test_classes_are_shared_out_by_name_not_by_order():
    names = [f"class {i}" for i in range(50)]
    shares = split_classes(names)
    assert shares == split_classes(reversed(names))
    assert {split: len(share) for split, share in shares.items()} == {
        "train": 32,
        "val": 8,
        "test": 10,
    }
    assert sorted(name for share in shares.values() for name in share) == sorted(names)
    assert split_classes(names, seed=1) != shares
