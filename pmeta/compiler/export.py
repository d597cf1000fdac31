"""From a meta-trained model to model.pmeta: planned to the byte before any data is seen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pmeta.compiler.arena_layout import fullest_at, in_the_way, macs, place
from pmeta.compiler.assemble import assemble
from pmeta.compiler.constants import Stored, numbers_of, store
from pmeta.compiler.frontier import Point, frontier
from pmeta.compiler.fuse import split
from pmeta.compiler.ir import Model, Program
from pmeta.compiler.lower.program import program
from pmeta.compiler.packing import FLAGS
from pmeta.compiler.prototypes import prototypes
from pmeta.compiler.read_model import read_graph
from pmeta.compiler.tiling import choose, lay_out
from pmeta.device.model_file import INPUT_TYPES, Contents, completed, write
from pmeta.method.attention import check_scored, has_scores
from pmeta.method.learned import Meta
from pmeta.method.methods import Method
from pmeta.method.prototypes import LOG_SCALE
from pmeta.network.layers import Layer, Network, evaluating


@dataclass(frozen=True)
class Exported:
    """A file, and what it was planned to."""

    data: bytes
    arena_bytes: int
    infer_bytes: int
    state_bytes: int
    input_bytes: int
    peaks: tuple[tuple[str, int], ...]
    """For inference and for each step: the layer at which the arena is fullest, and its bytes."""
    macs: tuple[int, ...]
    """Multiplications and additions a sample: inference, then each step."""
    batch: int | None
    """Samples that share their attention scores; None: the whole support set."""
    alone: tuple[str, ...]
    """Parameters that belong to no layer and that steps update: the engine leaves them to the
    caller."""
    trained_for: str = ""
    """The memory budget of the training in words, where it is a share."""
    frontier: tuple[Point, ...] = ()
    """Arena against MACs of the plans that there are, if they were asked for."""


@dataclass(frozen=True)
class _Sample:
    """One sample as the device reads it."""

    shape: tuple[int, ...]
    type: str
    scale: Sequence[float] | None
    shift: Sequence[float] | None

    @property
    def channels(self) -> int:
        return self.shape[0] if len(self.shape) > 1 else 1

    @property
    def bytes(self) -> int:
        return prod(self.shape) * np.dtype(self.type).itemsize

    @property
    def factors(self) -> list[Sequence[float]]:
        """Scale and shift of each channel."""
        c = self.channels
        return [self.scale or [1 / 255] * c, self.shift or [0.0] * c]

    def check(self) -> None:
        if self.type not in INPUT_TYPES:
            raise ValueError(
                f"input_type must be one of {', '.join(INPUT_TYPES)}, got {self.type!r}."
            )
        c, given = self.channels, [len(numbers) for numbers in self.factors]
        if self.type == "uint8" and given != [c, c]:
            raise ValueError(
                f"samples of {c} channels take {c} numbers of scale and shift, "
                f"got {given[0]}, {given[1]}."
            )


@dataclass(frozen=True)
class _Source:
    """What is compiled."""

    net: Network
    meta: Meta
    method: Method
    sample: _Sample
    batch: int | None

    @cached_property
    def updates(self) -> list[frozenset[str]]:
        """The layers that each step updates.

        Parameters that stand alone are the caller's, who computes their gradients."""
        return [
            frozenset(layer.name for layer in self._layers(on) if layer.kind != "param")
            for on in self.meta.updates()[self.taken]
        ]

    @cached_property
    def taken(self) -> list[int]:
        """The steps that run: behind prototypes, only those that update something."""
        any_update = self.meta.updates().any(1).tolist()
        return [k for k, any_in_it in enumerate(any_update) if any_in_it or not self.meta.head]

    @property
    def alpha(self) -> np.ndarray:
        """The step sizes; none in the pass that gathers prototypes. (steps, L)"""
        alpha = (self.meta.alpha.detach() * self.meta.updates()).numpy()[self.taken]
        none = np.zeros((1, alpha.shape[1]), alpha.dtype)
        return np.concatenate([none, alpha]) if self.meta.head else alpha

    @property
    def scale(self) -> float | None:
        """s of a head from prototypes."""
        return float(self.meta.head[LOG_SCALE].exp()) if self.meta.head else None

    @property
    def ever(self) -> frozenset[str]:
        """The layers whose weights change."""
        own = frozenset({self.net.head.name} if self.meta.head else ())
        return own.union(*self.updates)

    @property
    def alone(self) -> tuple[str, ...]:
        layers = self._layers(self.meta.updates().any(0))
        return tuple(layer.name for layer in layers if layer.kind == "param")

    def _layers(self, on: Tensor) -> list[Layer]:
        return [layer for layer, up in zip(self.net.layers, on.tolist(), strict=True) if up]

    def check(self) -> None:
        if self.batch is not None and not 1 <= self.batch < 1 << 32:
            raise ValueError(
                f"a micro-batch has at least 1 sample and fewer than 2^32, got batch={self.batch}: "
                f"give None for the whole support set."
            )
        if (self.method.sparse_fw, self.method.sparse_bw) != ("w", "w"):
            raise ValueError(
                "the device runs a dense forward and backward pass: sparse_fw='x' and "
                "sparse_bw='y' are ablations."
            )
        self.sample.check()
        for name, t in self.meta.parameters().items():
            if not t.isfinite().all():
                raise ValueError(
                    f"a model for the device holds finite numbers, {name} has others: the training "
                    "diverged, train again with a smaller lr or alpha_0."
                )
        attended = [l for l in self.net.layers if l.name in self.ever and has_scores(self.net, l)]
        check_scored(attended, self.method)


