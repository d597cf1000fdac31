"""What meta-training learns, and where it starts."""

import pytest
import torch
from torch import nn

from pmeta.method.learned import Meta, init_meta
from pmeta.method.methods import METHODS, Method
from pmeta.network.backbones import FourConv, MLPPolicy
from pmeta.network.take_in import take_in
from tests.helpers.nets import Residual, generator, network


def start(name: str = "pmeta", inner_steps: int = 2, alpha_0: float = 0.01) -> Meta:
    return init_meta(
        network(Residual(), (2, 6, 6)), METHODS[name], inner_steps, alpha_0, generator()
    )


@pytest.mark.parametrize(
    ("name", "row"),
    [("maml", [1] * 7), ("anil", [0] * 6 + [1]), ("boil", [1] * 6 + [0]), ("pmeta", [1] * 7)],
)
def test_what_a_method_may_update(name: str, row: list[int]) -> None:
    meta = start(name, inner_steps=3)
    assert meta.mask.tolist() == [[bool(v) for v in row]] * 3
    assert meta.alpha.tolist() == [[0.01 * v for v in row]] * 3
    assert meta.updates().tolist() == meta.mask.tolist()


def test_updates_are_what_is_neither_masked_nor_zero() -> None:
    meta = start(inner_steps=1)
    meta.mask[0, 0] = False
    meta.alpha[0, 1] = 0
    assert meta.updates().tolist() == [[False, False] + [True] * 5]


def test_a_parameter_that_stands_alone() -> None:
    """log_std has a step size but no scores; it belongs to the body: ANIL leaves it, BOIL updates
    it."""
    net = take_in(MLPPolicy(3, 2, (4,)), torch.zeros(1, 3), ("log_std",))
    assert init_meta(net, METHODS["anil"], 1, 0.1, generator()).mask.tolist() == [
        [False, True, False]
    ]
    assert init_meta(net, METHODS["boil"], 1, 0.1, generator()).mask.tolist() == [
        [True, False, True]
    ]
    meta = init_meta(net, METHODS["pmeta"], 1, 0.1, generator())
    assert {name.split(".")[0] for name in meta.attention} == {"fc1"}


def test_attention_is_on_every_layer_but_the_output() -> None:
    meta = start()
    layers = ["conv1", "norm1", "conv2", "norm2", "skip", "fc"]
    sides = [f"{layer}.{side}" for layer in layers for side in ("fw", "bw")]
    assert sorted(meta.attention) == sorted(
        f"{s}.{key}" for s in sides for key in ("W1", "b1", "W2", "b2")
    )
    assert meta.attention["conv2.fw.W1"].shape == (4, 4)
    assert meta.attention["conv2.bw.W1"].shape == (6, 6)
    assert start("maml").attention == {}


@pytest.mark.parametrize("groups", [4, 8])
def test_attention_on_rounding_errors_is_refused(groups: int) -> None:
    """Behind the convs a norm with one channel a group leaves no channel means of g(y)."""
    net = take_in(FourConv(5, (3, 16, 16), 8, groups), torch.zeros(1, 3, 16, 16))
    forward_only = Method("forward", scores="attention", clip_ratio_bw=None)
    for method in (METHODS["pmeta-lr"], forward_only, Method("static", scores="static")):
        assert init_meta(net, method, 1, 0.1, generator()).alpha.shape == (1, 9)
    if groups == 4:
        assert init_meta(net, METHODS["pmeta"], 1, 0.1, generator()).attention
        return
    message = (
        r"those of conv1, conv2, conv3, conv4 are zero but for rounding, since a norm with one "
        r"channel a group follows, .* fewer groups \(--groups\), or .* \(--method pmeta-lr\)\.$"
    )
    with pytest.raises(ValueError, match=message):
        init_meta(net, METHODS["pmeta"], 1, 0.1, generator())


def test_static_factors_start_at_one() -> None:
    net = network(Residual(), (2, 6, 6))
    meta = init_meta(net, Method("static", scores="static"), 1, 0.1, generator())
    assert meta.attention["conv2.fw.alpha"].tolist() == [1] * 4
    assert meta.attention["conv2.bw.alpha"].tolist() == [1] * 6
    assert len(meta.attention) == 12


def test_parameters_by_name_and_back() -> None:
    meta = start()
    p = meta.parameters()
    assert set(p) == {f"w/{n}" for n in meta.w} | {"alpha"} | {
        f"attention/{n}" for n in meta.attention
    }
    other = meta.with_parameters({name: t + 1 for name, t in p.items()})
    assert torch.equal(other.w["fc.weight"], meta.w["fc.weight"] + 1)
    assert torch.equal(other.attention["fc.fw.b2"], meta.attention["fc.fw.b2"] + 1)
    assert torch.equal(other.alpha, meta.alpha + 1)
    assert other.mask is meta.mask
    torch.testing.assert_close(
        meta.map(lambda t: t + 1).parameters(), other.parameters(), rtol=0, atol=0
    )


def test_the_start_is_a_copy_of_the_models_weights() -> None:
    net = network(Residual(), (2, 6, 6))
    meta = init_meta(net, METHODS["maml"], 1, 0.1, generator())
    own = dict(net.model.named_parameters())
    assert all(
        torch.equal(t, own[name]) and t.data_ptr() != own[name].data_ptr()
        for name, t in meta.w.items()
    )
    assert not any(t.requires_grad for t in meta.parameters().values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_everything_has_the_models_dtype(dtype: torch.dtype) -> None:
    net = take_in(
        nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(dtype), torch.zeros(1, 3, dtype=dtype)
    )
    meta = init_meta(net, METHODS["pmeta"], 2, 0.1, generator())
    assert {t.dtype for t in meta.parameters().values()} == {dtype}
    assert meta.alpha[0, 0] == torch.tensor(0.1, dtype=dtype)


def test_everything_is_on_the_models_device() -> None:
    """PyTorch's meta device stands for any other: what is made on the wrong one shows."""
    net = take_in(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), torch.zeros(1, 3))
    net.model.to("meta")
    meta = init_meta(net, METHODS["pmeta"], 2, 0.1, generator())
    assert {t.device.type for t in [*meta.parameters().values(), meta.mask]} == {"meta"}


def test_errors() -> None:
    with pytest.raises(
        ValueError, match="inner_steps must be at least 1, got 0: without a step nothing is adapted"
    ):
        start(inner_steps=0)
    for alpha_0 in (0.0, -0.1, float("nan"), float("inf")):
        with pytest.raises(
            ValueError,
            match=rf"first step size alpha_0 must be positive and finite, got {alpha_0}: a zero",
        ):
            start(alpha_0=alpha_0)
