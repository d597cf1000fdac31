"""Emulated Cortex-M boards: what they learn is what this machine learns, in the bytes promised."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from pmeta import zoo
from pmeta.compiler.export import export
from pmeta.device import DeviceModel
from pmeta.firmware import fit
from pmeta.firmware.example import Lesson, patterns
from pmeta.firmware.folder import write_folder
from pmeta.firmware.targets import TARGETS
from pmeta.method.learned import init_meta
from pmeta.method.methods import METHODS
from pmeta.network.backbones import FourConv, initialise
from pmeta.network.take_in import take_in
from tests.helpers import boards
from tests.helpers.device_models import case, network, trained

if boards.missing():
    pytest.skip(f"needs {boards.INSTALL}", allow_module_level=True)

WITH_STATE = "DEFINES=-DEXAMPLE_PRINT_STATE"


def on_board(
    folder: Path, data: bytes, samples: Lesson, target: str, engine: Path | None = None
) -> boards.Printed:
    """Written, built with warnings as errors, and run."""
    write_folder(folder, data, "model", samples, TARGETS[target])
    elf = boards.build(folder, WITH_STATE, engine=engine)
    code = boards.sections(elf)[0] - len(data) - samples.bytes
    assert code <= fit.CODE_BYTES
    return boards.read(boards.emulate(elf, TARGETS[target].machine))


def as_promised(printed: boards.Printed, folder: Path, model: DeviceModel) -> None:
    """Memory as planned and as here, and the stack below what the folder's README says."""
    assert printed.arena == model.arena_bytes
    assert printed.reached == model.high_water_bytes
    assert 0 <= printed.arena - printed.reached < 16  # the plan counts in 16 bytes
    promised = re.search(r"^\| stack, .*?\| ([\d,]+) \|", (folder / "README.md").read_text(), re.M)
    assert promised
    assert 0 < printed.stack < int(promised[1].replace(",", ""))


def same_weights(printed: boards.Printed, model: DeviceModel) -> None:
    want = np.frombuffer(model.state(), np.float32)
    assert printed.state.shape == want.shape
    np.testing.assert_allclose(printed.state, want, rtol=0, atol=1e-5)


def classifier(folder: Path, data: bytes, target: str, engine: Path | None = None) -> None:
    """A classifier on the board and here: weights, losses and classes."""
    model = DeviceModel(data)
    samples = patterns(model, classes=2)
    printed = on_board(folder, data, samples, target, engine)
    before = model.state()
    losses = model.adapt(samples.support, samples.labels).losses
    assert model.state() != before
    as_promised(printed, folder, model)
    same_weights(printed, model)
    np.testing.assert_allclose(printed.losses[-len(losses) :], losses, atol=1e-3)
    assert printed.classes == model.predict(samples.query).labels.tolist()


@pytest.fixture(scope="module")
def m4f(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part with 128 KB of RAM: a small network on raw pictures. The engine is built once."""
    folder = tmp_path_factory.mktemp("m4f") / "small"
    small = case("4conv", "pmeta", seed=51, raw=True, live=("conv4", "fc"))
    classifier(folder, small.exported.data, "qemu-m4f")
    return folder


def test_a_small_network_on_the_m4f(m4f: Path) -> None:
    """What the fixture has held; and nothing of the example asks for malloc or stdio."""
    names = (m4f / "build" / "firmware.elf").read_bytes()
    assert b"_malloc_r\0" not in names
    assert b"_printf_r\0" not in names


@pytest.mark.parametrize(("kind", "batch"), [("signal", 2), ("mlp", 1), ("signal", 1)])
def test_sensor_windows_and_vectors_on_the_m4f(
    kind: str, batch: int, m4f: Path, tmp_path: Path
) -> None:
    data = case(kind, "pmeta", seed=52, batch=batch).exported.data
    classifier(tmp_path / "x", data, "qemu-m4f", engine=m4f)


def test_a_policy_on_the_m4f(m4f: Path, tmp_path: Path) -> None:
    """Its example imitates a teacher, with a gradient of its own."""
    generator = torch.Generator().manual_seed(53)
    net, method = network("policy", generator), METHODS["pmeta"]
    data = export(net, trained(net, method, generator), method, (7, 6)).data
    model = DeviceModel(data)
    samples = patterns(model)
    printed = on_board(tmp_path / "x", data, samples, "qemu-m4f", m4f)
    scale = np.float32(2 / samples.labels.size)
    model.adapt_with(samples.support, lambda i, out: scale * (out - samples.labels[i]))
    as_promised(printed, tmp_path / "x", model)
    same_weights(printed, model)


def test_a_head_from_prototypes_on_the_m4f(m4f: Path, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(55)
    backbone = initialise(FourConv(6, (3, 20, 20), 8, 4, embedding="norm"), generator)
    net = take_in(backbone, torch.zeros(1, 3, 20, 20))
    meta = init_meta(net, METHODS["pmeta"], 2, 0.05, generator, "prototype")
    data = export(net, meta, METHODS["pmeta"], (3, 20, 20)).data
    classifier(tmp_path / "x", data, "qemu-m4f", engine=m4f)


@pytest.mark.parametrize("target", ["qemu-m7", "qemu-m55"])
def test_a_model_of_the_zoo(target: str, tmp_path: Path) -> None:
    data = zoo.find("miniimagenet-4conv-5way-1shot").read_bytes()
    classifier(tmp_path / "x", data, target)


def test_weights_are_saved_in_slots(m4f: Path, tmp_path: Path) -> None:
    """The default build has two slots in RAM: the example saves into them."""
    data = case("mlp", "pmeta", seed=54).exported.data
    write_folder(tmp_path / "x", data, "m", patterns(DeviceModel(data)), TARGETS["qemu-m4f"])
    text = boards.emulate(boards.build(tmp_path / "x", engine=m4f), "netduinoplus2")
    assert "\nsaved\n" in boards.read(text).text
    assert "\nstate " not in text


def test_a_program_that_fails_says_so(m4f: Path, tmp_path: Path) -> None:
    """The test of the test: a damaged model does not end with `done`."""
    data = case("mlp", "pmeta", seed=54).exported.data
    write_folder(tmp_path / "x", data, "m", patterns(DeviceModel(data)), TARGETS["qemu-m4f"])
    source = tmp_path / "x" / "model.c"
    source.write_text(re.sub(r"0x\w{8},\n\};", "0x12345678,\n};", source.read_text()))
    text = boards.emulate(boards.build(tmp_path / "x", engine=m4f), "netduinoplus2")
    assert "pmeta_open: the checksum does not fit" in text
    assert text.endswith("failed\n")
    with pytest.raises(AssertionError):
        boards.read(text)
