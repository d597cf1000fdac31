"""`pmeta adapt`: pictures and arrays in, predictions and costs out."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pmeta import cli, device
from pmeta.compiler.export import export
from pmeta.method.methods import METHODS
from pmeta.network.take_in import take_in
from tests.helpers.adapting import ABSENT, NAMES, run
from tests.helpers.device_models import trained


def test_folders_to_json(model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(
        run(
            capsys,
            model,
            "--support",
            pictures / "support",
            "--query",
            pictures / "query",
            "--json",
        )
    )
    assert found["classes"] == NAMES
    said = {name: p["class"] for name, p in found["predictions"].items()}
    assert set(said.values()) <= set(NAMES)
    right = [name.split("/")[0] == label for name, label in said.items()]
    assert found["accuracy"] == pytest.approx(sum(right) / 9)
    assert (found["judged"], len(found["missed"])) == (9, 9 - sum(right))
    for row, true in zip(found["confusion"], NAMES, strict=True):
        of = [label for name, label in said.items() if name.startswith(true)]
        assert row == [of.count(name) for name in NAMES]
    assert found["high_water_bytes"] <= found["arena_bytes"]
    assert len(found["milliseconds_per_step"]) == len(found["losses"]) == 3
    kept = found["updated_channels"]["conv4.weight"]
    assert kept["of"] == 8
    assert 1 <= len(kept["updated"]) <= 8


def test_a_table_for_people(
    model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(capsys, model, "--support", pictures / "support", "--query", pictures / "query")
    assert re.match(r"accuracy \d+\.\d % \(\d of 9\)\n", out)  # first
    assert "true class" in out
    assert " of 3 " in out
    assert "arena" not in out
    assert "learned ant, bee, cat from 6 samples (2 of each class)" in out
    assert f"pmeta adapt {model} --support {pictures}/support --save mine.pmeta" in out
    both = ("--support", pictures / "support", "--query", pictures / "query", "--verbose")
    out = run(capsys, model, *both)
    assert "ant/0.png\t" in out
    assert "arena, planned" in out
    assert "channels updated: conv4.weight" in out


def test_queries_without_classes_have_no_accuracy(
    model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(
        run(
            capsys,
            model,
            "--support",
            pictures / "support",
            "--query",
            pictures / "query/bee",
            "--json",
        )
    )
    assert list(found["predictions"]) == ["0.png", "1.png", "2.png"]
    assert "accuracy" not in found


def test_arrays_and_a_saved_model(
    model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    support, query = pictures / "support.npy", pictures / "query.npy"
    read = device.read_samples(pictures / "support", device.load(model)).x
    np.save(support, read.reshape(3, 2, 3, 16, 16))
    np.save(query, read[:4])
    saved = pictures / "adapted.pmeta"
    found = json.loads(
        run(capsys, model, "--support", support, "--query", query, "--save", saved, "--json")
    )
    own = device.load(model)
    own.adapt(read, np.repeat(np.arange(3), 2))
    assert [int(p["class"]) for p in found["predictions"].values()] == (
        own.predict(read[:4]).labels.tolist()
    )
    assert np.array_equal(device.load(saved).probabilities(read), own.probabilities(read))


def test_pictures_mirrored_too(
    model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few, saved = pictures / "support", pictures / "mirrored.pmeta"
    out = run(capsys, model, "--support", few, "--mirror")
    assert "from 6 samples (2 of each class), mirrored too" in out
    assert f"--support {few} --mirror --save mine.pmeta" in out
    found = json.loads(run(capsys, model, "--support", few, "--mirror", "--save", saved, "--json"))
    assert (found["support"], found["mirrored"]) == (6, True)
    own = device.load(model)
    read = device.read_samples(few, own)
    own.adapt(read.x, read.labels, mirror=True)
    assert device.load(saved).state() == own.state()
    out = run(capsys, saved, "--support", few, "--mirror", "--continue")
    assert f"--support {few} --continue --mirror --save mine.pmeta" in out


def test_brackets_in_names_are_shown(
    model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are no markup of the tables."""
    odd = dict(zip(NAMES, ("[red]ant", "bee [old]", "[/red]"), strict=True))
    read = device.read_samples(pictures / "support", device.load(model))
    samples = pictures / "s.npz"
    np.savez(samples, x=read.x, y=[odd[read.classes[label]] for label in read.labels])
    out = run(capsys, model, "--support", samples, "--query", samples)
    table = out.partition("learned")[0]
    assert all(name in table for name in odd.values())


