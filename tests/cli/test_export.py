"""`pmeta export`: from a run folder to a file and a table."""

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest
import safetensors.torch
import torch

from pmeta import cli, device
from pmeta.base import native
from pmeta.data.tasks import SCALE, SHIFT
from pmeta.kinds.pictures.best import load, restore
from pmeta.kinds.pictures.config import NAMED
from pmeta.kinds.pictures.train import build
from pmeta.kinds.policies import train as rl_train
from pmeta.kinds.policies.best import restore as restore_policy
from pmeta.kinds.policies.config import RLConfig
from pmeta.training.run_folder import Run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder as training leaves it, with the weights of the start."""
    config = dataclasses.replace(
        NAMED["glyphs-4conv-5way-1shot"], method="pmeta", out=str(tmp_path / "run")
    )
    _, meta = build(config, (1, 28, 28), torch.device("cpu"))
    with Run(config.out) as folder:
        folder.start(config)
        folder.save("best", {**meta.parameters(), "mask": meta.mask}, {"input": [1, 28, 28]})
    return folder.path


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """The same of a policy."""
    config = RLConfig(out=str(tmp_path / "policy"), method="pmeta", horizon=10)
    _, meta = rl_train.build(config, rl_train.make_env(config))
    with Run(config.out) as folder:
        folder.start(config)
        folder.save("best", {**meta.parameters(), "mask": meta.mask}, {})
    return folder.path


def test_a_run_becomes_a_file(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my [red] model.pmeta"
    assert cli.main(["export", str(run), "-o", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{out}: {out.stat().st_size:,} bytes\n")
    assert "step 1" in shown
    assert "conv" in shown
    assert shown.endswith(
        f"next: pmeta adapt '{out}' --support FOLDER, where a folder of pictures is a class\n"
    )
    model = device.load(out)
    assert f"{model.arena_bytes:,}" in shown
    assert model.input_type == "uint8"
    generator = torch.Generator().manual_seed(0)
    raw = torch.randint(0, 256, (2, *model.input_shape), generator=generator, dtype=torch.uint8)
    config, best = load(str(run))
    net, meta = restore(config, best.tensors, model.input_shape, torch.device("cpu"))  # type: ignore[arg-type]
    with torch.no_grad():
        want = torch.func.functional_call(net.model, meta.w, (raw * SCALE + SHIFT,))
    assert torch.allclose(torch.from_numpy(model.scores(raw.numpy())), want, rtol=1e-3, atol=1e-4)


def test_quiet_and_float32(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(["export", str(run), "-o", str(tmp_path / "m.pmeta"), "--quiet", "--float32"]) == 0
    )
    assert capsys.readouterr().out == ""
    assert device.load(tmp_path / "m.pmeta").input_type == "float32"


def test_micro_batches(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given, batch, said in (
        ("5", 5, "micro-batches of 5 share"),
        ("None", None, "all samples share"),
    ):
        assert (
            cli.main(["export", str(run), "-o", str(tmp_path / "m.pmeta"), "--batch", given]) == 0
        )
        assert said in capsys.readouterr().out
        assert device.load(tmp_path / "m.pmeta").batch == batch
    assert cli.main(["export", str(run), "--batch", "0"]) == 2
    assert (
        "a micro-batch has at least 1 sample and fewer than 2^32, got batch=0"
        in capsys.readouterr().err
    )


def test_classes_that_cannot_be(
    run: Path, policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", str(run), "--classes", "1"]) == 2
    assert capsys.readouterr().err == (
        "pmeta: error: the classes of a task must be from 2 to 65535, got 1.\n"
    )
    assert cli.main(["export", str(run), "--classes", "7"]) == 2
    assert "was meta-trained for 5 classes, got 7: take a model" in capsys.readouterr().err
    out = tmp_path / "m.pmeta"
    assert cli.main(["export", str(run), "--classes", "5", "-o", str(out), "--quiet"]) == 0
    assert not device.load(out).repeated
    assert cli.main(["export", str(policy), "--classes", "3"]) == 2
    assert "--classes has no meaning for a run on policies, which " in capsys.readouterr().err


def test_a_policy_becomes_a_file(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", str(policy), "-o", str(tmp_path / "m.pmeta")]) == 0
    shown = capsys.readouterr().out
    assert "log_std belongs to no layer" in shown
    assert "next:" not in shown
    model = device.load(tmp_path / "m.pmeta")
    assert model.input_shape == (10, 2)
    _, _, net, meta = restore_policy(str(policy))
    x = torch.randn(3, 10, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        want = torch.func.functional_call(net.model, meta.w, (x,))[0]
    assert torch.allclose(torch.from_numpy(model.scores(x.numpy())), want, atol=1e-5)


def test_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(tmp_path)]) == 2
    assert "a run folder holds a config.json" in capsys.readouterr().err
    assert cli.main(["export", "nosuch"]) == 2
    shown = capsys.readouterr().err
    assert "nosuch does not: train one with pmeta train, or name one of mini" in shown
    assert cli.main(["export", "har-conv1d"]) == 2
    assert "har-conv1d ships as a file without its run" in capsys.readouterr().err


def test_damaged_runs(
    run: Path, policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that says what is wrong, and the file of an earlier export stays as it is."""
    out = tmp_path / "model.pmeta"
    out.write_bytes(b"earlier")

    def refused(path: Path, message: str) -> None:
        assert cli.main(["export", str(path), "-o", str(out)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert out.read_bytes() == b"earlier"

    for path, w in ((run, "w/fc.weight"), (policy, "w/fc3.weight")):
        folder, settings = Run(path), (path / "config.json").read_text()
        best = folder.load("best")
        assert best is not None
        without = {name: t for name, t in best.tensors.items() if name != w}
        folder.save("best", without, best.info)
        refused(path, f"where {w} has the shape (")
        folder.save("best", {**without, w: best.tensors[w][:, :1]}, best.info)
        refused(path, ", 1): give one that was written for the same.")
        broken = {**without, w: best.tensors[w] * float("nan")}
        safetensors.torch.save_file(
            broken, path / "best.safetensors", {"info": json.dumps(best.info)}
        )
        refused(path, f"numbers of a checkpoint are finite, {w} of this one is not")
        (path / "config.json").write_text(
            json.dumps({**json.loads(settings), "inner_steps": "five"})
        )
        refused(path, f"the config.json in {path} is not as we write it (Expected `int`, got")
        (path / "config.json").write_text(settings)
        (path / "best.safetensors").unlink()
        refused(path, f"{path} has no best model yet")
    Run(run).save("best", {}, {})
    refused(run, "does not say which images it takes, an older release wrote it: train again.")


def test_the_same_as_c(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "own.pmeta"
    assert cli.main(["export", str(run), "-o", str(out), "--c-array", "--quiet"]) == 0
    (tmp_path / "x.c").write_text(
        '#include "own.h"\n#include <stdio.h>\n'
        "int main(void) { return fwrite(model_file, 1, MODEL_BYTES, stdout) != MODEL_BYTES; }\n"
    )
    sources = [str(tmp_path / name) for name in ("x.c", "own.c")]
    program = str(tmp_path / "x")
    subprocess.run([native.compiler(), "-Wall", "-Werror", *sources, "-o", program], check=True)
    done = subprocess.run([program], check=True, capture_output=True)
    assert done.stdout == out.read_bytes()


def test_steps_below_a_limit_take_no_memory(
    run: Path, policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is that of a run whose mask leaves these updates out."""
    best = Run(run).best()
    small = torch.zeros_like(best.tensors["mask"])
    small[:, :6] = True
    alpha = torch.where(small, 1e-4, best.tensors["alpha"])

    def exported(name: str, mask: torch.Tensor, *more: str) -> bytes:
        with Run(run) as folder:
            folder.save("best", {**best.tensors, "alpha": alpha, "mask": mask}, best.info)
        out = tmp_path / name
        assert cli.main(["export", str(run), "-o", str(out), *more]) == 0
        return out.read_bytes()

    everything = best.tensors["mask"]
    found = exported("found.pmeta", everything, "--least-step", "0.001")
    assert found == exported("masked.pmeta", everything & ~small)
    exported("all.pmeta", everything)
    arenas = [device.load(tmp_path / f"{n}.pmeta").arena_bytes for n in ("found", "all")]
    assert arenas[0] < arenas[1]
    assert cli.main(["export", str(policy), "--least-step", "1"]) == 2
    assert "all step sizes are below 1" in capsys.readouterr().err


def test_a_memory_budget(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All layers of this run are updated, so that there is one plan; a budget holds it or not."""
    out, picture = tmp_path / "model.pmeta", tmp_path / "plans.svg"
    command = ["export", str(run), "-o", str(out), "--memory-budget"]
    assert cli.main([*command, "1MiB", "--frontier", str(picture)]) == 0
    assert device.load(out).arena_bytes <= 1 << 20
    shown = capsys.readouterr().out
    assert "in the way" in shown
    assert "strips of" in shown
    assert b"<svg" in picture.read_bytes()
    assert cli.main([*command, "20kB"]) != 0
    assert "is in the way; update fewer layers" in capsys.readouterr().err
    assert cli.main([*command, "50%"]) != 0
    assert "a size such as 230kB" in capsys.readouterr().err
    assert cli.main([*command, "1MB", "--frontier", "plans.pdf"]) != 0
    assert "a .png or .svg file" in capsys.readouterr().err


def test_a_share_is_told_in_bytes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = run / "config.json"
    assert cli.main(["export", str(run), "-o", str(run / "whole.pmeta")]) == 0
    assert "trained for" not in capsys.readouterr().out
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "memory_budget": "50%"}))
    assert cli.main(["export", str(run), "-o", str(run / "half.pmeta")]) == 0
    shown = capsys.readouterr().out.split("trained for 50% of the ")[1].splitlines()[0]
    whole, half = (int(word.replace(",", "")) for word in shown.split() if word[0].isdigit())
    assert half == whole // 2
    assert whole > device.load(run / "whole.pmeta").arena_bytes
