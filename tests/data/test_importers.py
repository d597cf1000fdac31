"""Each importer on a small source in the true format; a killed import is taken up again."""

import io
import json
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pmeta.data.importers import KINDS, import_data
from pmeta.data.importers.cifar100 import CIFAR_FS
from pmeta.data.importers.omniglot import CHARACTERS
from pmeta.data.importers.write import Picture, write_pictures
from pmeta.data.sources import group, list_members, scan
from pmeta.data.tasks import open_split


def picture(seed: int, size: int = 8, kind: str = "png") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels(seed, size)).save(file, kind)
    return file.getvalue()


def pixels(seed: int, size: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)


def layout(root: Path) -> dict[tuple[str, str], int]:
    return {key: len(members) for key, members in group(list_members(root, scan(root))).items()}


def count(root: Path) -> dict[str, int]:
    """Classes in each split."""
    splits = [split for split, _ in layout(root)]
    return {split: splits.count(split) for split in sorted(set(splits))}


@pytest.mark.parametrize("python2", [False, True])
def test_miniimagenet_pickles(tmp_path, python2):
    src = tmp_path / "src"
    src.mkdir()
    for split, classes in (("train", ["n01", "n02"]), ("val", ["n03"])):
        images = np.stack([pixels(i) for i in range(3 * len(classes))])
        content: dict[Any, Any] = {
            "image_data": images,
            "class_dict": {c: list(range(3 * j, 3 * j + 3)) for j, c in enumerate(classes)},
        }
        if python2:
            content = {k.encode(): v for k, v in content.items()}
            content[b"class_dict"] = {k.encode(): v for k, v in content[b"class_dict"].items()}
        (src / f"mini-imagenet-cache-{split}.pkl").write_bytes(pickle.dumps(content, 2))
    import_data("miniimagenet-pickle", src, tmp_path / "dst")
    assert layout(tmp_path / "dst") == {("train", "n01"): 3, ("train", "n02"): 3, ("val", "n03"): 3}
    train = open_split(tmp_path / "dst", "train")
    assert train.classes == ["n01", "n02"]
    for row in range(6):
        assert np.array_equal(train.images[row], pixels(row))


def test_miniimagenet_pickles_of_another_kind_are_refused(tmp_path):
    (tmp_path / "mini-imagenet-cache-train.pkl").write_bytes(
        pickle.dumps({"image_data": np.zeros(3), "class_dict": {}})
    )
    with pytest.raises(
        ValueError, match=r"image_data of .*train\.pkl must be an \(N, H, W, 3\) array of uint8"
    ):
        import_data("miniimagenet-pickle", tmp_path, tmp_path / "dst")
    with pytest.raises(ValueError, match=r"has none of mini-imagenet-cache-train\.pkl, mini-"):
        import_data("miniimagenet-pickle", tmp_path / "dst.partial", tmp_path / "dst")


def tiered(src: Path, split: str, labels: list[int], names: list[str]) -> None:
    src.mkdir(exist_ok=True)
    encoded = [
        np.frombuffer(picture(i), np.uint8).reshape(-1, 1) for i in range(len(labels))
    ]  # as cv2.imencode gives
    (src / f"{split}_images_png.pkl").write_bytes(pickle.dumps(encoded, 2))
    content = {
        "label_specific": np.array(labels, np.int32),
        "label_general": np.zeros(len(labels), np.int32),
        "label_specific_str": names,
        "label_general_str": ["things"],
    }
    (src / f"{split}_labels.pkl").write_bytes(pickle.dumps(content, 2))


def test_tieredimagenet(tmp_path):
    tiered(
        tmp_path / "src",
        "train",
        [0, 1, 1, 2],
        ["crane", "crane", "maillot, tank suit / one-piece"],
    )
    tiered(tmp_path / "src", "test", [0, 0], ["dog"])
    import_data("tieredimagenet", tmp_path / "src", tmp_path / "dst")
    assert layout(tmp_path / "dst") == {
        ("test", "000 dog"): 2,
        ("train", "000 crane"): 1,
        ("train", "001 crane"): 2,
        ("train", "002 maillot, tank suit _ one-piece"): 1,
    }
    assert (tmp_path / "dst/train/001 crane/000002.png").read_bytes() == picture(2)