@dataclass(frozen=True)
class _Planned:
    """Programs with their memory planned."""

    programs: list[Program]
    """The first is inference. Steps that update the same layers share a program."""
    of_steps: list[int]
    """The program of each step."""

    @property
    def arena_bytes(self) -> int:
        return max(p.arena_bytes for p in self.programs)


def export(
    net: Network,
    meta: Meta,
    method: Method,
    input_shape: Sequence[int],
    *,
    input_type: str = "float32",
    scale: Sequence[float] | None = None,
    shift: Sequence[float] | None = None,
    batch: int | None = 1,
    temperatures: Sequence[float] = (),
    facts: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    memory_budget: int | None = None,
    with_frontier: bool = False,
    constants: str = "float32",
) -> Exported:
    """Compile a network with its step sizes and attention for the device.

    `input_shape` is that of a sample without the batch. With `input_type` "uint8" the device reads
    raw pixels and makes them `pixel * scale[c] + shift[c]`; scale is 1/255 and shift 0 unless
    given. Attention scores are those of micro-batches of `batch` samples (None: the whole support
    set), as in `InnerLoop`; any number above 1 takes the same memory. `memory_budget` is the
    arena in bytes that the fastest plan may take; without one it is the least that costs no
    computation.
    `temperatures` are those of the softmax after an adaptation to 1, 2, ... samples of each class,
    and `facts` what users of the file should know besides its shapes; both are passed on in it.
    `progress` is told what is being done. Weights that no step updates and the modules of attention
    are written as `constants`: float32, float16 or int8.
    """
    if constants not in FLAGS:
        raise ValueError(f"constants must be one of {', '.join(FLAGS)}, got {constants!r}.")
    sample = _Sample(tuple(input_shape), input_type, scale, shift)
    source = _Source(net, meta, method, sample, batch)
    source.check()
    progress("reading the network")
    with evaluating(net.model):
        nodes = read_graph(net.model, torch.zeros(1, *sample.shape))
    stored = store(net, meta, method, nodes, source.ever, constants)
    model = Model(
        nodes,
        split(nodes),
        stored.address,
        stored.gammas,
        sample.shape,
        shares=batch != 1,
        packed=stored.packed,
        convert=input_type == "uint8" and any(-1 in n.inputs and n.kind != "conv" for n in nodes),
    )
    planned = _plan(model, source, stored.state_bytes, memory_budget, progress)
    progress("writing the file")
    contents = _contents(source, model, stored, planned)
    rows = contents.header["rows"]
    known = completed(contents.facts | dict(facts or {}), sample.type, rows)
    data = write(replace(contents, facts=known, temperatures=temperatures))
    check_size(len(data), planned.arena_bytes)
    ran = [planned.programs[i] for i in (0, *planned.of_steps)]
    return Exported(
        data,
        planned.arena_bytes,
        planned.programs[0].arena_bytes,
        stored.state_bytes,
        sample.bytes,
        peaks=tuple((fullest_at(p), p.arena_bytes) for p in ran),
        macs=tuple(macs(p, model) for p in ran),
        batch=batch,
        alone=source.alone,
        frontier=frontier(model, source.updates, stored.state_bytes) if with_frontier else (),
    )


