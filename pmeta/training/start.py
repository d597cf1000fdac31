"""Where a training starts: from what another run or a model of the zoo has learned (`--init`)."""

from dataclasses import replace

import torch
from torch import Tensor

from pmeta.method.learned import Meta
from pmeta.network.layers import Layer, Network, Weights
from pmeta.training.run_folder import Checkpoint, open_run

EMBEDDING_NORM = ("norm5.weight", "norm5.bias")
"""Of 4Conv with `--embedding norm`, which a pre-training does without."""


def initial(path: str) -> Checkpoint:
    """The best model of a run, of a pre-training or of the zoo."""
    best = open_run(path).load("best")
    if best is None:
        raise ValueError(
            f"--init goes on from the best model of a run, and {path} has none: give a run folder "
            "that has a best.safetensors, or a name that pmeta zoo lists."
        )
    return best


def start_from(net: Network, meta: Meta, checkpoint: Checkpoint, path: str) -> Meta:
    """`meta` with all that fits of a checkpoint: the weights, which must, step sizes, attention.

    The head may differ in its number of outputs: those of the checkpoint are repeated cyclically.
    Where it reads other features, or there is none as after pre-training, it stays as it was drawn.
    A norm of the embeddings may be new too. Every layer may be updated again, whatever the other
    run had chosen."""
    new = {name for name in EMBEDDING_NORM if f"w/{name}" not in checkpoint.tensors}
    body = [name for name in meta.w if name not in net.head.params and name not in new]
    for name in body:
        _check(name, meta.w[name], checkpoint.tensors.get(f"w/{name}"), path)
    w = {name: checkpoint.tensors[f"w/{name}"] for name in body}
    moved = {
        name: t.to(meta.w[name]) for name, t in {**w, **_head(net.head, meta, checkpoint)}.items()
    }
    alpha = checkpoint.tensors.get("alpha")
    same_steps = alpha is not None and alpha.shape == meta.alpha.shape
    attention = {
        name: _fitting(t, checkpoint, f"attention/{name}") for name, t in meta.attention.items()
    }
    return replace(
        meta,
        w={**meta.w, **moved},
        alpha=alpha.to(meta.alpha) * meta.mask if alpha is not None and same_steps else meta.alpha,
        attention=attention,
        head={name: _fitting(t, checkpoint, f"head/{name}") for name, t in meta.head.items()},
    )


def _check(name: str, wanted: Tensor, given: Tensor | None, path: str) -> None:
    shape = "none" if given is None else tuple(given.shape)
    if given is None or shape != tuple(wanted.shape):
        raise ValueError(
            f"--init goes on with the same network, where {name} has the shape "
            f"{tuple(wanted.shape)}, and {path} has {shape}: choose the backbone, channels and "
            "images of that run, or leave --init out."
        )
    if not given.isfinite().all():
        raise ValueError(f"weights must be finite, {name} of {path} is not: give another --init.")


def _head(head: Layer, meta: Meta, checkpoint: Checkpoint) -> Weights:
    """The outputs of the checkpoint, repeated cyclically; none where they do not fit."""
    if meta.head:
        return {}
    given = {name: checkpoint.tensors.get(f"w/{name}") for name in head.params}
    if any(t is None or t.shape[1:] != meta.w[name].shape[1:] for name, t in given.items()):
        return {}
    rows = {name: torch.arange(len(meta.w[name])) for name in head.params}
    return {name: t[rows[name] % len(t)] for name, t in given.items() if t is not None}


def _fitting(wanted: Tensor, checkpoint: Checkpoint, name: str) -> Tensor:
    given = checkpoint.tensors.get(name)
    return wanted if given is None or given.shape != wanted.shape else given.to(wanted)
