"""MACs by hand and as the paper prints them, the bound on mu_fw, and the cost of K steps."""

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmeta.cost.adaptation import (
    Op,
    bound_mu_fw,
    cost,
    four_conv,
    input_words,
    layer_macs,
    layer_names,
    macs,
    max_mu_fw,
    max_survivors,
    mlp,
    peak_words,
    resnet12,
    weight_words,
)
from pmeta.cost.networks import Builder

NETWORKS = {
    "4conv": four_conv(),
    "resnet12": resnet12(),
    "cheetah": mlp(20, 6),
    "navigation": mlp(2, 2),
}


@pytest.mark.parametrize(
    ("network", "method", "samples", "printed"),
    [
        ("4conv", "inference", 25, 0.72),
        ("4conv", "maml", 25, 1.96),
        ("4conv", "anil", 25, 0.72),
        ("4conv", "boil", 25, 1.96),
        ("4conv", "anil", 5, 0.14),
        ("4conv", "maml", 5, 0.39),
        ("4conv", "boil", 5, 0.39),
        ("resnet12", "inference", 25, 62.08),
        ("resnet12", "maml", 25, 185.42),
        ("resnet12", "anil", 25, 62.08),
        ("resnet12", "boil", 25, 185.42),
        ("resnet12", "anil", 5, 12.42),
        ("resnet12", "maml", 5, 37.08),
        ("resnet12", "boil", 5, 37.08),
        ("cheetah", "inference", 20, 0.05),
        ("cheetah", "maml", 20, 0.15),
        ("cheetah", "anil", 20, 0.06),
        ("cheetah", "boil", 20, 0.15),
        ("navigation", "maml", 20, 0.12),
        ("navigation", "anil", 20, 0.04),
        ("navigation", "boil", 20, 0.12),
    ],
)
def test_gmacs_of_tables_1_to_3(network: str, method: str, samples: int, printed: float) -> None:
    ops = NETWORKS[network]
    names = layer_names(ops)
    update = {"inference": [], "maml": names, "anil": names[-1:], "boil": names[:-1]}[method]
    assert abs(samples * macs(ops, update) / 1e9 - printed) <= max(
        0.005, 0.01 * printed
    )  # printed rounding, or 1 %


def test_weights_of_table_1() -> None:
    assert weight_words(four_conv()) == 32_773  # 0.13 MB
    assert weight_words(resnet12()) == 7_999_365  # 32.0 MB
    assert weight_words(mlp(20, 6)) == 12_806  # 0.05 MB
    assert weight_words(four_conv(), ["fc"]) == 4_005


def test_names_and_own_inputs_of_the_backbones() -> None:
    assert list(input_words(mlp(20, 6)).items()) == [("fc1", 4000), ("fc2", 20000), ("fc3", 20000)]
    assert input_words(four_conv())["conv2"] == 32 * 42 * 42
    assert input_words(four_conv())["fc"] == 800
    words = input_words(resnet12())
    assert words["block2.conv1"] == words["block2.shortcut"] == 64 * 42 * 42
    assert words["block1.shortcut_norm"] == 64 * 84 * 84
    assert layer_names(resnet12())[-2:] == ["block4.shortcut_norm", "fc"]
    assert four_conv(n_way=7, image=(1, 28, 28), channels=16)[-1].y == (7,)


def conv_norm_fc() -> list[Op]:
    net = Builder((2, 4, 4))
    net.fc("fc", net.flatten(net.norm("norm", net.conv("conv", -1, 3), groups=1)), 5)
    return net.ops


def test_macs_by_hand() -> None:
    conv, norm, fc = 16 * (3 * 2 * 9), 48, 48 * 5
    ops = conv_norm_fc()
    assert layer_macs(ops) == {"conv": (conv, 0), "norm": (5 * norm, 0), "fc": (fc, 0)}
    assert layer_macs(ops, ["conv"]) == {
        "conv": (conv, conv),
        "norm": (5 * norm, 2 * norm),
        "fc": (fc, fc),
    }
    assert layer_macs(ops, layer_names(ops)) == {
        "conv": (conv, conv),
        "norm": (5 * norm, 3 * norm),
        "fc": (fc, 2 * fc),
    }
    assert macs(ops, ["fc"]) == conv + 5 * norm + 3 * fc  # Eq. 18 as printed, at an fc
    assert macs(ops, ["norm"]) == conv + (5 + 1) * norm + 2 * fc


def test_ratios_scale_the_weight_gradient_alone() -> None:
    conv, norm = 16 * (3 * 2 * 9), 48
    found = layer_macs(
        conv_norm_fc(), ["conv", "norm"], mu_fw={"conv": 0.5, "norm": 1 / 3}, mu_bw={"conv": 1 / 3}
    )
    assert found["conv"] == (conv, pytest.approx(conv / 6))
    assert found["norm"] == (5 * norm, pytest.approx((2 + 1 / 3) * norm))


def test_macs_of_attention_by_hand() -> None:
    ops = conv_norm_fc()
    dense, found = (layer_macs(ops, ["conv", "fc"], attention=on) for on in (False, True))
    assert found["conv"][1] - dense["conv"][1] == 2 * 16 + 2 * 2**2 + 3 * 16 + 2 * 3**2
    assert found["norm"] == dense["norm"]  # not updated
    assert found["fc"] == dense["fc"]  # the output layer


def test_a_strided_depthwise_conv_costs_its_forward_macs_each_way() -> None:
    ops = [Op("conv", (4, 8, 8), (4, 8, 8), (-1,), "first", 4, kernel=(1, 1), groups=4)]
    ops.append(Op("conv", (4, 8, 8), (4, 4, 4), (0,), "strided", 4 * 9, kernel=(3, 3), groups=4))
    assert layer_macs(ops, ["first", "strided"])["strided"] == (16 * 36, 2 * 16 * 36)


# The bound


def test_bound_by_hand() -> None:
    assert (
        max_survivors(10, 0.3) == 7
    )  # and not 6, as (1 - 0.3) * 10 in floats would have it at times
    assert [max_survivors(C, 0.3) for C in (1, 2, 3, 32, 64, 100)] == [1, 1, 2, 22, 44, 70]
    assert [max_survivors(10, k / 10) for k in range(10)] == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert max_mu_fw(32, 0.3) == 22 / 32
    assert max_mu_fw(5, 0.0) == 1
    assert bound_mu_fw(conv_norm_fc(), 0.3) == {"conv": 0.5, "norm": 2 / 3}


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40), st.floats(0, 0.999))
def test_clipping_never_leaves_more_channels_than_the_bound(
    scores: list[float], rho: float
) -> None:
    pi = sorted(score / math.fsum(scores) for score in scores)
    sums = [math.fsum(pi[:c]) for c in range(1, len(pi) + 1)]
    clipped = 1 + sum(total < rho - 1e-6 for total in sums) if rho > 0 else 0  # Alg. 1
    assert max(1, len(pi) - clipped) <= max_survivors(len(pi), rho)


@pytest.mark.parametrize("rho", [1.0, -0.1, math.nan])
def test_rho_out_of_range(rho: float) -> None:
    with pytest.raises(
        ValueError,
        match=r"clip ratio rho must be in \[0, 1\), got .*: at 1 no channel is left to update.",
    ):
        max_survivors(8, rho)


# K steps


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