def _plan(
    model: Model,
    source: _Source,
    state_bytes: int,
    budget: int | None,
    progress: Callable[[str], None],
) -> _Planned:
    """The fastest programs in the budget, None: in the least arena that costs no computation."""
    masks = [frozenset[str](), *dict.fromkeys(source.updates)]
    of_steps = [masks.index(live, 1) for live in source.updates]
    if source.scale is not None:
        of_steps.insert(0, len(masks))
        masks.append(frozenset({model.nodes[-1].name}))
    limit = None if budget is None else budget - state_bytes
    chosen = [choose(model, live, limit) for live in masks]
    most = max(size for _, size in chosen)
    if limit is not None and most > limit:
        live, (tiling, _) = max(zip(masks, chosen, strict=True), key=lambda plan: plan[1][1])
        tensor, size = in_the_way(program(model, live, tiling))
        raise ValueError(
            f"a memory budget must hold the smallest plan, {state_bytes + most:,} bytes, got "
            f"{budget:,}: {tensor} ({size:,} bytes) is in the way; update fewer layers."
        )
    if limit is None:  # what is faster and no larger than the largest of them
        chosen = [choose(model, live, most) for live in masks]
    programs = []
    for i, (live, (tiling, _)) in enumerate(zip(masks, chosen, strict=True)):
        progress(f"planning the memory of program {i + 1} of {len(masks)}")
        programs.append(lay_out(model, live, tiling, most if limit is None else limit))
    if source.scale is not None:
        prototypes(model, programs[-1], source.scale)
    for p in programs:
        p.arena_bytes = place(p.buffers, p.end, state_bytes)
    return _Planned(programs, of_steps)


def check_size(file: int, arena: int) -> None:
    """Offsets in the file have thirty bits."""
    if max(file, arena) >= 1 << 30:
        raise ValueError(
            f"file and arena stay below 1 GiB each, got {file:,} and {arena:,} bytes: update fewer "
            f"layers."
        )


def _contents(source: _Source, model: Model, stored: Stored, planned: _Planned) -> Contents:
    layers = source.net.layers
    numbers = {layer.name: i for i, layer in enumerate(layers)}
    assembled = assemble(model, planned.programs, stored.state_bytes, numbers)
    sample, output = source.sample, model.nodes[-1].shape
    return Contents(
        header={
            "arena_bytes": planned.arena_bytes,
            "infer_bytes": planned.programs[0].arena_bytes,
            "state_bytes": stored.state_bytes,
            "input_type": INPUT_TYPES.index(sample.type),
            "input_channels": sample.channels,
            "input_plane": prod(sample.shape) // sample.channels,
            "outputs": prod(output),
            "rows": prod(output[:-1]),
            "steps": len(planned.of_steps),
            "layers": len(layers),
            "batch": source.batch or 0,
        },
        constants=stored.constants,
        scale=np.array(sample.factors, "f4"),
        alpha=source.alpha,
        steps=planned.of_steps,
        programs=assembled.programs,
        instrs=assembled.instrs,
        geoms=assembled.geoms,
        copies=stored.copies,
        facts=_facts(source, model),
    )


def _facts(source: _Source, model: Model) -> dict[str, Any]:
    """What the file says of itself for people and for Python."""
    meta, layers, nodes = source.meta, source.net.layers, model.nodes
    state = [name for node in nodes if node.name in source.ever for name in node.params]
    numbers = numbers_of(source.net, meta)
    alone = {layer.name: i for i, layer in enumerate(layers) if layer.kind == "param"}
    return {
        "method": source.method.title,
        "input_shape": list(source.sample.shape),
        "classes": [],
        "repeated": bool(meta.head),
        "prototypes": bool(meta.head),
        "layers": [layer.name for layer in layers],
        "state": [{"name": name, "shape": list(numbers[name].shape)} for name in state],
        "alone": {
            name: {"value": meta.w[name].tolist(), "alpha": meta.alpha[:, i].tolist()}
            for name, i in alone.items()
        },
    }
