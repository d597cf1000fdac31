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


def test_ratios_may_differ_by_step() -> None:
    ops = four_conv()
    names = layer_names(ops)
    found = cost(ops, [names, names], samples=5, mu_fw=[0.25, {"norm1": 0.5}], mu_bw=[1.0, 0.5])
    assert found.peak_words == max(
        peak_words(ops, names, 1, 5, mu) for mu in (0.25, {"norm1": 0.5})
    )
    assert found.step_macs == (
        5 * macs(ops, names, 0.25, 1.0),
        5 * macs(ops, names, {"norm1": 0.5}, 0.5),
    )


def test_cost_refuses_no_steps_and_ratios_for_other_steps() -> None:
    with pytest.raises(
        ValueError,
        match="masks gives the updated layers of each inner step, got none: without a step",
    ):
        cost(four_conv(), [], samples=25)
    with pytest.raises(
        ValueError, match="mu is given once or for each inner step, got 3 for 2 steps"
    ):
        cost(four_conv(), [{"fc"}, {"fc"}], samples=25, mu_fw=[1.0, 1.0, 1.0])


def test_the_cost_model_starts_without_heavy_packages() -> None:
    heavy = "{'torch', 'numpy', 'matplotlib', 'rich', 'tyro'}"
    code = f"import sys, pmeta.cost.adaptation; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )
