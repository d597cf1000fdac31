"""`pmeta predict`: an adapted model the next day."""

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pmeta import cli, device
from pmeta.data import decode
from tests.helpers.adapting import ABSENT, NAMES, run


@pytest.fixture
def mine(model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    out = run(capsys, model, "--support", pictures / "support", "--save", pictures / "mine.pmeta")
    assert f"wrote {pictures}/mine.pmeta: the adapted model with the names of its classes" in out
    assert f"next: pmeta predict {pictures}/mine.pmeta PHOTO_OR_FOLDER" in out
    return pictures / "mine.pmeta"


def predict(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert cli.main(["predict", *map(str, argv)]) == 0
    return capsys.readouterr().out


def test_one_picture(mine: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photo = pictures / "query/bee/0.png"
    saved = device.load(mine)
    assert saved.classes == tuple(NAMES)
    (p,) = saved.predict(photo)
    name, said, sure, other, *unsure = predict(capsys, mine, photo).splitlines()[0].split("\t")
    assert (name, said) == (str(photo), p.name)
    assert sure == f"{100 * p.probability:.0f} %"
    assert other == f"or {p.runner_up} {100 * p.runner_up_probability:.0f} %"
    assert unsure == (["unsure"] if p.probability < 0.5 else [])
    shown = predict(capsys, mine, photo, "--unsure-below", 1)
    assert "\tunsure\n" in shown
    assert shown.endswith("unsure of 1 of 1\n")


def test_json_and_csv(mine: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = (pictures / "query/bee", pictures / "query/ant/0.png")
    found = json.loads(predict(capsys, mine, *paths, "--json"))
    assert found["classes"] == NAMES
    assert found["temperature"] == 1.0
    assert list(found["predictions"]) == [
        *(f"{pictures}/query/bee/{i}.png" for i in range(3)),
        f"{pictures}/query/ant/0.png",
    ]
    assert "accuracy" not in found
    rows = list(csv.DictReader(io.StringIO(predict(capsys, mine, *paths, "--csv"))))
    for row, (name, p) in zip(rows, found["predictions"].items(), strict=True):
        assert row["file"] == name
        assert (row["class"], row["runner_up"]) == (p["class"], p["runner_up"])
        assert float(row["probability"]) == p["probability"]
        assert row["unsure"] == str(p["unsure"])


def test_folders_by_class_give_an_accuracy_and_unknown_ones_are_classified(
    mine: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(pictures / "query" / "cat", pictures / "query" / "what is it")
    found = json.loads(predict(capsys, mine, pictures / "query", "--json"))
    assert len(found["predictions"]) == 12
    assert found["judged"] == 9
    assert np.sum(found["confusion"]) == 9
    odd = [p for name, p in found["predictions"].items() if "what is it" in name]
    assert len(odd) == 3
    assert all("true" not in p and p["class"] in NAMES for p in odd)
    out = run(
        capsys,
        mine.parent.parent / mine,
        "--support",
        pictures / "support",
        "--continue",
        "--query",
        pictures / "query",
    )
    assert " of 9)" in out
    assert "what is it/0.png\t" in out


def test_adapting_an_adapted_model_is_never_silent(
    mine: Path, model: Path, pictures: Path, capsys: pytest.CaptureFixture[str], refused
) -> None:
    refused(
        "mine.pmeta has learned ant, bee, cat already, and learning from there may lose accuracy: "
        "give --continue to go on with these classes, or begin again with pmeta adapt model.pmeta.",
        *(mine, "--support", pictures / "support"),
    )
    refused(
        "--continue is for a model that has learned something",
        model,
        "--support",
        pictures / "support",
        "--continue",
    )
    (pictures / "support" / "cat").rename(pictures / "support" / "dog")
    refused(
        "goes on with the classes that it has, ant, bee, cat, the support set has ant, bee, dog: "
        "begin again with pmeta adapt model.pmeta",
        *(mine, "--support", pictures / "support", "--continue"),
    )
    (pictures / "support" / "dog").rename(pictures / "support" / "cat")
    once = device.load(mine).state()
    run(capsys, mine, "--support", pictures / "support", "--continue", "--save", mine)
    twice = device.load(mine)
    assert twice.state() != once
    assert twice.classes == tuple(NAMES)
    photo = pictures / "query/bee/0.png"
    before = predict(capsys, mine, photo, "--json")
    after = predict(capsys, mine, photo, "--json", "--support", pictures / "support", "--continue")
    assert before != after
    assert device.load(mine).state() == twice.state()  # predict writes nothing
    assert cli.main(["predict", str(mine), str(photo), "--support", str(pictures / "support")]) == 2
    assert "give --continue to go on" in capsys.readouterr().err
    named = json.loads(predict(capsys, model, photo, "--support", pictures / "support", "--json"))
    assert named["classes"] == NAMES


def test_mirrored_pictures_for_one_answer(
    model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few, saved = pictures / "support", pictures / "mirrored.pmeta"
    run(capsys, model, "--support", few, "--mirror", "--save", saved)
    photos = pictures / "query"
    at_once = predict(capsys, model, photos, "--support", few, "--mirror", "--json")
    assert json.loads(at_once) == json.loads(predict(capsys, saved, photos, "--json"))
    assert at_once != predict(capsys, model, photos, "--support", few, "--json")


@pytest.fixture
def refuses(capsys: pytest.CaptureFixture[str]):
    def check(message: str, *argv: object) -> None:
        assert cli.main(["predict", *map(str, argv)]) == 2
        assert message in capsys.readouterr().err

    return check


def test_mistakes(mine: Path, model: Path, pictures: Path, refuses) -> None:
    photo = pictures / "query/bee/0.png"
    refuses("has learned no classes yet: run pmeta adapt", model, photo)
    refuses("got none: give a picture or a folder", mine)
    refuses("choose one", mine, photo, "--json", "--csv")
    refuses("a probability from 0 to 1, got 2.0", mine, photo, "--unsure-below", 2)
    refuses("got none: give --support", mine, photo, "--continue")
    refuses("--mirror is for a support set, got none: give --support", mine, photo, "--mirror")
    refuses("nowhere.png, which is not there", mine, pictures / "nowhere.png")
    (pictures / "notes.txt").write_text("no picture")
    refuses("notes.txt is no picture (JPEG, PNG", mine, pictures / "notes.txt")


def test_a_photo_in_heic_without_the_package(
    mine: Path, pictures: Path, refuses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "formats", lambda: decode.FORMATS)
    (pictures / "photo.heic").write_bytes(b"\0\0\0\x18ftypheic")
    refuses("needs the package pillow-heif: pip install pillow-heif", mine, pictures / "photo.heic")


def test_a_broken_photo_in_heic(mine: Path, pictures: Path, refuses) -> None:
    pytest.importorskip("pillow_heif")
    (pictures / "photo.heic").write_bytes(b"\0\0\0\x18ftypheic")
    refuses("photo.heic is a broken photo in HEIC: mend it", mine, pictures / "photo.heic")


def test_photos_in_heic(model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As telephones make them, where pillow-heif is installed: to learn from and to name."""
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    support, query = pictures / "support", pictures / "query/bee/0.png"
    before = json.loads(run(capsys, model, "--support", support, "--query", query, "--json"))
    for path in [*support.glob("*/*.png"), query]:
        with Image.open(path) as image:
            to = path.with_suffix(".HEIC")
            image.save(to, quality=-1, chroma=444, matrix_coefficients=0)  # without loss
        path.unlink()
    mine, photo = pictures / "mine.pmeta", query.with_suffix(".HEIC")
    after = json.loads(
        run(capsys, model, "--support", support, "--query", photo, "--save", mine, "--json")
    )
    assert after["losses"] == before["losses"]
    assert after["predictions"]["0.HEIC"] == before["predictions"]["0.png"]
    named = json.loads(predict(capsys, mine, photo, "--json"))["predictions"]
    assert named == {str(photo): after["predictions"]["0.HEIC"]}


def test_a_stray_file_is_named_and_passed_over(
    model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pictures / "support" / "notes.txt").write_text("shopping")
    (pictures / "support" / "ant" / "Thumbs.db").write_bytes(bytes(99))
    argv = ["adapt", str(model), "--support", str(pictures / "support"), "--json"]
    assert cli.main(argv) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["support"] == 6
    assert told.err == (
        "passed over notes.txt: no picture and no array\n"
        "passed over ant/Thumbs.db: no picture and no array\n"
    )


def test_a_lopsided_support_set_is_told(
    model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(3):
        shutil.copy(pictures / "support/ant/0.png", pictures / f"support/ant/more{i}.png")
    assert cli.main(["adapt", str(model), "--support", str(pictures / "support")]) == 0
    told = capsys.readouterr()
    assert "from 9 samples (2 to 5 of each class)\n" in told.out
    assert told.err == (
        "warning: ant has 5 samples and bee 2, so the model will prefer ant: give about as many of "
        "each\n"
    )
    saved = device.load(model)
    data = device.model_file.with_facts(model.read_bytes(), {**saved.facts, "n_shot": 5})
    (pictures / "five.pmeta").write_bytes(data)
    assert (
        cli.main(["adapt", str(pictures / "five.pmeta"), "--support", str(pictures / "support")])
        == 0
    )
    assert (
        "warning: the model was trained to learn from 5 samples of each class, bee has 2, cat has "
        "2: add some, or take a model for fewer (pmeta zoo)\n"
    ) in capsys.readouterr().err


def test_arrays_by_class_unbalanced_and_of_float64(
    model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reads = device.load(model)
    read = device.read_samples(pictures / "support", reads)
    run(capsys, model, "--support", pictures / "support", "--save", pictures / "pictures.pmeta")
    want = device.load(pictures / "pictures.pmeta").state()

    for i, name in enumerate(NAMES):  # an array of float64 in each class folder
        folder = pictures / "arrays" / name
        folder.mkdir(parents=True)
        np.save(folder / "all.npy", read.x[read.labels == i].astype(np.float64))
    run(capsys, model, "--support", pictures / "arrays", "--save", pictures / "arrays.pmeta")
    assert device.load(pictures / "arrays.pmeta").state() == want

    np.savez(pictures / "both.npz", x=read.x, y=np.array(NAMES)[read.labels])
    run(capsys, model, "--support", pictures / "both.npz", "--save", pictures / "npz.pmeta")
    assert device.load(pictures / "npz.pmeta").state() == want
    assert device.load(pictures / "npz.pmeta").classes == tuple(NAMES)

    np.savez(pictures / "unbalanced.npz", x=read.x[:5], y=read.labels[:5])
    found = json.loads(
        run(
            capsys,
            model,
            "--support",
            pictures / "unbalanced.npz",
            "--json",
            "--query",
            pictures / "both.npz",
        )
    )
    assert (found["support"], found["classes"]) == (5, ["0", "1", "2"])
    assert "accuracy" not in found  # names that the numbers do not have


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 3, 16, 16), np.uint8), "y": [0.5, 1]}, "a whole number or a name"),
        ({"x": np.zeros((2, 3, 16, 16), np.uint8), "y": [0]}, "for each sample; y is int64"),
        ({"z": np.zeros(3)}, "should hold samples as x and labels as y: write it again with"),
        ({"x": np.zeros((2, 9), np.uint8), "y": [0, 1]}, "end in the shape of one, (3, 16, 16)"),
        ({"x": np.array([{}], object), "y": [0]}, "(Object arrays cannot be loaded"),
    ],
)
def test_mistakes_in_npz(model: Path, tmp_path: Path, arrays, message: str, refused) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    refused(message, model, "--support", tmp_path / "x.npz")
    (tmp_path / "x.npz").write_bytes(b"no zip")
    refused("cannot read", model, "--support", tmp_path / "x.npz")


def test_a_query_of_one_picture_and_python(
    model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The public loader reads what the command reads."""
    photo = pictures / "query/cat/1.png"
    both = ("--support", pictures / "support", "--query", photo)
    found = json.loads(run(capsys, model, *both, "--json"))
    own = device.load(model)
    support = device.read_samples(pictures / "support", own)
    own.adapt(support.x, support.labels, support.classes)
    (p,) = own.predict([photo])
    assert found["predictions"]["1.png"]["class"] == p.name
    assert found["predictions"]["1.png"]["probability"] == pytest.approx(p.probability, abs=1e-4)
    (same,) = own.predict(device.read_picture(photo, own)[None])
    assert same == p
    Image.open(photo).save(pictures / "x.webp", lossless=True)
    (webp,) = own.predict(str(pictures / "x.webp"))
    assert webp == p


def test_a_device_has_no_torch(mine: Path, pictures: Path) -> None:
    code = f"{ABSENT}\nfrom pmeta.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "predict", str(mine), str(pictures / "query"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["predictions"]) == 9
