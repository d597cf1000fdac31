"""The run folder: written whole or not at all, one process at a time, clear errors."""

import errno
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from pmeta.base.errors import DivergedError
from pmeta.training import upgrade
from pmeta.training.run_folder import (
    Run,
    checksum,
    plain,
    read_checkpoint,
    write_checkpoint,
    write_json,
)
from pmeta.training.settings import RunSettings


@dataclass(frozen=True)
class Made(RunSettings):
    """Settings of a made-up kind."""

    kind = "made-up"

    out: str = "x"
    tasks: int = 4
    lr: float = 0.5


CONFIG = Made()


def started(path: Path, config: Made = CONFIG) -> Run:
    run = Run(path)
    run.start(config)
    return run


def with_checkpoint(path: Path) -> Path:
    with started(path) as run:
        run.save("last", {"w": torch.ones(2)}, {"tasks": 3})
    return path


def error_of(function: Any, *args: Any) -> str:
    with pytest.raises(ValueError, match=r".+") as caught:
        function(*args)
    return str(caught.value)


def test_a_new_run_keeps_its_settings_and_versions(tmp_path: Path) -> None:
    with started(tmp_path / "a" / "b") as run:
        config = run.config()
    versions = config.pop("versions")
    known = {"kind": "made-up", "settings_version": upgrade.VERSION}
    assert config == {**known, **asdict(CONFIG)}
    assert set(versions) == {"torch", "numpy", "safetensors", "pillow", "python"}
    assert (
        versions["torch"] == torch.__version__.partition("+")[0]
        or versions["torch"] == torch.__version__
    )


def test_a_run_is_continued_with_its_own_settings(tmp_path: Path) -> None:
    with_checkpoint(tmp_path)
    with started(tmp_path, Made(out="elsewhere")):  # a setting that may differ
        pass
    message = (
        f"a run is continued with the settings it was started with; {tmp_path} has tasks=4 (now "
        "5), lr=0.5 (now 0.1): choose another --out."
    )
    assert error_of(started, tmp_path, Made(tasks=5, lr=0.1)) == message


def test_a_checkpoint_without_its_settings_is_left_alone(tmp_path: Path) -> None:
    (with_checkpoint(tmp_path) / "config.json").unlink()
    message = (
        f"a checkpoint has the config.json of its run beside it, in {tmp_path} there is none: "
        "choose another --out."
    )
    assert error_of(Run(tmp_path).compare, CONFIG) == message


def test_tasks_done_by_a_json_that_may_be_missing_or_broken(tmp_path: Path) -> None:
    assert Run(tmp_path).tasks_done() == 0
    assert Run(with_checkpoint(tmp_path)).tasks_done() == 3
    assert Run(tmp_path / "config.json").tasks_done() == 0
    for text in ("", "[]", "{}", '{"tasks": null}'):
        (tmp_path / "last.json").write_text(text)
        assert Run(tmp_path).tasks_done() == 0


def test_a_run_without_a_checkpoint_may_begin_anew(tmp_path: Path) -> None:
    started(tmp_path).close()
    with started(tmp_path, Made(tasks=5)) as run:
        assert run.config()["tasks"] == 5


LOCK_AND_TELL = """
import sys
from pmeta.training import upgrade
from pmeta.training.run_folder import Run
run = Run(sys.argv[1])
from tests.training.test_run_folder import CONFIG
run.start(CONFIG)
print("locked", flush=True)
sys.stdin.read()
"""


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOCK_AND_TELL, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        assert (
            error_of(started, tmp_path)
            == f"one process trains in a run folder, and another is at work in {tmp_path}."
        )
        other.kill()
    started(tmp_path).close()  # a killed process leaves no lock behind
    started(tmp_path).close()


