"""A memory budget of a training: the choice of layers that keeps to it."""

import copy
import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pmeta.compiler.arena import Arena
from pmeta.method.arena_budget import check_arena, fit_arena
from pmeta.method.learned import Meta
from pmeta.method.memory_budget import fit_budget, memory_of
from pmeta.method.methods import METHODS, Method
from pmeta.network.layers import Network
from pmeta.training.settings import parse_bytes, parse_share


@dataclasses.dataclass(frozen=True)
class Sample:
    """What the device reads: a shape, as float32 or as uint8."""

    shape: Sequence[int]
    type: str = "float32"


def budget_choice(
    net: Network,
    meta: Meta,
    method: Method,
    budget: str,
    accounting: str,
    samples: int,
    sample: Sample,
) -> Callable[[Meta], Meta] | None:
    """The choice of layers that a memory budget asks for.

    Raises ValueError where the budget is too small for any layer."""
    if not budget:
        return None
    size = budget_bytes(net, meta, budget, accounting, samples, sample)
    if accounting != "arena":
        fit_budget(net, meta, method, size, samples, 1, accounting)  # better now than late
        return lambda meta: fit_budget(net, meta, method, size, samples, 1, accounting)
    check_arena(net, size, arena_of(net, meta, method, sample, size), len(meta.alpha))
    return lambda meta: fit_arena(
        net, meta, method, size, arena_of(net, meta, method, sample, size), samples
    )


def budget_bytes(
    net: Network, meta: Meta, budget: str, accounting: str, samples: int, sample: Sample
) -> int:
    """The bytes of a budget; a share is one of updating all layers as MAML does."""
    share = parse_share(budget)
    if share is None:
        return parse_bytes(budget)
    return int(share * maml_bytes(net, meta, accounting, samples, sample))


def share_in_bytes(net: Network, meta: Meta, budget: str, accounting: str, sample: Sample) -> str:
    """A share of the arena in words; empty where the budget is none."""
    share = parse_share(budget) if accounting == "arena" else None
    if share is None:
        return ""
    whole = maml_bytes(net, meta, accounting, 1, sample)
    return f"{budget} of the {whole:,} bytes that MAML takes, {int(share * whole):,} bytes"


def maml_bytes(net: Network, meta: Meta, accounting: str, samples: int, sample: Sample) -> int:
    """What updating all layers in every step takes."""
    maml = METHODS["maml"]
    if accounting == "arena":
        return arena_of(net, meta, maml, sample)(torch.ones_like(meta.mask))
    names = [layer.name for layer in net.layers if layer.kind != "param"]
    return memory_of(net, maml, samples, accounting=accounting).peak(names)


def arena_of(
    net: Network, meta: Meta, method: Method, sample: Sample, budget: int | None = None
) -> Callable[[Tensor], int]:
    """What our engine takes for a mask of updated layers (K, L), one sample at a time.

    With a budget plans that take more time count too, as in an export with this budget."""
    arena = _arena(net, meta, method, sample)
    return lambda mask: arena.bytes(mask.cpu(), budget)


def export_budget(
    net: Network,
    meta: Meta,
    method: Method,
    budget: str,
    accounting: str,
    sample: Sample,
    batch: int | None,
) -> int | None:
    """The budget in bytes that an export of layers which were chosen for it has to keep to.

    None: the budget is not one of the arena, the layers have not been chosen yet, or no plan keeps
    to it (of more classes than in training)."""
    if not budget or accounting != "arena":
        return None
    size = budget_bytes(net, meta, budget, accounting, 1, sample)
    arena, updates = _arena(net, meta, method, sample, batch), meta.updates().cpu()
    return size if arena.bytes(updates, size) <= size else None


def _arena(
    net: Network, meta: Meta, method: Method, sample: Sample, batch: int | None = 1
) -> Arena:
    """Planned on a copy of the model, which stays as it is and where it is."""
    model = copy.deepcopy(net.model).cpu().float()
    own = dataclasses.replace(net, model=model)
    meta = meta.map(lambda t: t.detach().cpu().float())
    return Arena(own, meta, method, sample.shape, input_type=sample.type, batch=batch)
