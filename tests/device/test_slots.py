"""Saved states: a power cut leaves the old one or the new one, and nothing else is overwritten."""

from pathlib import Path

import numpy as np
import pytest

from pmeta import device
from pmeta.device.slots import MAGIC
from tests.device.test_engine import SANITIZED, build, run
from tests.helpers.device_models import Case, case


@pytest.fixture(scope="module")
def small() -> Case:
    """A model of which only the head adapts: its state takes three pages."""
    return case("mlp", "maml", seed=30, live=["4"])


def test_the_power_fails_at_every_byte_of_a_save(small: Case, tmp_path: Path) -> None:
    """In C, under sanitizers, on a flash and on a memory that needs no erasing."""
    (tmp_path / "model").write_bytes(small.exported.data)
    program = build("power", tmp_path, SANITIZED)
    slot = 256 + -(-small.exported.state_bytes // 256) * 256
    assert slot == 1024
    cuts, reads = (int(part.split()[0]) for part in run(program, tmp_path / "model").split(","))
    assert cuts == 4 * (slot + 2 * slot)  # written; erased and written
    # a header and pages of two slots, then the weights; of two slots, then of the one written
    pages = slot // 256
    assert reads == (2 * pages + 1) + (2 * pages + pages)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("slot = last == 0;", "slot = last == 2;"),  # always the first one
        ("if (slot == UNREAD) return PMETA_STORAGE;", ""),
        ("if (last == UNREAD) return PMETA_STORAGE;", ""),
        ("if (first == UNREAD || second == UNREAD) return UNREAD;", ""),
        ("beside = m->arena_given / 2 >= m->state_bytes", "beside = 0"),
        ("h.sequence + 1", "h.sequence"),
        ("if (!good_slots(m, s)) return PMETA_ARGUMENT;", "return PMETA_OK;"),
    ],
)
def test_a_wrong_save_fails_the_program(
    small: Case, right: str, wrong: str, tmp_path: Path
) -> None:
    """The test of the test."""
    (tmp_path / "model").write_bytes(small.exported.data)
    source = (device.ENGINE / "save.c").read_text()
    assert right in source
    program = _broken(source.replace(right, wrong), tmp_path)
    with pytest.raises(AssertionError, match=r"cut at byte \d+: check [34]\d failed"):
        run(program, tmp_path / "model")


def _broken(source: str, folder: Path) -> Path:
    """The program with another save.c."""
    program = build("power", folder, ("-O1",))
    (folder / "broken.c").write_text(source)
    objects = [p for p in folder.glob("*.o") if p.name != "save.o"]
    flags = ("-std=c99", f"-I{device.ENGINE}", f"-I{Path(__file__).parent / 'c'}")
    main = Path(__file__).parent / "c" / "power.c"
    run("cc", *flags, "-o", program, main, folder / "broken.c", *objects, "-lm")
    return program


def test_a_state_survives_in_a_file(small: Case, tmp_path: Path) -> None:
    model = small.device()
    with pytest.raises(FileNotFoundError):
        model.load_state(tmp_path / "state")
    model.adapt(small.raw[:3], [0, 1, 2])
    model.save_state(tmp_path / "state")
    again = small.device()
    again.load_state(tmp_path / "state")
    assert again.state() == model.state()
    assert again.outputs == 5
    assert np.array_equal(again.probabilities(small.raw), model.probabilities(small.raw))
    model.reset()
    model.save_state(tmp_path / "state")
    again.load_state(tmp_path / "state")
    assert again.state() == model.state()
    assert (tmp_path / "state").stat().st_size == 2 * 1024
    assert (tmp_path / "state").read_bytes()[:8] == MAGIC


def test_a_file_that_was_cut_anywhere_gives_the_old_state(small: Case, tmp_path: Path) -> None:
    """Bytes that never came are those of the file before."""
    model, path = small.device(), tmp_path / "state"
    model.save_state(path)
    first, old = path.read_bytes(), model.state()
    model.adapt(small.raw, small.y.numpy())
    model.save_state(path)
    second, new = path.read_bytes(), model.state()
    assert first == second[:1024]
    for n in range(0, 1024):
        # the body is written first, the header, bytes 0 to 255 of the slot, last
        order = [*range(1024 + 256, 2048), *range(1024, 1024 + 256)][:n]
        torn = bytearray(first.ljust(2048, b"\0"))
        for at in order:
            torn[at] = second[at]
        path.write_bytes(torn)
        model.load_state(path)
        assert model.state() == (new if bytes(torn[1024:1064]) == second[1024:1064] else old)


def test_what_is_no_state_is_refused(small: Case, tmp_path: Path) -> None:
    model, other = small.device(), case("mlp", "maml", seed=31, live=["4"]).device()
    other.save_state(tmp_path / "other")
    with pytest.raises(device.EngineError, match="neither slot holds a whole state of this model"):
        model.load_state(tmp_path / "other")
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0 a photo")
    with pytest.raises(ValueError, match="something else than the state of a model: give the name"):
        model.save_state(tmp_path / "photo.jpg")
    assert (tmp_path / "photo.jpg").read_bytes() == b"\xff\xd8\xff\xe0 a photo"


def test_an_empty_file_is_no_state(small: Case, tmp_path: Path) -> None:
    """A first save that was cut before its first byte."""
    model = small.device()
    (tmp_path / "state").touch()
    with pytest.raises(device.EngineError, match="neither slot holds a whole state of this model"):
        model.load_state(tmp_path / "state")
    model.save_state(tmp_path / "state")
    model.load_state(tmp_path / "state")


def test_a_disk_that_fails_is_told(small: Case, tmp_path: Path, monkeypatch) -> None:
    model = small.device()
    model.save_state(tmp_path / "state")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(device.EngineError, match="the state that was saved before is still there"):
        model.save_state(tmp_path / "state")
    monkeypatch.undo()
    model.load_state(tmp_path / "state")