def test_weird_places(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    assert (
        error_of(started, file)
        == f"cannot write {file} (File exists): make room there, or choose another place."
    )
    below = file / "run"
    assert (
        error_of(started, below)
        == f"cannot write {below} (Not a directory): make room there, or choose another place."
    )
    for path in (tmp_path, file):
        message = f"a run folder holds a config.json, {path} does not: train one with pmeta train."
        assert error_of(Run(path).config) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{",
            "cannot be read (Expecting property name enclosed in double quotes: line 1 column 2 "
            "(char 1))",
        ),
        ("", "cannot be read (Expecting value: line 1 column 1 (char 0))"),
        ("[1]", "is not as we write it (Expected `object`, got `array`)"),
        (
            '{"compilerOptions": 1}',
            "is not as we write it (Object missing required field `versions`)",
        ),
        (
            '{"versions": {}, "seed": -1}',
            "is not as we write it (Expected `int` >= 0 - at `$.seed`)",
        ),
    ],
)
def test_a_config_that_is_not_ours_is_left_alone(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    for function in (Run(tmp_path).config, lambda: started(tmp_path)):
        assert (
            error_of(function) == f"the config.json in {tmp_path} {message}: give another folder."
        )
    assert (tmp_path / "config.json").read_text() == text


def test_checkpoints_come_back_as_they_were(tmp_path: Path) -> None:
    tensors = {
        "a/b": torch.arange(6.0).view(2, 3).T,
        "n": torch.tensor(3),
        "mask": torch.tensor([True, False]),
    }
    info = {"best": {"ci95": math.nan}, "list": [1, 2.5]}
    run = Run(tmp_path)
    assert run.load("last") is None
    run.save("last", tensors, info)
    found = run.load("last")
    assert found is not None
    assert found.tensors.keys() == tensors.keys()
    assert all(torch.equal(found.tensors[name], t) for name, t in tensors.items())
    assert found.info["list"] == [1, 2.5]
    assert math.isnan(found.info["best"]["ci95"])
    assert json.loads((tmp_path / "last.json").read_text()) == {
        "best": {"ci95": None},
        "list": [1, 2.5],
    }


@pytest.mark.parametrize("data", [b"", b"no safetensors at all", b"\x02\0\0\0\0\0\0\0{}"])
def test_a_broken_checkpoint_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "last.safetensors").write_bytes(data)
    message = (
        rf"^{re.escape(str(tmp_path / 'last.safetensors'))} is no checkpoint of ours \(.*\): "
        r"remove it to begin anew\.$"
    )
    with pytest.raises(ValueError, match=message):
        Run(tmp_path).load("last")


