"""Which data sets `pmeta reproduce` finds, and what it says of those that are missing."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pmeta.reproduce.data import missing_line, named, open_datasets


def pictures(root: Path, *splits: str) -> str:
    for split in splits:
        for name in ("a", "b"):
            folder = root / split / name
            folder.mkdir(parents=True)
            Image.fromarray(np.zeros((16, 16, 3), dtype=np.uint8)).save(folder / "1.png")
    return str(root)


def test_recognised_by_the_last_folder_or_by_name() -> None:
    assert named(["/data/miniImageNet", "CUB_200_2011.tar", "tiered-imagenet"]) == {
        "mini": "/data/miniImageNet",
        "cub": "CUB_200_2011.tar",
        "tiered": "tiered-imagenet",
    }
    assert named(["mini=/data/birds=1", "glyphs-are-no-set/cub"]) == {
        "mini": "/data/birds=1",
        "cub": "glyphs-are-no-set/cub",
    }
    assert named(["glyphs"]) == {"mini": "glyphs"}
    assert named([]) == {}


@pytest.mark.parametrize("word", ["/data/mini/birds", "omniglot=DIR", "=DIR"])
def test_not_recognised(word: str) -> None:
    message = (
        f"--data takes mini=DIR, tiered=DIR and cub=DIR, or folders with such names, got {word!r}."
    )
    with pytest.raises(ValueError, match=r"^--data takes") as error:
        named([word])
    assert str(error.value) == message


def test_two_folders_for_one_data_set() -> None:
    with pytest.raises(ValueError, match=r"^--data takes one folder for CUB, got a/cub and b\.$"):
        named(["a/cub", "cub=b"])


def test_test_classes_are_evaluated_on_and_val_where_there_are_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMETA_CACHE", str(tmp_path / "cache"))
    pictures(tmp_path / "mini", "train", "val")
    pictures(tmp_path / "tiered", "train", "val", "test")
    pictures(tmp_path / "cub", "")
    monkeypatch.chdir(tmp_path)
    found = open_datasets(["mini", "tiered", "cub"], 16)
    assert {name: (d.title, d.split) for name, d in found.items()} == {
        "mini": ("MiniImageNet", "val"),
        "tiered": ("TieredImageNet", "test"),
        "cub": ("CUB", "test"),
    }
    assert found["mini"].root == str(tmp_path / "mini")  # wherever the next command is started


def test_no_data_set_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^no data at .*mini: give a folder of classes"):
        open_datasets([str(tmp_path / "mini")], 16)


def test_what_to_put_where() -> None:
    assert missing_line("cub") == (
        "no CUB: its columns are left out. With it: --data cub=DIR, a folder, .tar or .zip of "
        "train, val and test (pmeta data import cub SRC DIR makes one)."
    )
    assert missing_line("mini").startswith("no MiniImageNet: nothing can be trained on images.")
