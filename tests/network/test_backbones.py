"""The backbones: sizes of the paper, variants of Table 5, seeded weights."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pmeta.network import backbones
from pmeta.network.backbones import FourConv, MLPPolicy, ResNet12, initialise
from pmeta.network.take_in import take_in
from tests.helpers.nets import generator


def names(model: nn.Module, shape: tuple[int, ...], extra: tuple[str, ...] = ()) -> list[str]:
    return [layer.name for layer in take_in(model, torch.zeros(1, *shape), extra).layers]


def test_four_conv() -> None:
    """Nine layers (Sec. 4.4); 3 * 32 * 9 + 3 * 32 * 32 * 9 conv words, 4 * 64 norm words, 800 * 5 +
    5 fc words."""
    model = FourConv()
    assert names(model, (3, 84, 84)) == [
        f"{kind}{b}" for b in range(1, 5) for kind in ("conv", "norm")
    ] + ["fc"]
    assert sum(p.numel() for p in model.parameters()) == 864 + 27648 + 256 + 4005
    assert model(torch.zeros(2, 3, 84, 84)).shape == (2, 5)


def test_four_conv_of_other_sizes() -> None:
    assert FourConv(20, (1, 28, 30), channels=8, groups=2)(torch.zeros(2, 1, 28, 30)).shape == (
        2,
        20,
    )


def test_resnet12() -> None:
    model = ResNet12()
    block = [f"block1.{kind}{i}" for i in (1, 2, 3) for kind in ("conv", "norm")] + [
        "block1.shortcut",
        "block1.shortcut_norm",
    ]
    assert names(model, (3, 84, 84))[:8] == block
    assert len(names(model, (3, 84, 84))) == 33
    assert [
        m.out_channels
        for n, m in model.named_modules()
        if n.endswith("conv3") and isinstance(m, nn.Conv2d)
    ] == [*(64, 128, 256, 512)]


def test_mlp_policy() -> None:
    model = MLPPolicy(20, 6)
    assert names(model, (200, 20), ("log_std",)) == ["fc1", "fc2", "fc3", "log_std"]
    assert sum(p.numel() for p in model.parameters()) == 2100 + 10100 + 606 + 6
    mean, log_std = model(torch.zeros(3, 20))
    assert mean.shape == (3, 6)
    assert log_std.shape == (6,)


@pytest.mark.parametrize("slope", [0.0, 0.1])
def test_max_pooling_first_is_the_same(slope: float) -> None:
    y = torch.randn(2, 3, 5, 4, generator=generator())
    expected = F.max_pool2d(F.leaky_relu(y, slope), 2)
    assert torch.equal(backbones._shrink("max", y, slope), expected)


@pytest.mark.parametrize("slope", [0.0, 0.1])
def test_average_pooling_comes_after_the_activation(slope: float) -> None:
    y = torch.randn(2, 3, 5, 4, generator=generator())
    assert torch.equal(
        backbones._shrink("average", y, slope), F.avg_pool2d(F.leaky_relu(y, slope), 2)
    )


@pytest.mark.parametrize("model", [FourConv, ResNet12])
def test_variants_of_table_5(model: type[FourConv] | type[ResNet12]) -> None:
    small = {"channels": 8} if model is FourConv else {"widths": (8, 8)}
    x = torch.randn(3, 3, 16, 16, generator=generator())
    outputs = []
    for norm in ("group", "batch"):
        for pool in ("max", "average"):
            net = initialise(model(image=(3, 16, 16), norm=norm, pool=pool, **small), generator())
            kinds = {type(m) for m in net.modules()}
            assert (nn.BatchNorm2d in kinds, nn.GroupNorm in kinds) == (
                norm == "batch",
                norm == "group",
            )
            outputs.append(net(x))
    assert len({tuple(o.flatten().tolist()) for o in outputs}) == 4


def test_batch_norm_has_no_running_statistics() -> None:
    model = FourConv(image=(3, 16, 16), channels=8, norm="batch").eval()
    x = torch.randn(3, 3, 16, 16, generator=generator())
    assert not list(model.buffers())
    assert not torch.allclose(
        model(x)[:1], model(x[:2])[:1]
    )  # the batch at hand decides, in eval mode too


def test_initialise_draws_from_the_generator_alone() -> None:
    models = [FourConv(image=(3, 16, 16), channels=8) for _ in range(3)]
    state = torch.get_rng_state()
    a, b, c = (
        nn.utils.parameters_to_vector(initialise(model, generator(seed)).parameters())
        for model, seed in zip(models, (0, 0, 1), strict=True)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_initialise_has_pytorchs_bounds() -> None:
    """U(+-1/sqrt(fan in)), of a depthwise conv 1/sqrt(9); norms stay as they are."""
    conv, norm, fc = nn.Conv2d(64, 64, 3, groups=64), nn.GroupNorm(2, 64), nn.Linear(400, 100)
    initialise(nn.Sequential(conv, norm, fc), generator())
    for layer, bound in ((conv, 1 / 3), (fc, 1 / 20)):
        for p in layer.parameters():
            assert 0.9 * bound < float(p.detach().abs().max()) <= bound
    assert norm.weight.tolist() == [1] * 64


def test_errors() -> None:
    with pytest.raises(
        ValueError,
        match="4Conv halves the image four times and needs at least 16x16 pixels, got 15x84",
    ):
        FourConv(image=(3, 15, 84))
    with pytest.raises(
        ValueError,
        match="ResNet12 halves the image 4 times and needs at least 16 pixels a side, got 84x8",
    ):
        ResNet12(image=(3, 84, 8))
    for make in (FourConv, ResNet12):
        with pytest.raises(
            ValueError, match="norm must be 'group', 'batch' or 'none', got 'layer'"
        ):
            make(norm="layer")
        with pytest.raises(ValueError, match="pool must be 'max' or 'average', got 'min'"):
            make(pool="min")
