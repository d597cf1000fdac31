"""JSON of ours that somebody has changed: an error that names the file and the field."""

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save

from pmeta import device, kinds, zoo
from pmeta.base.reading import Count, converted, read
from pmeta.data.recordings.windows import Windowing
from pmeta.device import model_file
from pmeta.kinds.recordings.best import load as load_recogniser
from pmeta.training.run_folder import Run, open_run, read_checkpoint
from pmeta.zoo import card_text

VARIANTS = 5000
RUNS = Path(__file__).parents[2] / "zoo" / "runs"
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 10**9, 10**16, 2**63, 10**40, 0.5, -0.5, 1e300, 1e-300),
    *("", "x", "5", "\x1b[2J", "\ud800", "1e9", "50%", "../..", "a:b"),
    *(float("nan"), float("inf"), [1] * 70, [], {}, [[]], [0], [-1], [None], [[[1]]]),
    *({"": 0}, {"tasks": []}),
)


def changed(random: random.Random, value: Any) -> Any:
    """The same JSON, in one place of which stands something else, more, or nothing."""
    if isinstance(value, dict | list) and value and random.random() < 0.9:
        copy: Any = value.copy()
        key = random.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
        how = random.random()
        if how < 0.12:
            del copy[key]
        elif how < 0.2 and isinstance(copy, dict):
            copy[random.choice(("odd", "", "kind", "model", "env", "seed"))] = copy[key]
        elif how < 0.2:
            copy.append(copy[key])
        else:
            copy[key] = changed(random, copy[key])
        return copy
    return random.choice(STRANGE)


def variants(value: Any, lines: bool = False) -> list[bytes]:
    """Texts of changed values, of some with changed bytes or cut off."""
    made, at = [], random.Random(0)
    for _ in range(VARIANTS):
        now = value
        for _ in range(at.choice((1, 1, 2, 3))):
            now = changed(at, now)
        parts = now if lines and isinstance(now, list) else [now]
        text = bytearray("".join(json.dumps(part) + "\n" for part in parts).encode())
        if text and at.random() < 0.3:
            for _ in range(at.choice((1, 2, 8))):
                text[at.randrange(len(text))] = at.randrange(256)
        if text and at.random() < 0.1:
            del text[at.randrange(len(text)) :]
        made.append(bytes(text))
    return made


def check(name: str, texts: list[bytes], write: Callable[[bytes], Any], readers: Any) -> None:
    """Each reader takes a text, or says the name of its file; some texts are refused."""
    refused = []
    for text in texts:
        write(text)
        for reader in readers:
            try:
                reader()
            except ValueError as error:
                refused.append((str(error), text))
    assert len(refused) > VARIANTS / 10
    assert [(said, text) for said, text in refused if name not in said][:1] == []


@pytest.mark.parametrize(
    "name", ["paper-5shot-pmeta", "har", "paper-navigation-pmeta", "pretrain-32"]
)
def test_settings(name: str, tmp_path: Path) -> None:
    path, run = tmp_path / "config.json", Run(tmp_path)
    value = json.loads((RUNS / name / "config.json").read_text())

    def settings() -> None:
        found = run.config()["kind"]
        if found in kinds.KINDS | kinds.STAGES:  # another one is told with the run
            run.settings(kinds.kind(found).Config)

    check("config.json", variants(value), path.write_bytes, [settings])


def test_metrics(tmp_path: Path) -> None:
    lines = (RUNS / "har" / "metrics.jsonl").read_text().splitlines()[:3]
    texts = variants([json.loads(line) for line in lines], lines=True)
    path, run = tmp_path / "metrics.jsonl", Run(tmp_path)
    check("metrics.jsonl", texts, path.write_bytes, [run.metrics])


def test_calibrations(tmp_path: Path) -> None:
    path, run = tmp_path / "calibration.json", Run(tmp_path)
    value = json.loads((RUNS / "4conv" / "calibration.json").read_text())
    check("calibration.json", variants(value), path.write_bytes, [run.calibration])


def test_what_a_checkpoint_says_of_itself(tmp_path: Path) -> None:
    value = json.loads((RUNS / "har" / "last.json").read_text())
    path, run = tmp_path / "last.safetensors", Run(tmp_path)

    def write(text: bytes) -> None:
        path.write_bytes(save({}, {"info": text.decode(errors="replace")}))
        (tmp_path / "last.json").write_bytes(text)

    readers = [lambda: read_checkpoint(path, "remove it"), run.tasks_done]
    check("last.safetensors", variants(value), write, readers)


def test_windows(tmp_path: Path) -> None:
    shutil.copytree(RUNS / "har", tmp_path / "run")
    path, run = tmp_path / "run" / "windows.json", Run(tmp_path / "run")
    texts = variants(json.loads(path.read_text()))
    check(
        "windows.json",
        texts,
        path.write_bytes,
        [lambda: Windowing.from_facts(run.json("windows"), f"{path}")],
    )
    path.write_text('{"columns": []}')
    with pytest.raises(ValueError, match=r"windows\.json is not .* field `labels`"):
        load_recogniser(str(tmp_path / "run"))


@pytest.mark.parametrize("name", ["miniimagenet-4conv-5way-1shot", "har-conv1d"])
def test_what_a_model_says_of_itself(name: str, tmp_path: Path) -> None:
    data, path = zoo.find(name).read_bytes(), tmp_path / "model.pmeta"
    h = model_file.header(data)

    def write(text: bytes) -> None:
        new = bytearray(data[: h["at_facts"]] + text + b" " * (-len(text) % 4))
        model_file._point(new, "facts_bytes", len(text))
        struct.pack_into("<I", new, model_file.CRC_FROM - 8, len(new))
        path.write_bytes(model_file.seal(bytes(new)))

    def use() -> None:
        model = device.load(path)
        assert len(model.classes) == model.n_classes
        assert model.weights()
        if model.classifies:
            model.support_advice(range(model.n_classes), again=True)

    check("model.pmeta", variants(model_file.facts(data)), write, [use])


def test_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "FOLDER", tmp_path)
    (tmp_path / "sensors").mkdir()
    path = tmp_path / "made-up.json"
    value = json.loads((Path(zoo.__file__).parent / "miniimagenet-4conv.json").read_text())

    def settings() -> None:
        run = open_run("made-up")
        run.calibration()
        found = run.config()["kind"]
        if found in kinds.KINDS | kinds.STAGES:
            run.settings(kinds.kind(found).Config)

    readers = [lambda: zoo.find("made-up"), lambda: card_text.text(zoo.card("made-up")), settings]
    check("made-up", variants(value), path.write_bytes, readers)


def test_the_error_names_file_and_field() -> None:
    assert read("x.json", '{"tasks": [1], "odd": 2}', dict[str, Any]) == {"tasks": [1], "odd": 2}
    said = r"^x\.json is not as we write it \(Expected `int` >= 0 - at `\$\[\.\.\.\]\[1\]`\):"
    with pytest.raises(ValueError, match=said):
        read("x.json", '{"tasks": [1, -2]}', dict[str, list[Count]])
    with pytest.raises(ValueError, match=r"^x\.json is not .* \(Expected `object`, got `array`\):"):
        converted("x.json", [], Windowing, "remove it")
