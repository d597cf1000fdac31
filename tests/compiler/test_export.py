"""What export promises before any data is seen."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pmeta.compiler.export import Exported, check_size, export
from pmeta.device import model_file as flatfile
from pmeta.device.binding import DeviceModel
from pmeta.method.attention import clip
from pmeta.method.learned import init_meta
from pmeta.method.methods import METHODS
from pmeta.network.backbones import FourConv, initialise
from pmeta.network.take_in import take_in
from tests.helpers.device_models import case, network, trained


def four_conv(method: str, live: list[str] | None = None, batch: int = 1) -> Exported:
    """4Conv as in the paper: 84x84 pixels, 32 channels, 5 ways, raw pixels."""
    generator = torch.Generator().manual_seed(0)
    net = take_in(initialise(FourConv(), generator), torch.zeros(1, 3, 84, 84))
    meta = trained(net, METHODS[method], generator, steps=5, live=live)
    return export(net, meta, METHODS[method], (3, 84, 84), input_type="uint8", batch=batch)


def test_the_documents_figures_are_those_of_today() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guide" / "device.md").read_text()
    maml, pmeta = four_conv("maml"), four_conv("pmeta", ["conv3", "conv4", "fc"])
    two = four_conv("pmeta", ["conv3", "conv4", "fc"], batch=2)
    for paper, arena, state in (
        ("MAML | 2.06 MB", maml.arena_bytes, maml.state_bytes),
        ("p-Meta, conv3 + conv4 + fc live | 0.99 MB", pmeta.arena_bytes, pmeta.state_bytes),
        ("the same, micro-batches of 2 or more |", two.arena_bytes, two.state_bytes),
        ("inference (of that p-Meta model) | 0.90 MB", pmeta.infer_bytes, pmeta.state_bytes),
    ):
        assert f"| {paper} | {arena / 1e6:.2f} MB | {state / 1e6:.2f} MB |" in text


def test_pmeta_adapts_4conv_below_the_papers_inference() -> None:
    e = four_conv("pmeta", ["conv3", "conv4", "fc"])
    assert e.arena_bytes + e.input_bytes <= 0.60e6  # paper: 0.99 MB to adapt, 0.90 MB to infer
    assert e.infer_bytes <= e.arena_bytes  # inference takes what is there, to be as fast as it can
    assert e.state_bytes == 4 * (2 * 9216 + 4005) // 16 * 16 + 16  # conv3, conv4, fc; rounded up


def test_maml_adapts_4conv_in_less_than_the_paper_counts() -> None:
    e = four_conv("maml")
    assert e.arena_bytes + e.input_bytes <= 2.06e6
    assert e.peaks[1][1] == e.arena_bytes
    assert 74e6 < e.macs[1] < 80e6  # 1.96 GMACs of the paper for 25 samples
    assert 27e6 < e.macs[0] < 29.1e6  # 0.72 GMACs for 25 samples


def test_fewer_layers_never_need_more() -> None:
    sizes = [
        case("4conv", "pmeta", 1, live=live).exported.arena_bytes
        for live in (["fc"], ["conv4", "fc"], None)
    ]
    assert sizes == sorted(sizes)


def test_micro_batches_of_any_size_take_the_same_memory() -> None:
    one, two, ten, whole = (case("4conv", "pmeta", 1, batch=n).exported for n in (1, 2, 10, None))
    live = one.state_bytes
    assert two.arena_bytes == ten.arena_bytes == whole.arena_bytes > one.arena_bytes
    assert (
        two.arena_bytes < one.arena_bytes + 2 * live
    )  # gradients without their scores, and dense inputs
    assert (
        case("4conv", "maml", 1, batch=10).exported.arena_bytes
        == case("4conv", "maml", 1).exported.arena_bytes
    )


def test_steps_with_the_same_layers_share_a_program() -> None:
    assert (
        flatfile.header(case("mlp", "maml", 1).exported.data)["programs"] == 2
    )  # inference, and one for three steps


def test_attention_of_layers_that_are_never_updated_is_left_out() -> None:
    assert len(case("4conv", "pmeta", 1, live=["fc"]).exported.data) < len(
        case("4conv", "pmeta", 1, live=["conv4"]).exported.data
    )


@pytest.mark.parametrize("rho", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("channels", [3, 10, 32, 33, 100])
def test_no_scores_keep_more_channels_than_are_planned(rho: float, channels: int) -> None:
    """c >= rho C: the c smallest of C numbers that sum to 1 hold at most c / C."""
    planned = max(1, channels - int(np.ceil(channels * (rho - 1e-6))))
    generator = torch.Generator().manual_seed(0)
    spread = torch.tensor([0.0, 1e-6, 0.1, 1.0, 5.0]).repeat(200)[:, None]
    gamma = clip((spread * torch.randn(1000, channels, generator=generator)).softmax(-1), rho)
    assert int((gamma > 0).sum(1).max()) <= planned


def test_a_frozen_model_only_infers() -> None:
    c = case("mlp", "maml", 2, live=[])
    assert c.exported.state_bytes == 0
    model = DeviceModel(c.exported.data)
    before = model.scores(c.raw)
    model.adapt(c.raw, c.y.numpy())
    np.testing.assert_array_equal(model.scores(c.raw), before)


def test_scale_and_shift_are_those_given() -> None:
    c = case("4conv", "maml", 3, raw=True)
    with torch.no_grad():
        want = c.net.model(c.x).numpy()
    np.testing.assert_allclose(
        DeviceModel(c.exported.data).scores(c.raw), want, rtol=1e-3, atol=1e-4
    )


def test_refusals() -> None:
    generator = torch.Generator().manual_seed(0)
    net = network("mlp", generator)
    meta = trained(net, METHODS["pmeta"], generator)
    with pytest.raises(ValueError, match="input_type must be one of float32, uint8, got 'int8'"):
        export(net, meta, METHODS["pmeta"], (20,), input_type="int8")
    with pytest.raises(ValueError, match="a dense forward and backward pass"):
        export(net, meta, replace(METHODS["pmeta"], sparse_fw="x"), (20,))
    with pytest.raises(
        ValueError, match=r"at least 1 sample and fewer than 2\^32, got batch=0: give None"
    ):
        export(net, meta, METHODS["pmeta"], (20,), batch=0)
    with pytest.raises(ValueError, match="3 numbers of scale and shift"):
        export(
            network("norm", generator),
            meta,
            METHODS["maml"],
            (3, 16, 16),
            input_type="uint8",
            scale=[1.0],
        )
    with pytest.raises(ValueError, match="below 1 GiB each, got 100 and 1,073,741,824 bytes"):
        check_size(100, 1 << 30)


def test_attention_on_rounding_errors_is_refused() -> None:
    """Of layers that are updated: engine and PyTorch would round otherwise and part."""
    shape, generator = (3, 16, 16), torch.Generator().manual_seed(0)
    net = take_in(FourConv(5, shape, 8, 8), torch.zeros(1, *shape))
    meta = init_meta(net, METHODS["pmeta-lr"], 1, 0.01, generator)
    assert export(net, meta, METHODS["pmeta-lr"], shape).data
    with pytest.raises(ValueError, match="those of conv1, conv2, conv3, conv4 are zero but for"):
        export(net, meta, METHODS["pmeta"], shape)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_with_nan_is_not_exported(value: float) -> None:
    generator = torch.Generator().manual_seed(0)
    net = network("mlp", generator)
    meta = trained(net, METHODS["pmeta"], generator)
    with pytest.raises(ValueError, match="finite numbers, its scale and shift are not"):
        export(net, meta, METHODS["pmeta"], (20,), input_type="uint8", scale=[value])
    with pytest.raises(ValueError, match="finite numbers, its temperatures are not"):
        export(net, meta, METHODS["pmeta"], (20,), temperatures=[value])
    next(iter(meta.w.values())).view(-1)[0] = value
    with pytest.raises(ValueError, match=r"holds finite numbers, w/.* has others: the training"):
        export(net, meta, METHODS["pmeta"], (20,))