def test_a_head_from_prototypes_forgets_and_says_so(
    pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, few = pictures / "first.pmeta", pictures / "support"
    begin = ("adapt", "miniimagenet-4conv", "--support", str(few), "--save", str(saved))
    assert cli.main([*begin]) == 0
    assert "forgets" not in capsys.readouterr().err
    assert cli.main(["adapt", str(saved), "--support", str(few), "--continue"]) == 0
    assert "forgets pictures that are not in it" in capsys.readouterr().err


def test_a_device_has_no_torch(model: Path, pictures: Path) -> None:
    """What `pip install p-meta` brings is enough: a process that can import nothing of the training
    adapts all the same."""
    code = f"{ABSENT}\nfrom pmeta.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [
        "adapt",
        model,
        "--support",
        pictures / "support",
        "--query",
        pictures / "query",
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["predictions"]
    assert {p["class"] for p in said.values()} <= set(NAMES)
    install = "run pip install --constraint constraints.txt '.[train]' in a checkout of pmeta"
    for other in (
        ["export", "run"],
        ["train", "glyphs-4conv-5way-1shot", "--out", "run"],
        ["reproduce", "table1", "--out", "r"],
    ):
        blocked = subprocess.run(
            [sys.executable, "-c", code, *other], capture_output=True, text=True, check=False
        )
        assert (blocked.returncode, blocked.stdout) == (2, "")
        assert blocked.stderr.startswith(f"pmeta: error: pmeta {other[0]} needs ")
        assert blocked.stderr.endswith(f", which is not installed: {install}.\n")


def test_queries_of_some_classes(
    model: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Labels go by the names of folders, not by their order."""
    shutil.rmtree(pictures / "query" / "ant")
    found = json.loads(
        run(
            capsys,
            model,
            "--support",
            pictures / "support",
            "--query",
            pictures / "query",
            "--json",
        )
    )
    right = [name.split("/")[0] == p["class"] for name, p in found["predictions"].items()]
    assert len(right) == 6
    assert found["accuracy"] == pytest.approx(sum(right) / 6)


def test_names_that_the_terminal_cannot_show(
    model: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pictures / "query/bee/0.png").rename(pictures / "query/bee/\udcff \u00fc.png")
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii"))
    argv = ["adapt", model, "--support", pictures / "support", "--query", pictures / "query/bee"]
    assert cli.main([str(a) for a in argv]) == 0
    assert b"\n\\udcff \\xfc.png\t" in b"\n" + shown.getvalue()


def test_mistakes_in_folders(model: Path, pictures: Path, refused: Callable[..., None]) -> None:
    (pictures / "empty").mkdir()
    (pictures / "wrong" / "ant").mkdir(parents=True)
    (pictures / "wrong" / "ant" / "x.png").write_text("no picture")
    (pictures / "broken" / "ant").mkdir(parents=True)
    png = (pictures / "support/ant/0.png").read_bytes()
    (pictures / "broken" / "ant" / "x.png").write_bytes(png[: len(png) // 2])
    (pictures / "many").mkdir()
    for name in "abcd":
        (pictures / "many" / name).mkdir()
        Image.new("RGB", (16, 16)).save(pictures / "many" / name / "0.png")
    shutil.copytree(pictures / "many" / "a", pictures / "one" / "a")
    refused("pictures but no folders", model, "--support", pictures / "support" / "ant")
    refused("there are no pictures", model, "--support", pictures / "empty")
    refused("in a folder, a picture or a .npy or .npz file, got an empty", model, "--support", "")
    refused("/nowhere, which is not there.", model, "--support", pictures / "nowhere")
    refused("pictures but no folders", model, "--support", pictures / "support/ant/0.png")
    refused(
        "x.png is no picture (JPEG, PNG, WebP, GIF, BMP, TIFF, PPM): convert it or move",
        model,
        "--support",
        pictures / "wrong",
    )
    refused("x.png cannot be read (", model, "--support", pictures / "broken")
    refused("tells 3 classes apart", model, "--support", pictures / "many")
    refused("with pmeta export RUN --classes 4.", model, "--support", pictures / "many")
    refused("two or more, ", model, "--support", pictures / "one")
    refused("/one has only a: add one.", model, "--support", pictures / "one")
    for picture in (pictures / "support" / "bee").iterdir():
        picture.unlink()
    refused("has none of bee: add some.", model, "--support", pictures / "support")
    shutil.copy(pictures / "support/ant/0.png", pictures / "support" / "loose.png")
    refused(
        "has loose.png beside ant/: move the one or the other.",
        model,
        "--support",
        pictures / "support",
    )


def test_folders_in_folders_and_dead_links(
    model: Path, pictures: Path, refused: Callable[..., None]
) -> None:
    support = pictures / "support"
    (support / "__MACOSX").mkdir()  # what unzipping leaves behind is not looked at
    (support / "ant" / "more").mkdir()
    refused("nothing else, ", model, "--support", support)
    refused(
        "/support/ant/more is a folder in it: move its pictures up.", model, "--support", support
    )
    (support / "ant" / "more").rmdir()
    (support / "ant" / "z.png").symlink_to(support / "nowhere.png")
    refused("/ant/z.png is no file but a link to nowhere: remove it.", model, "--support", support)
    (support / "ant" / "z.png").rename(support / "z.png")
    refused(
        "/support/z.png is no file but a link to nowhere: remove it.", model, "--support", support
    )
    (support / "z.png").unlink()
    assert cli.main(["adapt", str(model), "--support", str(support)]) == 0


def test_the_model_is_saved_though_nobody_reads_what_is_printed(
    model: Path, pictures: Path, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "pmeta",
        "adapt",
        str(model),
        "--support",
        str(pictures / "support"),
    ]
    read, write = os.pipe()
    os.close(read)
    subprocess.run(
        [*command, "--save", str(tmp_path / "mine.pmeta")],
        stdout=write,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    os.close(write)
    device.load(tmp_path / "mine.pmeta")


def test_mistakes_in_arrays(model: Path, tmp_path: Path, refused: Callable[..., None]) -> None:
    def given(array: np.ndarray) -> Path:
        np.save(tmp_path / "x.npy", array, allow_pickle=True)
        return tmp_path / "x.npy"

    right = np.zeros((2, 1, 3, 16, 16), np.uint8)
    np.save(tmp_path / "right.npy", right)
    shape = "should hold samples and end in the shape of one, (3, 16, 16), got the shape"
    refused(f"{shape} (4, 7).", model, "--support", given(np.zeros((4, 7), np.uint8)))
    refused(f"{shape} (2, 0, 3, 16, 16).", model, "--support", given(right[:, :0]))
    refused("the array has one axis less, (2, 3, 16, 16).", model, "--support", given(right[:, 0]))
    refused(
        "x.npy should be of uint8, which the model reads, got float64, not all of them whole",
        model,
        "--support",
        given(right + 0.5),
    )
    refused(
        "x.npy (Object arrays cannot be loaded", model, "--support", given(np.array([{}], object))
    )
    whole = (tmp_path / "right.npy").read_bytes()
    large, odd = (
        whole.replace(b"(2, 1, ", b"(9" + b"9" * 30 + b", "),
        whole.replace(b"(2, 1, ", b"(2,'1, "),
    )
    for damaged in (
        b"",
        b"no array",
        whole[:-1],
        large[:128],
        odd,
        whole.replace(b"'shape'", b"[shape]"),
    ):
        (tmp_path / "x.npy").write_bytes(damaged)
        refused("x.npy (", model, "--support", tmp_path / "x.npy")
    refused("nowhere.npy (No such file or directory)", model, "--support", tmp_path / "nowhere.npy")


def test_mistakes_with_files(model: Path, pictures: Path, refused: Callable[..., None]) -> None:
    support = ("--support", pictures / "support")
    refused(
        "0.png: the file is not a pmeta model", pictures / "support" / "ant" / "0.png", *support
    )
    refused(
        "(Is a directory): a model is a file that pmeta export or pmeta adapt", pictures, *support
    )
    refused("nowhere (No such file or directory): a model is", pictures / "nowhere", *support)
    refused(
        "(Is a directory): make room there, or choose another place.",
        model,
        *support,
        "--save",
        pictures,
    )
    refused("make its folder, or choose", model, *support, "--save", pictures / "none" / "x.pmeta")


def test_a_policy_is_adapted_in_python(tmp_path: Path, refused: Callable[..., None]) -> None:
    net = take_in(
        torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)),
        torch.zeros(1, 5, 2),
    )
    meta = trained(net, METHODS["maml"], torch.Generator().manual_seed(0))
    (tmp_path / "policy.pmeta").write_bytes(export(net, meta, METHODS["maml"], (5, 2)).data)
    refused("takes a classifier, ", tmp_path / "policy.pmeta", "--support", tmp_path)