def test_tieredimagenet_that_does_not_fit_together(tmp_path):
    src = tmp_path / "src"
    with pytest.raises(ValueError, match=r"has none of train_images_png\.pkl, val_images_png\.pkl"):
        import_data("tieredimagenet", tmp_path, tmp_path / "dst")
    tiered(src, "train", [0, 3], ["a", "b"])
    with pytest.raises(ValueError, match="has 2 classes and labels from 0 to 3"):
        import_data("tieredimagenet", src, tmp_path / "dst")
    tiered(src, "train", [0, 1], ["a", "b"])
    (src / "train_images_png.pkl").write_bytes(pickle.dumps([np.zeros(9, np.uint8)]))
    with pytest.raises(ValueError, match="must be a list of 2 images, one for each label"):
        import_data("tieredimagenet", src, tmp_path / "dst")
    (src / "train_images_png.pkl").write_bytes(pickle.dumps([np.zeros(9, np.uint8)] * 2))
    with pytest.raises(ValueError, match=r"image 0 of .* is not a PNG"):
        import_data("tieredimagenet", src, tmp_path / "dst")
    (src / "train_labels.pkl").unlink()
    with pytest.raises(ValueError, match=r"train_labels\.pkl is missing: it says which class"):
        import_data("tieredimagenet", src, tmp_path / "dst")


def cub_names(classes: int = 200) -> list[str]:
    names = {1: "001.Black_footed_Albatross", 2: "002.Laysan_Albatross", 4: "004.Groove_billed_Ani"}
    return [names.get(i, f"{i:03}.Bird_{i}") for i in range(1, classes + 1)]


def cub_folder(root: Path, classes: int = 200) -> Path:
    data = picture(0, kind="jpeg")
    for name in cub_names(classes):
        folder = root / "CUB_200_2011/images" / name
        folder.mkdir(parents=True)
        (folder / f"{name[4:]}_0001_796111.jpg").write_bytes(data)
    (root / "CUB_200_2011/classes.txt").write_text("1 001.Black_footed_Albatross\n")
    return root / "CUB_200_2011"


@pytest.mark.parametrize("packed", [False, True])
def test_cub(tmp_path, packed):
    src = cub_folder(tmp_path)
    if packed:
        with tarfile.open(tmp_path / "CUB_200_2011.tgz", "w:gz") as tar:
            tar.add(src, "CUB_200_2011")
        src = tmp_path / "CUB_200_2011.tgz"
    import_data("cub", src, tmp_path / "dst")
    found = layout(tmp_path / "dst")
    assert count(tmp_path / "dst") == {"train": 100, "val": 50, "test": 50}
    for split, name in (
        ("train", 1),
        ("val", 2),
        ("train", 3),
        ("test", 4),
        ("train", 199),
        ("test", 200),
    ):
        assert found[split, cub_names()[name - 1]] == 1
    copy = tmp_path / "dst/val/002.Laysan_Albatross/Laysan_Albatross_0001_796111.jpg"
    assert copy.read_bytes() == picture(0, kind="jpeg")


def test_cub_that_is_not_whole(tmp_path):
    with pytest.raises(
        ValueError, match=r"has 200 classes below images/, and .* has 3: it is not whole"
    ):
        import_data("cub", cub_folder(tmp_path, classes=3), tmp_path / "dst")
    assert not (tmp_path / "dst").exists()
    (tmp_path / "x.tgz").write_bytes(b"no tar")
    with pytest.raises(
        ValueError,
        match=r"cannot read .*x\.tgz .*: give CUB_200_2011\.tgz or the folder it unpacks to",
    ):
        import_data("cub", tmp_path / "x.tgz", tmp_path / "dst")


# The alphabets of Omniglot and how many characters each has.
BACKGROUND = (
    "Alphabet_of_the_Magi:20 Anglo-Saxon_Futhorc:29 Arcadian:26 Armenian:41 "
    "Asomtavruli_(Georgian):40 Balinese:24 Bengali:46 Blackfoot_(Canadian_Aboriginal_Syllabics):14 "
    "Braille:26 Burmese_(Myanmar):34 Cyrillic:33 Early_Aramaic:22 Futurama:26 Grantha:43 Greek:24 "
    "Gujarati:48 Hebrew:22 Inuktitut_(Canadian_Aboriginal_Syllabics):16 Japanese_(hiragana):52 "
    "Japanese_(katakana):47 Korean:40 Latin:26 Malay_(Jawi_-_Arabic):40 Mkhedruli_(Georgian):41 "
    "N_Ko:33 Ojibwe_(Canadian_Aboriginal_Syllabics):14 Sanskrit:42 Syriac_(Estrangelo):23 "
    "Tagalog:17 Tifinagh:55"
)
EVALUATION = (
    "Angelic:20 Atemayar_Qelisayer:26 Atlantean:26 Aurek-Besh:26 Avesta:26 Ge_ez:26 Glagolitic:45 "
    "Gurmukhi:45 Kannada:41 Keble:26 Malayalam:47 Manipuri:40 Mongolian:30 "
    "Old_Church_Slavonic_(Cyrillic):45 Oriya:46 Sylheti:28 Syriac_(Serto):23 Tengwar:25 Tibetan:42 "
    "ULOG:26"
)


