"""The cost of K steps."""

import subprocess
import sys

import pytest

from pmeta.cost.adaptation import cost
from pmeta.cost.macs import macs
from pmeta.cost.memory import peak_words
from pmeta.cost.networks import four_conv
from pmeta.cost.ops import layer_names


def test_cost_of_several_steps() -> None:
    ops = four_conv()
    names = layer_names(ops)
    found = cost(ops, [names, {"fc"}, set()], samples=25)
    assert found.peak_words == peak_words(ops, names, 1, 25)
    assert found.exact_peak_words == peak_words(ops, names, 1, 25, accounting="exact")
    assert found.step_macs == tuple(25 * macs(ops, update) for update in (names, ["fc"], []))
    assert found.total_gmac == pytest.approx(sum(found.step_macs) / 1e9)
    assert found.gmac == pytest.approx(found.total_gmac / 3)
    assert (
        round(found.memory_mb, 2),
        round(found.inference_mb, 2),
        round(found.inference_gmac, 2),
    ) == (2.06, 0.90, 0.72)


def test_ratios_hold_in_every_step() -> None:
    ops = four_conv()
    names, mu = layer_names(ops), {"norm1": 0.5}
    found = cost(ops, [names, ["norm1"]], samples=5, mu_fw=mu)
    assert found.peak_words == peak_words(ops, names, 1, 5, mu)
    assert found.step_macs == (5 * macs(ops, names, mu), 5 * macs(ops, ["norm1"], mu))


def test_cost_refuses_no_steps() -> None:
    with pytest.raises(
        ValueError,
        match="masks gives the updated layers of each inner step, got none: without a step",
    ):
        cost(four_conv(), [], samples=25)


def test_the_cost_model_starts_without_heavy_packages() -> None:
    heavy = "{'torch', 'numpy', 'matplotlib', 'rich', 'tyro'}"
    code = f"import sys, pmeta.cost.adaptation; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )
