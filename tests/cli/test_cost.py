"""`pmeta cost`: its figures, its table, its errors."""

import json
import subprocess
import sys

import pytest

from pmeta.cli import main
from pmeta.cost.networks import resnet12
from pmeta.cost.ops import layer_names
from pmeta.cost.setup import select
from pmeta.paper import ADAPTATION

KEYS = {
    "memory_mb",
    "exact_memory_mb",
    "inference_mb",
    "gmac",
    "inference_gmac",
    "static_mb",
    "sample_mb",
}


def run_json(capsys: pytest.CaptureFixture[str], backbone: str, method: str, *more: str) -> dict:
    assert main(["cost", "--backbone", backbone, "--method", method, *more, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def run_table(capsys: pytest.CaptureFixture[str], backbone: str, method: str, *more: str) -> str:
    assert main(["cost", "--backbone", backbone, "--method", method, *more]) == 0
    return " ".join(capsys.readouterr().out.split())  # lines broken by rich are joined again


@pytest.mark.parametrize(("backbone", "shots"), list(ADAPTATION))
@pytest.mark.parametrize("method", ["maml", "anil", "boil", "maml++"])
def test_dense_rows_of_tables_2_and_3(
    capsys: pytest.CaptureFixture[str], backbone: str, shots: int, method: str
) -> None:
    found = run_json(capsys, backbone, method, "--shots", str(shots))
    gmac, memory = ADAPTATION[backbone, shots][method]
    assert abs(found["memory_mb"] - memory) <= max(0.005, 0.005 * memory)
    assert abs(found["gmac"] - gmac) <= max(0.005, 0.01 * gmac)
    assert (found["paper"]["memory_mb"], found["paper"]["gmac"]) == (memory, gmac)


def test_defaults_are_table_1(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "4conv", "maml", "--batch", "all")
    assert set(found) == KEYS | {"backbone", "method", "update", "samples", "batch", "paper"}
    assert (found["samples"], found["batch"]) == (25, 25)
    assert {key: round(found[key], 2) for key in found["paper"]} == found["paper"]
    found = run_json(capsys, "mlp-cheetah", "maml", "--batch", "20")
    assert (found["samples"], found["batch"]) == (20, 20)
    assert found["sample_mb"] == found["paper"]["sample_mb"] == 0.016
    assert round(found["memory_mb"], 2) == found["paper"]["memory_mb"] == 3.72


def test_the_episodes_of_half_cheetah_are_432_kb(capsys: pytest.CaptureFixture[str]) -> None:
    one, twenty = (
        run_json(capsys, "mlp-cheetah", "anil", "--shots", n, "--batch", "1") for n in ("1", "20")
    )
    accumulators = 0.002424  # 606 words of fc3, only where gradients are gathered
    assert twenty["exact_memory_mb"] - one["exact_memory_mb"] == pytest.approx(
        0.432 * 19 / 20 + accumulators
    )


def test_p_meta_is_bounded_before_training(capsys: pytest.CaptureFixture[str]) -> None:
    dense = run_json(capsys, "4conv", "pmeta-lr")
    found = run_json(capsys, "4conv", "pmeta")
    assert set(found) == set(dense) | {"attention_mb"}
    assert found["memory_mb"] < dense["memory_mb"] == run_json(capsys, "4conv", "maml")["memory_mb"]
    assert (
        found["memory_mb"]
        < run_json(capsys, "4conv", "pmeta", "--clip-ratio-fw", "0.2")["memory_mb"]
    )
    # W1, b1, W2, b2 for conv1 (3 and 32 channels), and twice 32 channels for the other seven conv
    # and norm layers
    assert found["attention_mb"] == pytest.approx(4e-6 * ((2 * 9 + 6) + 15 * (2 * 32**2 + 64)))
    assert "memory_mb" not in found["paper"]  # the paper's is for layers that training chose


def test_update_takes_any_set_of_layers(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["conv4,fc"], ["fc conv4"], ["conv4", "fc"], ["conv4,", "fc"]):
        found = run_json(capsys, "4conv", "maml", "--update", *words)
        assert found["update"] == ["conv4", "fc"]
        assert "memory_mb" not in found["paper"]
    assert found["memory_mb"] == pytest.approx(4e-6 * (225792 + 9216 + 4005))
    assert (
        run_json(capsys, "4conv", "maml", "--update", "fc")["memory_mb"]
        == run_json(capsys, "4conv", "anil")["memory_mb"]
    )


def test_select_takes_whole_blocks() -> None:
    names = layer_names(resnet12())
    assert select(names, "block4,fc") == names[-9:]
    assert select(names, "block1.conv1") == ["block1.conv1"]


def test_370_44_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "resnet12", "maml", "--batch", "25")
    assert round(found["memory_mb"], 2) == 567.53
    assert found["paper"]["memory_mb"] == 370.44
    assert found["note"].startswith("The paper's 370.44 MB is the first block alone")
    assert found["note"] in run_table(capsys, "resnet12", "maml", "--batch", "25")
    assert "370.44" not in run_table(capsys, "resnet12", "maml")


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = run_table(capsys, "4conv", "anil")
    assert "4Conv on 84x84 images, ANIL: 5-way 5-shot, 25 images, 1 at a time" in text
    assert "* fc 3.20 3.20 0.10 0.20" in text
    assert "* conv4" not in text
    assert "peak memory of adaptation, MB 0.92 0.92" in text
    assert "training" not in text


def test_table_of_p_meta_says_that_it_is_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    text = run_table(capsys, "4conv", "pmeta")
    assert (
        "Every layer counts as updated, the most that training can leave: name the layers left "
        "with --update." in text
    )
    assert "The paper prints 1.04 MB and 1.11 GMACs with the layers that its training left." in text
    assert "At rho = 0.3 no more is stored, whatever the data: mu_fw <= 1 - rho." in text
    assert "the most that training" not in run_table(capsys, "4conv", "pmeta", "--update", "fc")
    assert "20 episodes of 200 steps" in run_table(capsys, "mlp-navigation", "pmeta-lr")


GOOD = ["--backbone", "4conv", "--method", "maml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--backbone", "vgg", "--method", "maml"],
            "--backbone must be one of 4conv, resnet12, mlp-cheetah, mlp-navigation, got 'vgg'.",
        ),
        (
            ["--backbone", "4conv", "--method", "reptile"],
            "--method must be one of maml, anil, boil, maml++, pmeta-lr, pmeta, got 'reptile'.",
        ),
        (
            ["--method", "maml"],
            "the following arguments are required: --backbone (see pmeta cost --help).",
        ),
        ([*GOOD, "--shots", "0"], "--shots must be a whole number of at least 1, got 0."),
        (
            [*GOOD, "--shots", "few"],
            "argument --shots: invalid int value: 'few' (see pmeta cost --help).",
        ),
        ([*GOOD, "--ways", "-5"], "--ways must be a whole number of at least 1, got -5."),
        ([*GOOD, "--batch", "0"], "--batch must be a whole number of at least 1, got 0."),
        (
            [*GOOD, "--batch", "26"],
            "--batch must be at most the 25 samples of a task, got 26: say all.",
        ),
        (
            [*GOOD, "--batch", "1.5"],
            "argument --batch: takes a whole number of samples, or all, got '1.5' (see pmeta cost "
            "--help).",
        ),
        (
            [*GOOD, "--update", "fc,conv5"],
            "--update takes layers of the backbone, got 'conv5': the layers are "
            "conv1, norm1, conv2, norm2, conv3, norm3, conv4, norm4, fc.",
        ),
        (
            ["--backbone", "mlp-cheetah", "--method", "maml", "--update", " "],
            "--update takes at least one layer, got none: the layers are fc1, fc2, fc3.",
        ),
        (
            ["--backbone", "4conv", "--method", "pmeta", "--clip-ratio-fw", "1"],
            "--clip-ratio-fw must be in [0, 1), got 1.0: at 1 no channel is left to update.",
        ),
        (
            [*GOOD, "--clip-ratio-fw", "0.3"],
            "--clip-ratio-fw belongs to the attention of pmeta, got it with maml: leave it out.",
        ),
        (
            ["--backbone", "mlp-cheetah", "--method", "maml", "--ways", "5"],
            "--ways counts classes of images, and mlp-cheetah has none: leave it out.",
        ),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(["cost", *arguments, "--json"]) == 2
    assert tuple(capsys.readouterr()) == ("", f"pmeta: error: {message}\n")


@pytest.mark.parametrize(("more", "loaded"), [(["--json"], []), ([], ["rich"])])
def test_it_starts_without_heavy_packages(more: list[str], loaded: list[str]) -> None:
    heavy = "{'torch', 'numpy', 'matplotlib', 'tyro', 'rich'}"
    code = (
        f"import sys; from pmeta.cli import main; main(['cost', *{[*GOOD, *more]}]); "
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.splitlines()[-1] == str(loaded)
