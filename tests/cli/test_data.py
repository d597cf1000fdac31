"""The command `pmeta data`."""

import json
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from pmeta.cli import main
from pmeta.cli.data import SHEET_IMAGES


@pytest.fixture
def birds(tmp_path):
    for split, classes, images in (("train", 3, 4), ("val", 2, 4), ("val", 1, 5)):
        for j in range(classes):
            folder = tmp_path / "birds" / split / f"{images}-{j}"
            folder.mkdir(parents=True)
            for k in range(images):
                Image.new("RGB", (8, 6), (10 * k, 0, 255)).save(folder / f"{k}.png")
    return tmp_path / "birds"


def test_info_says_what_is_there(birds, capsys):
    assert main(["data", "info", str(birds)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "train   3 classes, 12 images (4 each)",
        "val     3 classes, 13 images (4 to 5 each)",
        "test    0 classes, 0 images",
        "images  6 x 8, colour",
    ]


def test_info_names_what_was_skipped(birds, capsys):
    (birds / "train/4-0/notes.txt").write_text("notes")
    assert main(["data", "info", str(birds), "--size", "5"]) == 0
    assert (
        "images  5 x 5, colour\nskipped 1 files, first train/4-0/notes.txt: not an image\n"
        in capsys.readouterr().out
    )


def test_info_as_json(birds, capsys):
    assert main(["data", "info", str(birds), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["images_per_class"] == {"train": [4, 4, 4], "val": [4, 4, 5], "test": []}
    assert (found["height"], found["width"], found["channels"], found["skipped"]) == (6, 8, 3, [])


def test_info_of_a_root_without_splits_shows_the_splits_it_gets(tmp_path, capsys):
    for j in range(25):
        (tmp_path / "flat" / str(j)).mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / "flat" / str(j) / "1.png")
    assert main(["data", "info", str(tmp_path / "flat")]) == 0
    out = capsys.readouterr().out
    assert "train   16 classes" in out
    assert "val     4 classes" in out
    assert "test    5 classes" in out
    assert "images  4 x 4, grey" in out


def test_a_contact_sheet_shows_a_class_a_row(birds, tmp_path):
    assert (
        main(["data", "info", str(birds), "--sheet", str(tmp_path / "sheet")]) == 0
    )  # a PNG, whatever its name
    sheet = np.asarray(Image.open(tmp_path / "sheet"))
    margin = sheet.shape[1] - SHEET_IMAGES * (8 + 2)
    assert sheet.shape == (6 * (6 + 2), sheet.shape[1], 3)
    names, sheet = sheet[:, :margin], sheet[:, margin:]
    assert sheet[1, 1 + 10 * 2].tolist() == [20, 0, 255]  # the third image of the first class
    assert sheet[1, 1 + 10 * 7].tolist() == [96, 96, 96]  # it has no eighth
    for row in range(6):  # each has the name of its class in ink
        assert names[8 * row : 8 * row + 8].min() < 128
    assert not np.array_equal(names[:8], names[8:16])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "nowhere"], "no data at .*nowhere: give a folder"),
        (["info", "x", "--size", "0"], "the size of images must be at least 1, got 0"),
        (["import", "cub", "nowhere", "dst"], "nowhere is not there; for cub give"),
        (
            ["import", "cub"],
            r"the following arguments are required: SRC, DST \(see pmeta data import --help\)",
        ),
        ([], r"the following arguments are required: \{import,info\} \(see pmeta data --help\)"),
    ],
)
def test_mistakes_end_with_one_line(arguments, message, capsys):
    assert main(["data", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert re.search(f"^pmeta: error: {message}", err)


def test_pictures_need_no_torch():
    code = (
        "import sys, pmeta.cli.data; sys.exit('torch' in sys.modules or 'matplotlib' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_import_ends_with_what_was_made(tmp_path, capsys):
    content = {"image_data": np.zeros((2, 4, 4, 3), np.uint8), "class_dict": {"a": [0], "b": [1]}}
    (tmp_path / "mini-imagenet-cache-train.pkl").write_bytes(pickle.dumps(content, 2))
    given = ["miniimagenet-pickle", str(tmp_path), str(tmp_path / "dst")]
    assert main(["data", "import", *given]) == 0
    assert capsys.readouterr().out.startswith(
        "train   2 classes, 2 images (1 each)\nval     0 classes"
    )
