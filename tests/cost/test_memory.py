"""The walk by hand on small nets, its promises on random ones, and the paper's memory figures."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmeta.cost.memory import backward_walk, forward_walk, peak_words, stored_words
from pmeta.cost.networks import Builder, four_conv, mlp, resnet12
from pmeta.cost.ops import WORD, Op, layer_names
from pmeta.paper import ADAPTATION, EXAMPLES

NETWORKS = {
    "4conv": four_conv(),
    "resnet12": resnet12(),
    "mlp-cheetah": mlp(20, 6),
    "mlp-navigation": mlp(2, 2),
}


def updated(ops: Sequence[Op], method: str) -> list[str]:
    names = layer_names(ops)
    return {"maml": names, "anil": names[-1:], "boil": names[:-1], "inference": []}[method]


def printed() -> Iterator[tuple[str, str, int, int, float]]:
    """Backbone, method, samples at a time, all samples and MB of Tables 1 to 3; the 370.44 MB of
    ResNet12 are those of its first block alone."""
    for (backbone, shots), row in ADAPTATION.items():
        samples = shots if backbone.startswith("mlp") else 5 * shots
        for method in ("maml", "anil", "boil"):
            yield backbone, method, 1, samples, row[method][1]
    for (backbone, shots), figures in EXAMPLES.items():
        samples = shots if backbone.startswith("mlp") else 5 * shots
        yield backbone, "inference", 1, samples, figures["inference_mb"]
        if backbone != "resnet12":
            yield backbone, "maml", samples, samples, figures["memory_mb"]


@pytest.mark.parametrize(("network", "method", "batch", "samples", "figure"), list(printed()))
def test_memory_figures_of_tables_1_to_3(
    network: str, method: str, batch: int, samples: int, figure: float
) -> None:
    ops = NETWORKS[network]
    megabytes = peak_words(ops, updated(ops, method), batch, samples) * WORD / 1e6
    assert abs(megabytes - figure) <= max(0.005, 0.005 * figure)  # the printed rounding, or 0.5 %


def test_4conv_maml_peaks_at_its_first_pool() -> None:
    moments = forward_walk(four_conv(), layer_names(four_conv()))
    peak = max(moments, key=lambda moment: moment.stored + moment.working)
    assert four_conv()[peak.op].kind == "maxpool"
    assert peak.op == 3
    assert peak.stored + peak.working == 21168 + 2 * 225792 + 225792 / 32 + 56448 / 16


def test_the_370_44_mb_of_table_1_are_the_first_block_of_resnet12() -> None:
    ops = resnet12()
    moments = forward_walk(ops, layer_names(ops))
    first_block = next(i for i, op in enumerate(ops) if op.kind == "maxpool")
    words = moments[first_block].stored + moments[first_block].working
    assert words == 8 * 451584 + 2 * 21168 + 3 * 451584 / 32 + 112896 / 16
    assert words * 25 * WORD / 1e6 == pytest.approx(370.44)
    assert peak_words(ops, layer_names(ops), 25, 25) * WORD / 1e6 == pytest.approx(
        567.53, abs=0.005
    )


# By hand


def two_fc() -> list[Op]:
    net = Builder((4,))
    net.fc("fc2", net.relu(net.fc("fc1", -1, 3)), 2)
    return net.ops


def test_two_fc_layers_by_hand() -> None:
    ops = two_fc()
    assert peak_words(ops, []) == 4  # x and y share: max(4, 3)
    assert stored_words(ops, ["fc1", "fc2"]) == [4, 3 / 32, 3]
    assert peak_words(ops, ["fc1", "fc2"]) == 4 + 3 / 32 + 3 + 2
    weights = (4 * 3 + 3) + (3 * 2 + 2)
    assert peak_words(ops, ["fc1", "fc2"], batch=2, samples=4) == 2 * (9 + 3 / 32) + weights
    assert peak_words(ops, ["fc2"], batch=1, samples=4) == 3 + 2 + 8


def test_two_fc_layers_by_hand_exact() -> None:
    ops = two_fc()
    both = ["fc1", "fc2"]
    assert [(m.stored, m.working) for m in forward_walk(ops, both, accounting="exact")] == [
        (4, 3),
        (5, 3),
        (8, 2),
    ]
    # fc2: g(y) of 2 words and g(x) of 3; to overwrite g(y) it would need a copy of its row of 2, so
    # 5 either way
    assert [(m.op, m.stored, m.working) for m in backward_walk(ops, both)] == [
        (2, 8, 5),
        (1, 5, 3),
        (0, 4, 3),
    ]
    assert peak_words(ops, both, accounting="exact") == 13
    assert peak_words(ops, both, accounting="exact", kept_words=100) == 113
    assert peak_words(ops, both, kept_words=100) == peak_words(ops, both)


def conv_norm() -> list[Op]:
    net = Builder((2, 4, 4))
    net.norm("norm", net.conv("conv", -1, 3), groups=1)
    return net.ops


def test_exact_keeps_the_dense_normalized_input_of_a_norm_above_an_updated_layer() -> None:
    ops = conv_norm()
    assert stored_words(ops, ["conv"]) == [32, 0]
    assert stored_words(ops, ["conv"], accounting="exact") == [32, 48 + 1]
    assert stored_words(ops, ["conv", "norm"], {"norm": 1 / 3}, "exact") == [32, 48 + 1]
    assert stored_words(ops, ["norm"], {"norm": 1 / 3}, "exact") == [
        0,
        16,
    ]  # nothing below needs its input gradient
    assert peak_words(ops, ["conv"]) == 32 + 48
    assert peak_words(ops, ["conv"], accounting="exact") == 32 + 49 + 48 + 2


def test_exact_counts_the_rows_that_a_conv_still_reads() -> None:
    assert peak_words(conv_norm(), []) == 48
    assert peak_words(conv_norm(), [], accounting="exact") == 48 + 2 * 3 * 4  # C_in * kernel * W_in


def test_exact_never_shares_where_side_by_side_is_smaller() -> None:
    net = Builder((100,))
    net.fc("fc", -1, 2)
    assert peak_words(net.ops, [], accounting="exact") == 100 + 2


def test_exact_pool_bits_follow_the_window() -> None:
    conv = Op("conv", (1, 8, 8), (1, 8, 8), (-1,), "conv", 9, kernel=(3, 3))
    for window, bits in (((), 2), ((2, 2), 2), ((3, 3), 4), ((4, 4), 4)):
        ops = [conv, Op("maxpool", (1, 8, 8), (1, 4, 4), (0,), kernel=window)]
        assert stored_words(ops, ["conv"], accounting="exact")[1] == max(1, 16 * bits / 32)
        assert stored_words(ops, ["conv"])[1] == 1


def test_an_operation_with_an_unknown_gradient_stores_its_inputs() -> None:
    ops = [Op("fc", (4,), (3,), (-1,), "fc", 12), Op("other", (3,), (3,), (0, 0))]
    assert stored_words(ops, ["fc"]) == [4, 6]
    assert stored_words(ops, []) == [0, 0]


def residual() -> list[Op]:
    net = Builder((2, 2, 2))
    y = net.relu(net.conv("conv", -1, 2, size=1))
    net.fc("fc", net.flatten(net.maxpool(net.add(-1, y))), 1)
    return net.ops


def test_a_residual_block_by_hand() -> None:
    conv, relu, add, pool, view, fc = (m.stored + m.working for m in forward_walk(residual()))
    assert (conv, relu, add) == (16, 16, 16)  # the input is held for the add
    assert (pool, view, fc) == (16, 16, 2)  # the add's two buffers go back at the next layer
    conv, relu, add, pool, view, fc = (
        m.stored + m.working for m in forward_walk(residual(), ["conv"])
    )
    assert conv == 8 + 8  # the input is stored, and need not be held besides
    assert relu == add == 8 + 8 / 32 + 8
    assert pool == view == 8 + 8 / 32 + 2 / 16 + 8
    assert fc == 8 + 8 / 32 + 2 / 16 + 2


def test_a_gradient_that_gathers_from_two_readers_is_held() -> None:
    net = Builder((3,))
    a = net.fc("a", -1, 4)
    net.add(a, net.fc("b", a, 4))
    moments = {m.op: (m.stored, m.working) for m in backward_walk(net.ops, ["a"])}
    # add: g of b's output, and g(a) begun; b: g(a) held beside g(y), no input gradient of its own;
    # a: g(y) alone
    assert moments == {2: (3, 8), 1: (3, 8), 0: (3, 4)}


def test_an_output_of_the_network_is_held_to_the_end() -> None:
    net = Builder((3,))
    net.fc("policy", -1, 5)
    net.fc("value", -1, 1)
    assert [m.working for m in forward_walk(net.ops)] == [3 + 5, 5 + 3]


def test_the_backward_pass_follows_the_branches() -> None:
    ops = resnet12()
    stored = dict(
        zip(
            [op.name or i for i, op in enumerate(ops)],
            stored_words(ops, ["block4.shortcut"]),
            strict=True,
        )
    )
    activations = [words for i, words in stored.items() if isinstance(i, int)]
    assert (
        sum(words > 0 for words in activations) == 2
    )  # LeakyReLU and pool behind the sum, not those beside the shortcut


def test_mu_fw_shrinks_what_is_stored_and_the_rest_shares() -> None:
    ops = conv_norm()
    assert stored_words(ops, ["conv", "norm"], 0.5) == [
        16,
        48,
    ]  # a number leaves the output layer dense
    assert forward_walk(ops, ["conv"], {"conv": 0.5})[0].working == 48  # max(16, 48)
    assert peak_words(ops, ["conv"], mu_fw={"conv": 0.5}) == 16 + 48


def test_attention_adds_its_scores_for_all_but_the_output_layer() -> None:
    assert stored_words(conv_norm(), ["conv", "norm"], attention=True) == [32 + 2 + 3, 48]
    assert stored_words(conv_norm(), ["norm"], attention=True) == [0, 48]


# Promises, on random networks


@st.composite
def networks(draw: st.DrawFn) -> list[Op]:
    """Chains of conv, norm, ReLU, max-pool and residual blocks with a conv inside, closed by fc."""
    net, at = Builder((draw(st.integers(1, 4)), 8, 8)), -1
    kinds = draw(
        st.lists(
            st.sampled_from(["conv", "norm", "relu", "maxpool", "residual", "shortcut"]), max_size=8
        )
    )
    for i, kind in enumerate(kinds):
        width = draw(st.integers(1, 5))
        if kind == "conv":
            at = net.conv(f"conv{i}", at, width, draw(st.sampled_from([1, 3])))
        elif kind == "norm":
            at = net.norm(f"norm{i}", at, 1)
        elif kind == "relu":
            at = net.relu(at)
        elif kind == "maxpool" and net.shapes[at][1] >= 2:
            at = net.maxpool(at)
        elif kind == "residual":
            at = net.add(at, net.relu(net.conv(f"residual{i}", at, net.shapes[at][0])))
        elif kind == "shortcut":
            y = net.norm(f"main_norm{i}", net.conv(f"main{i}", at, width), 1)
            at = net.relu(net.add(y, net.conv(f"shortcut{i}", at, width, size=1)))
    net.fc("fc", net.flatten(at), 3)
    return net.ops


@given(networks(), st.data(), st.sampled_from(["paper", "exact"]), st.booleans())
def test_peak_grows_with_the_updated_layers(
    ops: list[Op], data: st.DataObject, accounting: str, attention: bool
) -> None:
    names = layer_names(ops)
    more = data.draw(st.sets(st.sampled_from(names)))
    fewer = more & data.draw(st.sets(st.sampled_from(names)))
    mu = {name: data.draw(st.sampled_from([0.25, 0.5, 1.0])) for name in names}
    peaks = [peak_words(ops, some, 1, 2, mu, accounting, attention) for some in (fewer, more)]
    assert peaks[0] <= peaks[1]


@given(networks(), st.data(), st.sampled_from(["paper", "exact"]))
def test_peak_grows_with_mu_and_with_the_batch(
    ops: list[Op], data: st.DataObject, accounting: str
) -> None:
    update = data.draw(st.sets(st.sampled_from(layer_names(ops))))
    small, large = sorted(data.draw(st.tuples(st.integers(0, 8), st.integers(0, 8))))
    peaks = [peak_words(ops, update, 1, 9, mu / 8, accounting) for mu in (small, large)]
    assert peaks[0] <= peaks[1]
    peaks = [peak_words(ops, update, batch, 9, large / 8, accounting) for batch in (1, 2, 8)]
    assert peaks == sorted(peaks)


@given(networks(), st.data(), st.booleans())
def test_exact_is_never_below_the_paper(
    ops: list[Op], data: st.DataObject, attention: bool
) -> None:
    update = data.draw(st.sets(st.sampled_from(layer_names(ops))))
    batch, mu = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 8)) / 8
    paper, exact = (
        peak_words(ops, update, batch, 4, mu, kind, attention) for kind in ("paper", "exact")
    )
    assert paper <= exact


# Bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"update": ["fc3"]},
            "layers are named as in the network, got 'fc3': the names are fc1, fc2.",
        ),
        (
            {"mu_fw": {"fc3": 0.5}},
            "layers are named as in the network, got 'fc3': the names are fc1, fc2.",
        ),
        (
            {"mu_fw": 1.5},
            "a ratio mu must be in [0, 1], got 1.5 for fc1: give surviving channels / channels.",
        ),
        (
            {"batch": 3, "samples": 2},
            "a batch has from 1 to all 2 samples of the support set, got 3.",
        ),
        ({"batch": 0}, "a batch has from 1 to all 1 samples of the support set, got 0."),
        ({"samples": 0}, "a support set has at least 1 sample, got 0."),
        ({"accounting": "both"}, "accounting must be 'paper' or 'exact', got 'both'."),
    ],
)
def test_bad_input(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the whole message is compared)
        peak_words(two_fc(), **({"update": ["fc1"]} | arguments))
    assert str(error.value) == message