def fail(*args: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_when_metrics_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", fail)
    path = tmp_path / "metrics.jsonl"
    message = (
        f"cannot write {path} (No space left on device): make room there, or choose another place."
    )
    assert error_of(Run(tmp_path).log, {"a": 1}) == message


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl"])
def test_a_link_in_a_run_folder_is_refused_and_not_followed(tmp_path: Path, name: str) -> None:
    precious, run = tmp_path / "precious", tmp_path / "run"
    precious.write_bytes(b"mine")
    run.mkdir()
    (run / name).symlink_to(precious)
    message = (
        f"cannot write {run / name} (it is a link, which may lead anywhere): remove it, or choose "
        "another place."
    )
    assert error_of(started, run) == message
    assert [path.name for path in run.iterdir()] == [name]
    if name == "metrics.jsonl":
        assert error_of(Run(run).log, {"loss": 1}) == message
        assert error_of(Run(run).rewind_metrics, 0) == message
    assert precious.read_bytes() == b"mine"


def test_a_second_name_of_a_file_keeps_its_content(tmp_path: Path) -> None:
    for name in (".lock", "metrics.jsonl", ".config.json.part", ".last.safetensors.part"):
        (tmp_path / f"precious {name}").write_bytes(b"mine\n")
        os.link(tmp_path / f"precious {name}", tmp_path / name)
    with started(tmp_path) as run:
        run.rewind_metrics(0)
        run.log({"loss": 1})
        run.save("last", {"w": torch.ones(2)}, {"tasks": 3})
        run.save("last", {"w": torch.ones(2)}, {"tasks": 3})
    assert {p.read_bytes() for p in tmp_path.glob("precious *")} == {b"mine\n"}


def test_metrics_in_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert "it is there and no plain file" in error_of(started, tmp_path)


def test_a_refused_run_touches_nothing(tmp_path: Path) -> None:
    (with_checkpoint(tmp_path) / ".lock").unlink()
    before = contents(tmp_path)
    error_of(started, tmp_path, Made(tasks=5))
    assert contents(tmp_path) == before


def test_what_a_killed_training_was_writing_is_removed(tmp_path: Path) -> None:
    for name in ("last.safetensors.0123abcd", "best.json.0123abcd", "calibration.json.0123abcd"):
        (tmp_path / f".{name}.part").write_bytes(b"cut")
    started(tmp_path).close()  # calibration.json is written without the lock
    assert [p.name for p in tmp_path.glob(".*.part")] == [".calibration.json.0123abcd.part"]


def test_metrics_are_rewound_to_a_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.metrics() == []
    run.rewind_metrics(0)  # nothing there yet
    for n in (1, 2, 3):
        run.log({"tasks": n, "loss": math.nan if n == 2 else 0.5})
    assert run.metrics() == [
        {"tasks": 1, "loss": 0.5},
        {"tasks": 2, "loss": None},
        {"tasks": 3, "loss": 0.5},
    ]
    run.rewind_metrics(2)
    assert [m["tasks"] for m in run.metrics()] == [1, 2]
    with pytest.raises(ValueError, match=r"behind 3 lines of metrics\.jsonl, which has 2: put"):
        run.rewind_metrics(3)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"tasks": 3, "lo')  # killed while writing
    assert [m["tasks"] for m in run.metrics()] == [1, 2]


def test_json_for_people_is_json(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": (1.5, math.inf), "b": [{"c": -math.inf}], "d": None})
    assert (tmp_path / "x.json").read_text() == (
        '{\n  "a": [\n    1.5,\n    null\n  ],\n'
        '  "b": [\n    {\n      "c": null\n    }\n  ],\n  "d": null\n}\n'
    )
    assert plain("text") == "text"


def flipped(path: Path, bit: int) -> None:
    """One bit of the tensors changed."""
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start + bit // 8 % (len(data) - start)] ^= 1 << bit % 8
    path.write_bytes(data)


@pytest.mark.parametrize("bit", range(0, 100, 9))
def test_a_flipped_bit_is_noticed(bit: int, tmp_path: Path) -> None:
    with started(tmp_path) as run:
        run.save("last", {"w": torch.arange(3.0), "done": torch.tensor(2)}, {"tasks": 3})
    flipped(tmp_path / "last.safetensors", bit)
    with pytest.raises(ValueError, match=r"its checksum does not fit, a bit has changed.*: remove"):
        run.load("last")


def test_a_flipped_bit_of_the_header_is_noticed(tmp_path: Path) -> None:
    """Either the file is refused, or what is read is what was written."""
    info = {"best": {"val_accuracy": 83.5}, "lines": 7, "skipped": 0}
    path, tensors = tmp_path / "last.safetensors", {"w": torch.arange(3.0)}
    write_checkpoint(path, tensors, info)
    whole = path.read_bytes()
    refused = 0
    for bit in range(8 * (8 + int.from_bytes(whole[:8], "little"))):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            found = read_checkpoint(path, "")
        except ValueError:
            refused += 1
        else:
            known = {key: found.info[key] for key in info}
            assert (known, list(found.tensors)) == (info, ["w"])
            assert torch.equal(found.tensors["w"], tensors["w"])
    assert refused > 1000


def test_a_checkpoint_whose_info_has_no_checksum_is_read(tmp_path: Path) -> None:
    """That of an older release, over the tensors alone, is looked at."""
    tensors = {"w": torch.ones(2)}
    for digest in (checksum(tensors), "0" * 64):
        info = json.dumps({"tasks": 3, "sha256": digest})
        data = safetensors.torch.save(tensors, {"info": info})
        (tmp_path / "last.safetensors").write_bytes(data)
        if digest.strip("0"):
            assert Run(tmp_path).load("last").info == {"tasks": 3}  # type: ignore[union-attr]
        else:
            assert "its checksum does not fit" in error_of(Run(tmp_path).load, "last")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_checkpoint_with_nan_is_never_written(value: float, tmp_path: Path) -> None:
    with_checkpoint(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(DivergedError, match=r"finite numbers, and alpha has others, .* is not"):
        Run(tmp_path).save("best", {"w": torch.ones(2), "alpha": torch.tensor(value)}, {})
    assert contents(tmp_path) == before


def test_a_checkpoint_of_an_older_release_has_no_checksum(tmp_path: Path) -> None:
    data = safetensors.torch.save({"w": torch.ones(2)}, {"info": '{"tasks": 3}'})
    (tmp_path / "last.safetensors").write_bytes(data)
    found = Run(tmp_path).load("last")
    assert found is not None
    assert found.info == {"tasks": 3}


def test_equal_checkpoints_are_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        tensors = {key: torch.ones(2) for key in "xyzuvw"}
        write_checkpoint(tmp_path / name, tensors, {"best": {"tasks": 3}, "lines": 2})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_checkpoint_before_the_last_is_used_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(tmp_path) as run:
        for n in (1, 2, 3):
            run.save("last", {"w": torch.full((2,), float(n))}, {"tasks": n})
    assert run.newest(lambda tensors: None).info == {"tasks": 3}  # type: ignore[union-attr]
    flipped(tmp_path / "last.safetensors", 5)
    found = run.newest(lambda tensors: None)
    assert found is not None
    assert found.info == {"tasks": 2}
    assert "going back to the checkpoint before the last: " in capsys.readouterr().err
    (tmp_path / "last.safetensors").unlink()
    assert run.begun()
    assert run.newest(lambda tensors: None) is not None
    flipped(tmp_path / "previous.safetensors", 5)
    with pytest.raises(ValueError, match=r"previous\.safetensors is no checkpoint of ours"):
        run.newest(lambda tensors: None)


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*args: Any) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", no_links)
    with started(tmp_path) as run:
        for n in (1, 2):
            run.save("last", {"w": torch.ones(2)}, {"tasks": n})
    assert run.load("previous").info == {"tasks": 1}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "it nests too deep"),
        ('{"tasks": ' + "9" * 400 + "}", "a number in it has more than 64 bits"),
        ('{"tasks": ' + "9" * 5000 + "}", "Exceeds the limit"),
        ('{"tasks": ', "Expecting value"),
    ],
)
def test_json_beyond_all_measure(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=rf"the config\.json in .* cannot be read \({why}"):
        Run(tmp_path).config()
    (tmp_path / "last.json").write_text(text)
    assert Run(tmp_path).tasks_done() == 0
    (tmp_path / "metrics.jsonl").write_text(text + "\n")
    with pytest.raises(
        ValueError, match=rf"^line 1 of the metrics\.jsonl in .* cannot be read \({why}"
    ):
        Run(tmp_path).metrics()
