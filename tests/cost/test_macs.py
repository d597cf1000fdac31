"""MACs by hand and as the paper prints them."""

from collections.abc import Iterator

import pytest

from pmeta.cost.macs import layer_macs, macs
from pmeta.cost.networks import Builder, four_conv, mlp, resnet12
from pmeta.cost.ops import Op, layer_names
from pmeta.paper import ADAPTATION, EXAMPLES

NETWORKS = {
    "4conv": four_conv(),
    "resnet12": resnet12(),
    "mlp-cheetah": mlp(20, 6),
    "mlp-navigation": mlp(2, 2),
}


def printed() -> Iterator[tuple[str, str, int, float]]:
    """Backbone, method, samples and GMACs of Tables 1 to 3."""
    for (backbone, shots), row in ADAPTATION.items():
        samples = shots if backbone.startswith("mlp") else 5 * shots
        for method in ("maml", "anil", "boil"):
            yield backbone, method, samples, row[method][0]
    for (backbone, shots), figures in EXAMPLES.items():
        samples = shots if backbone.startswith("mlp") else 5 * shots
        yield backbone, "inference", samples, figures["inference_gmac"]
        yield backbone, "maml", samples, figures["gmac"]


@pytest.mark.parametrize(("network", "method", "samples", "figure"), list(printed()))
def test_gmacs_of_tables_1_to_3(network: str, method: str, samples: int, figure: float) -> None:
    ops = NETWORKS[network]
    names = layer_names(ops)
    update = {"inference": [], "maml": names, "anil": names[-1:], "boil": names[:-1]}[method]
    gmacs = samples * macs(ops, update) / 1e9
    assert abs(gmacs - figure) <= max(0.005, 0.01 * figure)  # printed rounding, or 1 %


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
