"""The folder of every target: what is in it, what fits, what is refused."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pmeta import cli, zoo
from pmeta.base import native
from pmeta.device import ENGINE, DeviceModel
from pmeta.device.model_file import facts, with_facts
from pmeta.firmware import fit
from pmeta.firmware.c_text import array
from pmeta.firmware.example import patterns
from pmeta.firmware.folder import SOURCES, TEMPLATES, places, write_folder
from pmeta.firmware.targets import TARGETS
from tests.helpers.device_models import case

ZOO = "miniimagenet-4conv-5way-1shot"


@pytest.fixture(scope="module")
def small() -> bytes:
    return case("4conv", "pmeta", seed=61, raw=True, live=("conv4", "fc")).exported.data


def test_the_array_is_the_file(small: bytes) -> None:
    words = re.findall(r"0x([0-9a-f]{8}),", array("x", small))
    assert np.array([int(word, 16) for word in words], "<u4").tobytes() == small


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_the_engine_a_readme_and_fused_products(
    name: str, small: bytes, tmp_path: Path
) -> None:
    model = DeviceModel(small)
    files = write_folder(tmp_path, small, "tiny", patterns(model), TARGETS[name])
    assert sorted(files) == sorted(path for path in tmp_path.rglob("*") if path.is_file())
    texts = {path: path.read_text() for path in files}
    engine = {path.name: path.read_text() for path in ENGINE.glob("*.[ch]")}
    assert engine == {path.name: texts[path] for path in files if path.name in engine}
    assert not [path for path, text in texts.items() if re.search(r"@[A-Z_]+@", text)]
    readme = texts[tmp_path / "README.md"]
    assert f"| {model.arena_bytes:,} |" in readme
    assert f"| {len(small):,} |" in readme
    assert [path for path, text in texts.items() if "-ffp-contract=fast" in text]


def test_every_template_is_used() -> None:
    used = {name for kind in SOURCES for name in places(kind)}
    files = (path.relative_to(TEMPLATES) for path in TEMPLATES.rglob("*") if path.is_file())
    there = {path.as_posix() for path in files if path.parts[0] not in ("common", "readme")}
    assert there == {name for name in used if not name.startswith("common/")}


def test_the_generic_folder_builds_and_runs_here(small: bytes, tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("needs make")
    model = DeviceModel(small)
    samples = patterns(model)
    write_folder(tmp_path, small, "tiny", samples, TARGETS["generic"])
    command = ["make", "-s", "-j2", "-C", str(tmp_path), f"CC={native.compiler()}", "CFLAGS=-O1"]
    done = subprocess.run([*command, "run"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\ndone\n")
    model.adapt(samples.support, samples.labels)
    classes = [int(n) for n in re.findall(r"query \d+: class (\d+)", done.stdout)]
    assert classes == model.predict(samples.query).labels.tolist()


def test_the_example_of_a_regression_learns_numbers(small: bytes, tmp_path: Path) -> None:
    data = with_facts(small, {**facts(small), "loss": "mse"})
    samples = patterns(DeviceModel(data))
    assert samples.labels.shape == (2, 1, DeviceModel(data).outputs)
    write_folder(tmp_path, data, "tiny", samples, TARGETS["generic"])
    assert "samples_wanted(i)" in (tmp_path / "lesson.c").read_text()


def test_a_model_that_does_not_fit_is_refused_with_the_bytes(tmp_path: Path) -> None:
    data = zoo.find(ZOO).read_bytes()
    model = DeviceModel(data)
    samples = patterns(model)
    need = fit.needs(model, len(data), samples.bytes)
    with pytest.raises(
        ValueError,
        match=rf"needs {need.ram:,} bytes of RAM, STM32F405 .* \(qemu-m4f\) has 131,072: arena "
        rf"{model.arena_bytes:,}, stack 4,096, .* --ram\.$",
    ):
        write_folder(tmp_path / "x", data, "m", samples, TARGETS["qemu-m4f"])
    tight = replace(TARGETS["qemu-m7"], flash_bytes=need.flash - 1)
    with pytest.raises(ValueError, match=rf"{need.flash:,} bytes of flash, .*, code [\d,]+\. Take"):
        write_folder(tmp_path / "x", data, "m", samples, tight)
    assert not (tmp_path / "x").exists()
    write_folder(tmp_path / "x", data, "m", samples, replace(tight, flash_bytes=need.flash))


def test_a_folder_that_has_something_in_it_is_left_alone(small: bytes, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(ValueError, match=r"is written whole, .* has something in it: name a new"):
        write_folder(tmp_path, small, "m", patterns(DeviceModel(small)), TARGETS["generic"])
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_command(
    small: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: object
) -> None:
    (tmp_path / 'odd name".pmeta').write_bytes(small)
    np.save(tmp_path / "few.npy", np.zeros((2, 3, 3, 28, 28), np.uint8))
    support = ["--support", str(tmp_path / "few.npy")]
    command = ["firmware", str(tmp_path / 'odd name".pmeta'), "-o", str(tmp_path / "x")]
    assert cli.main([*command, "--target", "zephyr", *support]) == 0
    assert "for STM32F746" in capsys.readouterr().out
    assert '#define MODEL_NAME "odd_name_"' in (tmp_path / "x/src/model.h").read_text()
    header = (tmp_path / "x/src/samples.h").read_text()
    assert "SAMPLES_SUPPORT 6\n" in header
    assert "SAMPLES_CLASSES 2\n" in header


def test_the_file_of_the_zoo_that_has_enough_classes(tmp_path: Path) -> None:
    np.save(tmp_path / "few.npy", np.zeros((7, 1, 3, 84, 84), np.uint8))
    support = ["--support", str(tmp_path / "few.npy")]
    name = "miniimagenet-4conv"
    assert cli.main(["firmware", name, "-o", str(tmp_path / "x"), *support]) == 0
    assert "#define MODEL_OUTPUTS 20\n" in (tmp_path / "x/model.h").read_text()


def test_a_model_of_recordings_by_its_name(tmp_path: Path) -> None:
    assert cli.main(["firmware", "har-conv1d", "-o", str(tmp_path / "x")]) == 0
    data = (zoo.FOLDER / "sensors" / "har-conv1d.pmeta").read_bytes()
    assert f"{DeviceModel(data).arena_bytes}" in (tmp_path / "x/model.h").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.pmeta"], "cannot read nothing.pmeta"),
        ([ZOO, "--target", "qemu-m4f"], "bytes of RAM, STM32F405"),
        ([ZOO, "--query", "x"], "--query goes with --support"),
        ([ZOO, "--support", "30.npy"], "tells 5 classes apart, 30.npy has 30"),
        ([ZOO, "--ram", "-1"], "--ram is a number of bytes, got -1"),
        ([ZOO, "--flash", "1000"], "bytes of flash, any machine"),
    ],
)
def test_mistakes(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("30.npy", np.zeros((30, 1, 3, 84, 84), np.uint8))
    assert cli.main(["firmware", *arguments, "-o", str(tmp_path / "x")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
