"""Plans that take less memory: the same weights as PyTorch, in the bytes that were promised."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from pmeta.compiler import tiling
from pmeta.compiler.arena import Arena
from pmeta.compiler.export import export
from pmeta.compiler.ir import Model, Tiling
from pmeta.device.model_file import INPUT_TYPES
from tests.device.test_golden import same_weights
from tests.helpers.device_models import Case, case


def turned(c: Case) -> Case:
    """The same with norms of which every third weight is negative, and one is nothing."""
    p = c.meta.parameters()
    for name, w in c.meta.w.items():
        if "norm" in name and name.endswith("weight"):
            signs = torch.where(torch.arange(len(w)) % 3 == 1, -0.7, 1.3)
            p[f"w/{name}"] = w * signs
    return again(c._replace(meta=c.meta.with_parameters(p)))


def again(c: Case, budget: int | None = None) -> Case:
    """The case with its file written anew."""
    kind = INPUT_TYPES[c.raw.dtype == np.uint8]
    channels = c.raw.shape[1]
    exported = export(
        c.net,
        c.meta,
        c.method,
        c.raw.shape[1:],
        input_type=kind,
        scale=[2 / 255] * channels,
        shift=[-1.0] * channels,
        batch=c.batch,
        memory_budget=budget,
    )
    return c._replace(exported=exported)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("live", [["norm1", "fc"], ["norm3", "conv4", "fc"], ["norm4"]])
def test_norms_behind_their_pool_equal_pytorch(live: list[str], batch: int) -> None:
    same_weights(turned(case("4conv", "pmeta", seed=3, live=live, batch=batch, raw=True)))


def smallest(c: Case) -> int:
    """The least arena that there is for a case."""
    kind = INPUT_TYPES[c.raw.dtype == np.uint8]
    arena = Arena(c.net, c.meta, c.method, c.raw.shape[1:], input_type=kind, batch=c.batch)
    return arena.bytes(c.meta.updates(), memory_budget=1)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("live", [["norm2", "fc"], ["norm3", "conv4", "norm4", "fc"], ["fc"]])
def test_streaming_equals_pytorch(live: list[str], batch: int) -> None:
    c = turned(case("4conv", "pmeta", seed=4, live=live, batch=batch, raw=True))
    plain, least = c.exported, smallest(c)
    c = again(c, least)
    assert c.exported.arena_bytes <= least < plain.arena_bytes
    assert min(c.exported.macs[1:]) > min(plain.macs[1:])
    same_weights(c)


@pytest.mark.parametrize("live", [["norm5", "fc"], ["conv3", "conv4", "fc"]])
def test_blocks_without_norms_stream_without_more_computation(live: list[str]) -> None:
    c = case("4conv-folded", "pmeta", seed=4, live=live, raw=True)
    plain = again(c, 10**7).exported  # the fastest plan
    assert c.exported.arena_bytes <= smallest(c) < plain.arena_bytes
    assert c.exported.macs == plain.macs
    same_weights(c)
    got, want = c.device().scores(c.raw), c._replace(exported=plain).device().scores(c.raw)
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_inference_streams_as_well() -> None:
    c = case("4conv", "pmeta", seed=4, live=["conv4", "fc"], raw=True)
    streamed = again(c, smallest(c))
    assert streamed.exported.infer_bytes < c.exported.infer_bytes
    got, want = streamed.device().scores(c.raw), c.device().scores(c.raw)
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_budget_gives_time_before_memory() -> None:
    """The more bytes, the fewer MACs and the larger the parts; never more than there are."""
    c = case("4conv", "pmeta", seed=4, live=["conv4", "fc"], raw=True)
    least = smallest(c)
    budgets = [least, least + 20_000, least + 100_000]
    exported = [again(c, budget).exported for budget in budgets]
    assert all(e.arena_bytes <= budget for e, budget in zip(exported, budgets, strict=True))
    assert [e.macs[1] for e in exported] == sorted((e.macs[1] for e in exported), reverse=True)
    assert exported[-1].macs[1] == c.exported.macs[1]


def test_a_budget_that_is_too_small_names_the_tensor_in_the_way() -> None:
    c = case("4conv", "pmeta", seed=4, live=["conv4", "fc"], raw=True)
    with pytest.raises(ValueError, match=r"bytes, got 9,000: .* \(.* bytes\) is in the way"):
        again(c, 9000)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("method", "live"), [("maml", None), ("pmeta", ["conv2", "conv4", "fc"])])
def test_convs_that_run_again_equal_pytorch(
    method: str, live: list[str] | None, batch: int
) -> None:
    c = turned(case("4conv", method, seed=6, live=live, batch=batch, raw=True))
    plain, least = c.exported, smallest(c)
    c = again(c, least)
    assert c.exported.arena_bytes <= least < plain.arena_bytes
    assert max(c.exported.macs) > max(plain.macs)
    same_weights(c)


def forced(wanted: Callable[[Tiling], bool], monkeypatch: pytest.MonkeyPatch) -> list[Tiling]:
    """Leave only the layouts that are wanted, where a program has such; gives all of these."""
    found: list[Tiling] = []
    every = tiling.layouts

    def some(model: Model, live: frozenset[str]) -> Iterator[Tiling]:
        own = [layout for layout in every(model, live) if wanted(layout)]
        found.extend(own)
        yield from own or [Tiling()]

    monkeypatch.setattr(tiling, "layouts", some)
    return found


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    ("method", "live"),
    [
        ("pmeta", ["conv2", "norm2", "conv4", "fc"]),
        ("pmeta", ["conv2"]),
        ("pmeta-lr", ["conv2", "conv3", "norm3", "fc"]),
        ("maml", ["conv2", "norm3", "fc"]),
    ],
)
@pytest.mark.parametrize("way", [(4, 1), (2, 2), (1, 2)])
def test_streaming_below_an_updated_conv_equals_pytorch(
    method: str,
    live: list[str],
    batch: int,
    way: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = turned(case("4conv", method, seed=5, live=live, batch=batch, raw=True))
    found = forced(lambda layout: layout.stream == way, monkeypatch)
    streamed = again(c)
    assert found
    assert max(streamed.exported.macs) > max(c.exported.macs)
    same_weights(streamed)


@pytest.mark.parametrize("rows", [4, 2, 1])
@pytest.mark.parametrize("live", [["norm2", "fc"], ["conv3", "conv4", "fc"]])
def test_strips_of_rows_equal_pytorch_for_no_more_macs(
    live: list[str], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = turned(case("4conv", "pmeta", seed=5, live=live, raw=True))
    found = forced(
        lambda layout: layout.by_rows != frozenset() and layout.rows == rows, monkeypatch
    )
    by_rows = again(c)
    assert found
    assert by_rows.exported.macs == c.exported.macs
    same_weights(by_rows)