def omniglot(src: Path) -> None:
    src.mkdir()
    data = picture(0)
    for part, alphabets in (("images_background", BACKGROUND), ("images_evaluation", EVALUATION)):
        with zipfile.ZipFile(src / f"{part}.zip", "w") as archive:
            archive.writestr(f"{part}/", "")
            for alphabet, characters in (pair.split(":") for pair in alphabets.split()):
                for i in range(1, int(characters) + 1):
                    archive.writestr(f"{part}/{alphabet}/character{i:02}/{i:04}_01.png", data)


def test_omniglot(tmp_path):
    omniglot(tmp_path / "src")
    import_data("omniglot", tmp_path / "src", tmp_path / "dst")
    assert count(tmp_path / "dst") == {"train": 1028, "val": 172, "test": 423}
    found = layout(tmp_path / "dst")
    assert ("train", "Greek/character01") in found
    assert ("val", "Hebrew/character22") in found
    assert ("train", "Gurmukhi/character41") in found
    assert ("test", "Gurmukhi/character42") in found
    assert ("train", "Glagolitic/character45") in found
    assert ("test", "ULOG/character26") in found


def test_omniglot_that_is_not_whole(tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    with zipfile.ZipFile(tmp_path / "src/images_background.zip", "w") as archive:
        archive.writestr("images_background/Greek/character01/0394_01.png", picture(0))
    monkeypatch.setitem(CHARACTERS, "images_background", 1)
    with pytest.raises(
        ValueError,
        match=r"images_evaluation\.zip is missing: the split takes characters of both zips",
    ):
        import_data("omniglot", tmp_path / "src", tmp_path / "dst")
    with zipfile.ZipFile(tmp_path / "src/images_evaluation.zip", "w") as archive:
        archive.writestr("images_evaluation/Angelic/character01/0965_01.png", picture(0))
        archive.writestr("images_evaluation/../character01/evil.png", picture(0))
    with pytest.raises(ValueError, match=r"evil\.png' cannot be the name of a picture here"):
        import_data("omniglot", tmp_path / "src", tmp_path / "dst")
    assert not list(tmp_path.rglob("evil.png"))
    with zipfile.ZipFile(tmp_path / "src/images_evaluation.zip", "w") as archive:
        archive.writestr("images_evaluation/Angelic/character01/0965_01.png", picture(0))
    with pytest.raises(ValueError, match=r"has 659 characters, and .* has 1: it is not whole"):
        import_data("omniglot", tmp_path / "src", tmp_path / "dst")
    (tmp_path / "src/images_evaluation.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"cannot read .*images_evaluation\.zip .*: copy it again"):
        import_data("omniglot", tmp_path / "src", tmp_path / "dst")


# CIFAR-100's own table: superclass, then its five classes.
CIFAR100 = """
aquatic_mammals: beaver dolphin otter seal whale
fish: aquarium_fish flatfish ray shark trout
flowers: orchid poppy rose sunflower tulip
food_containers: bottle bowl can cup plate
fruit_and_vegetables: apple mushroom orange pear sweet_pepper
household_electrical_devices: clock keyboard lamp telephone television
household_furniture: bed chair couch table wardrobe
insects: bee beetle butterfly caterpillar cockroach
large_carnivores: bear leopard lion tiger wolf
large_man-made_outdoor_things: bridge castle house road skyscraper
large_natural_outdoor_scenes: cloud forest mountain plain sea
large_omnivores_and_herbivores: camel cattle chimpanzee elephant kangaroo
medium_mammals: fox porcupine possum raccoon skunk
non-insect_invertebrates: crab lobster snail spider worm
people: baby boy girl man woman
reptiles: crocodile dinosaur lizard snake turtle
small_mammals: hamster mouse rabbit shrew squirrel
trees: maple_tree oak_tree palm_tree pine_tree willow_tree
vehicles_1: bicycle bus motorcycle pickup_truck train
vehicles_2: lawn_mower rocket streetcar tank tractor
"""


def cifar100(root: Path, packed: bool) -> Path:
    table = dict(line.split(": ") for line in CIFAR100.strip().splitlines())
    coarse = sorted(table)
    fine = sorted(name for names in table.values() for name in names.split())
    owner = {name: coarse.index(group) for group, names in table.items() for name in names.split()}
    rng = np.random.default_rng(0)
    files: dict[str, Any] = {
        "meta": {
            b"fine_label_names": [n.encode() for n in fine],
            b"coarse_label_names": [n.encode() for n in coarse],
        }
    }
    for part, images in (("train", 200), ("test", 100)):
        labels = [i % 100 for i in range(images)]
        files[part] = {
            b"data": rng.integers(0, 256, (images, 3072), dtype=np.uint8),
            b"fine_labels": labels,
            b"coarse_labels": [owner[fine[label]] for label in labels],
            b"filenames": [b"x.png"] * images,
        }
    folder = root / "cifar-100-python"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(pickle.dumps(content, 2))
    if not packed:
        return folder
    with tarfile.open(root / "cifar-100-python.tar.gz", "w:gz") as tar:
        tar.add(folder, "cifar-100-python")
    return root / "cifar-100-python.tar.gz"


@pytest.mark.parametrize("packed", [False, True])
def test_cifar_fs(tmp_path, packed):
    src = cifar100(tmp_path, packed)
    import_data("cifar-fs", src, tmp_path / "dst")
    assert count(tmp_path / "dst") == {"train": 64, "val": 16, "test": 20}
    found = layout(tmp_path / "dst")
    assert set(found.values()) == {3}
    assert ("train", "apple") in found
    assert ("val", "beaver") in found
    assert ("test", "whale") in found
    batch = pickle.loads((tmp_path / "cifar-100-python/train").read_bytes())
    image = np.asarray(Image.open(tmp_path / "dst/train/apple/train_00000.png"))
    assert np.array_equal(image.transpose(2, 0, 1).ravel(), batch[b"data"][0])


def test_the_lists_of_cifar_have_their_published_sizes():
    assert [len(names.split()) for names in CIFAR_FS.values()] == [16, 20]


def test_cifar_100_that_is_not_whole(tmp_path):
    src = cifar100(tmp_path, packed=True)
    (tmp_path / "cifar-100-python/test").unlink()
    with pytest.raises(
        ValueError, match=r"test is missing: give the folder cifar-100-python or its \.tar\.gz"
    ):
        import_data("cifar-fs", tmp_path / "cifar-100-python", tmp_path / "dst")
    src.write_bytes(src.read_bytes()[:1000])
    with pytest.raises(
        ValueError, match=r"cannot read .*: give cifar-100-python\.tar\.gz or the folder in it"
    ):
        import_data("cifar-fs", src, tmp_path / "dst")
    with tarfile.open(tmp_path / "other.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "cifar-100-python/meta", "cifar-100-python/meta")
    with pytest.raises(ValueError, match=r"has no train, test: give cifar-100-python\.tar\.gz"):
        import_data("cifar-fs", tmp_path / "other.tar.gz", tmp_path / "dst")
    meta = {"fine_label_names": ["cat"], "coarse_label_names": ["pets"]}
    (tmp_path / "cifar-100-python/meta").write_bytes(pickle.dumps(meta))
    (tmp_path / "cifar-100-python/test").write_bytes(
        (tmp_path / "cifar-100-python/train").read_bytes()
    )
    with pytest.raises(ValueError, match="is not CIFAR-100: its classes lack baby, beaver, bed"):
        import_data("cifar-fs", tmp_path / "cifar-100-python", tmp_path / "dst")


@pytest.mark.parametrize("data", [[[0] * 3072], np.zeros((1, 3072)), None])
def test_cifar_100_without_an_array_of_bytes(tmp_path, data):
    src, part = cifar100(tmp_path, packed=False), {"data": data, "fine_labels": [0]}
    (src / "train").write_bytes(pickle.dumps(part, 2))
    with pytest.raises(ValueError, match="data of its train is no array of uint8"):
        import_data("cifar-fs", src, tmp_path / "dst")


def test_a_hostile_pickle_in_a_data_set_does_not_run(tmp_path):
    evil = b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR."
    (tmp_path / "mini-imagenet-cache-train.pkl").write_bytes(evil)
    with pytest.raises(
        ValueError,
        match=r"train\.pkl asks for os\.system, and only numpy arrays and plain containers are",
    ):
        import_data("miniimagenet-pickle", tmp_path, tmp_path / "dst")
    assert not (tmp_path / "ran").exists()


def test_sp_sw_har(tmp_path):
    rows = b"x_acc,timestamp,label\n1,0,WALKING\n"
    for name in ("s01_01_sp", "s01_01_sw", "s02_11_sw"):
        (tmp_path / "DATA" / name[:3]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "DATA" / name[:3] / f"{name}.csv").write_bytes(rows + name.encode())
    (tmp_path / "DATA" / "executions_info.csv").write_text("execution,age\n")
    import_data("sp-sw-har", tmp_path / "DATA", tmp_path / "dst")
    found = {
        str(p.relative_to(tmp_path / "dst")): p.read_bytes()
        for p in (tmp_path / "dst").rglob("*.csv")
    }
    assert found == {
        "s01/phone/01.csv": rows + b"s01_01_sp",
        "s01/watch/01.csv": rows + b"s01_01_sw",
        "s02/watch/11.csv": rows + b"s02_11_sw",
    }
    (tmp_path / "DATA" / "s01" / "s_1_sp.csv").write_bytes(rows)
    with pytest.raises(ValueError, match=r"s_1_sp\.csv is no sXX_YY_sp\.csv"):
        import_data("sp-sw-har", tmp_path / "DATA", tmp_path / "other")
    with pytest.raises(ValueError, match="give the folder DATA that its archive unpacks to"):
        import_data("sp-sw-har", tmp_path / "dst", tmp_path / "other")


def test_unknown_kinds_and_missing_sources_are_named(tmp_path):
    with pytest.raises(
        ValueError, match=r"must be one of miniimagenet-pickle, .*, sp-sw-har, got 'mnist'"
    ):
        import_data("mnist", tmp_path, tmp_path / "dst")
    with pytest.raises(
        ValueError,
        match=r"nowhere is not there; for cub give the CUB_200_2011 or CUB_200_2011\.tgz",
    ):
        import_data("cub", tmp_path / "nowhere", tmp_path / "dst")
    assert len(KINDS) == 6


def three(fail_after: int | None = None, made: list[str] | None = None):
    for i in range(3):
        if i == fail_after:
            raise KeyboardInterrupt
        if made is not None:
            made.append(f"{i}.png")
        yield Picture("train", "a", f"{i}.png", pixels(i))


def test_a_killed_import_is_not_finished_and_is_taken_up_again(tmp_path):
    src, dst = tmp_path / "src", tmp_path / "dst"
    src.mkdir()
    with pytest.raises(KeyboardInterrupt):
        write_pictures(three(fail_after=2), "mine", src, dst)
    assert not dst.exists()
    first = tmp_path / "dst.partial/train/a/0.png"
    before = first.stat().st_ino
    write_pictures(three(), "mine", src, dst)
    assert not (tmp_path / "dst.partial").exists()
    assert (dst / "train/a/0.png").stat().st_ino == before  # not written again
    for i in range(3):
        assert np.array_equal(np.asarray(Image.open(dst / f"train/a/{i}.png")), pixels(i))
    assert layout(dst) == {("train", "a"): 3}
    assert json.loads((dst / ".import.json").read_text())["kind"] == "mine"


def test_what_an_import_of_something_else_left_is_not_mixed_in(tmp_path):
    src, dst = tmp_path / "src", tmp_path / "dst"
    src.mkdir()
    with pytest.raises(KeyboardInterrupt):
        write_pictures(three(fail_after=2), "other", src, dst)
    write_pictures(iter([Picture("val", "b", "0.png", pixels(0))]), "mine", src, dst)
    assert layout(dst) == {("val", "b"): 1}


def test_nothing_is_written_over(tmp_path):
    src, dst = tmp_path / "src", tmp_path / "dst"
    src.mkdir()
    dst.mkdir()
    write_pictures(three(), "mine", src, dst)  # an empty folder is no loss
    with pytest.raises(ValueError, match="dst is there already: choose another place or remove it"):
        write_pictures(three(), "mine", src, dst)
    (tmp_path / "new.partial").mkdir()
    with pytest.raises(ValueError, match=r"new\.partial is in the way, and not of our making"):
        write_pictures(three(), "mine", src, tmp_path / "new")


@pytest.mark.parametrize("name", ["../up", "a/../b", "", "/abs", ".hidden", "a\\b", "nul\0"])
def test_names_that_lead_elsewhere_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be the name of a picture here"):
        write_pictures(
            iter([Picture("train", name, "0.png", b"")]), "mine", tmp_path, tmp_path / "in/dst"
        )
