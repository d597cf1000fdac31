"""The golden comparison: weights that the engine adapted against those of PyTorch."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pmeta.compiler.export import export
from pmeta.device.binding import DeviceModel
from pmeta.method.inner import InnerLoop, Loss, cross_entropy
from pmeta.method.methods import Method
from pmeta.network.backbones import initialise
from pmeta.network.take_in import take_in
from pmeta.network.tape import forward
from tests.helpers.device_models import Case, trained

# Why 1e-4 of the largest weight of a tensor: both sides sum some 10^4 to 10^5 float32 products in
# different orders (1e-7 each), and K steps multiply the difference; a pixel that is a hair from the
# kink of a ReLU or a max-pool then moves a gradient by more.
TOLERANCE = 1e-4
Weights = dict[str, np.ndarray]


def reference(c: Case, dtype: torch.dtype = torch.float32, loss: Loss = cross_entropy) -> Weights:
    """PyTorch's adapted weights, with the same micro-batches."""
    meta, x = c.meta.map(lambda t: t.to(dtype)), c.x.to(dtype)
    loop = InnerLoop(c.net, c.method, loss, batch=c.batch)
    return {name: w.detach().numpy() for name, w in loop.adapt(meta, (x, c.y)).w.items()}


def among(classes: int) -> Loss:
    """Cross-entropy where the first outputs alone are classes."""
    return lambda logits, y: cross_entropy(logits[:, :classes], y)


def errors(got: Weights, want: Weights) -> dict[str, float]:
    """By tensor: the largest difference, relative to the largest weight."""
    return {
        name: float(np.abs(w - want[name]).max() / np.abs(want[name]).max())
        for name, w in got.items()
    }


def check(c: Case, got: Weights, loss: Loss = cross_entropy) -> None:
    """The weights equal PyTorch's in float32; every updated layer has moved alike, no other has."""
    want = reference(c, loss=loss)
    for name, error in errors(got, want).items():
        assert error <= TOLERANCE, f"{name} is {error:.1e} from PyTorch"
        moved = np.abs(want[name] - c.meta.w[name].numpy()).max()
        assert np.abs(got[name] - want[name]).max() <= 0.02 * moved + 1e-7, (
            f"{name} did not move as in PyTorch"
        )
    frozen = [name for name in c.meta.w if name not in got]
    assert all(np.array_equal(want[name], c.meta.w[name].numpy()) for name in frozen)


def follow(model: DeviceModel, c: Case, path: Sequence[Weights]) -> list[Weights]:
    """The engine's steps, each from the weights of `path` instead of its own last ones."""
    after = []
    model.reset()
    model._call("pmeta_begin", len(c.raw))
    for start in path:
        state = np.concatenate(
            [start[entry["name"]].ravel() for entry in model.facts["state"]]
        ).astype(np.float32)
        model._arena[: state.nbytes] = state.view(np.uint8)
        for sample, label in zip(np.ascontiguousarray(c.raw), c.y.tolist(), strict=True):
            model._call("pmeta_feed", sample.ctypes.data, label, None)
        model._call("pmeta_step")
        after.append(model.weights())
    return after


def check_model(
    model: nn.Module,
    shape: tuple[int, ...],
    method: Method,
    batch: int = 1,
    live: Sequence[str] | None = None,
) -> None:
    """The engine predicts and, after two steps on three samples, has the weights of PyTorch."""
    generator = torch.Generator().manual_seed(0)
    net = take_in(initialise(model, generator), torch.zeros(1, *shape))
    meta = trained(net, method, generator, alpha_0=0.02, steps=2, live=live)
    exported = export(net, meta, method, shape, batch=batch)
    device = DeviceModel(
        exported.data, arena=np.full(exported.arena_bytes, 255, np.uint8)
    )  # nan, where nothing is written
    x, y = torch.randn(3, *shape, generator=generator), torch.arange(3)
    with torch.no_grad():
        expected = forward(net, meta.w, x)[0].numpy()
    np.testing.assert_allclose(
        device.scores(x.numpy()), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max()
    )
    adapted = InnerLoop(net, method, batch=batch).adapt(meta, (x, y)).w
    device.adapt(x.numpy(), y.numpy())
    for name, w in device.weights().items():
        moved = float((adapted[name] - meta.w[name]).abs().max())
        np.testing.assert_allclose(
            w, adapted[name].detach().numpy(), rtol=1e-5, atol=0.01 * moved + 1e-7, err_msg=name
        )
    assert device.high_water_bytes <= device.arena_bytes


class StepErrors(NamedTuple):
    """Of the worst step and layer, against PyTorch in float64 from the same weights."""

    engine: float
    """Largest difference, relative to the largest weight of the layer."""
    single: float
    """The same of PyTorch in float32."""
    moved: float
    """Largest difference of the engine, relative to how far the step moved the layer."""


def step_errors(c: Case, model: DeviceModel) -> StepErrors:
    loop, double = InnerLoop(c.net, c.method, batch=c.batch), c.meta.map(Tensor.double)
    path = loop.path(c.meta, (c.x, c.y))
    plain = [{name: w.numpy() for name, w in at.items()} for at in path]
    worst = StepErrors(0.0, 0.0, 0.0)
    for k, got in enumerate(follow(model, c, plain[:-1])):
        start = {name: w.double() for name, w in path[k].items()}
        exact = {
            name: w.detach().numpy()
            for name, w in loop.step(double, start, k, (c.x.double(), c.y))[0].items()
        }
        for layer in {name.rpartition(".")[0] for name in got}:
            names = [name for name in got if name.rpartition(".")[0] == layer]
            size = max(np.abs(exact[name]).max() for name in names)
            moved = max(np.abs(exact[name] - plain[k][name]).max() for name in names)
            apart = [
                max(np.abs(w[name] - exact[name]).max() for name in names)
                for w in (got, plain[k + 1])
            ]
            found = (
                apart[0] / size,
                apart[1] / size,
                apart[0] / moved if moved > 1e-5 * size else 0.0,
            )
            worst = StepErrors(*(float(max(pair)) for pair in zip(worst, found, strict=True)))
    return worst


def check_steps(e: StepErrors) -> None:
    """The rule for pictures and deep networks: each step from the same weights, layer by layer.

    K steps would multiply what one pixel beyond a kink does (1e-3 of a gradient, in PyTorch's
    float32 as in the engine) until neither is near float64. The engine is within the tolerance of
    float64 or no further from it than PyTorch, and has gone the same way."""
    assert e.engine <= max(TOLERANCE, e.single), (
        f"the engine is {e.engine:.1e} from float64, PyTorch {e.single:.1e}"
    )
    assert e.moved <= 0.02, (
        f"a step of the engine is {e.moved:.1e} of its length from that of PyTorch"
    )
