"""A trained network made ready: batch norms folded, all that stands in the way named at once."""

import copy

import torch
from torch import Tensor, nn

from pmeta.compiler.read_model import unreadable
from pmeta.network.fold import fold_batch_norms, no_dropout, not_in_place, plain_convs, watch
from pmeta.network.take_in import not_taken_in

TOLERANCE = 1e-5


def prepare(model: nn.Module, example: Tensor) -> nn.Module:
    """A copy of a trained model that gives the same outputs and can be adapted on a device.

    Batch norms in evaluation mode are folded into the conv or linear layer before them, in-place
    activations give new tensors, dropout is off, and convs with TensorFlow's padding become plain
    ones. `example` is a batch of at least one input. Raises ValueError with everything that stands
    in the way: layers that cannot be taken in, operations that the device does not run.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
    >>> prepare(model.eval(), torch.zeros(1, 3, 9, 9))[1]
    Identity()
    """
    if len(example) == 0:
        raise ValueError("example is a batch of at least one input, got none.")
    model = copy.deepcopy(model).eval()
    generator = torch.Generator().manual_seed(0)
    probe = torch.rand(example[:1].shape, generator=generator).to(example) * 2 - 1
    not_in_place(model)  # first: a probe of layers reads what they gave
    no_dropout(model)
    run, expected = watch(model, probe)
    plain_convs(model, run)
    run, _ = watch(model, probe)
    left = fold_batch_norms(model, run)
    problems = left + not_taken_in(model, example) + unreadable(model, example)
    if problems:
        raise ValueError(
            f"{len(problems)} things stand in the way of adapting {type(model).__name__} on a "
            "device:\n" + "\n".join(f"- {problem}" for problem in dict.fromkeys(problems))
        )
    _check_same(model, probe, expected)
    return model


def _check_same(model: nn.Module, probe: Tensor, expected: Tensor) -> None:
    with torch.no_grad():
        apart = float((model(probe) - expected).abs().max())
    size = max(1.0, float(expected.abs().max()))
    if not apart <= TOLERANCE * size:
        raise ValueError(
            f"a prepared model gives what it gave before, but {type(model).__name__} is "
            f"{apart:.1e} off where its outputs reach {size:.1e}: a layer is read in a way that "
            "one forward pass does not show."
        )
