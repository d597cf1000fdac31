"""Figure 5: the share of each layer that is updated, and how alike two samples' scores are."""

import dataclasses
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from pmeta.base.files import make_folder
from pmeta.base.reading import Count, Number
from pmeta.method.inner import Scores
from pmeta.network.layers import Network
from pmeta.training.restored import Asked, Restore
from pmeta.training.results import evaluate_task
from pmeta.training.run_folder import write_json
from pmeta.training.workers import Group

SEED = 1
"""Of the tasks, the same as those that are evaluated, and of the pairs."""


def path_of(run: Path, split: str) -> Path:
    """Where the measured figures are kept."""
    return run / "evaluations" / f"mini-{split}-figure5.json"


class Measured(TypedDict):
    """What is drawn: shares of the weights (K, L), and how alike scores are (L,), with their
    standard deviations."""

    split: str
    eval_tasks: Count
    pairs: Count
    layers: list[str]
    updated: list[list[bool]]
    ratios: list[list[Number]]
    ratios_std: list[list[Number]]
    cosine: list[Number]
    cosine_std: list[Number]


def measure(group: Group, restore: Restore, asked: Asked) -> None:
    """Adapt the best model of a run to unseen tasks, one sample at a time, and write what figure 5
    shows."""
    restored = restore(group, asked)
    unseen, net, meta, loop = restored.unseen(group), restored.net, restored.meta, restored.loop()
    assert unseen.task is not None
    # a layer has scores even where its alpha is 0
    first = dataclasses.replace(meta, mask=torch.ones_like(meta.mask))
    tasks = []
    for i in group.share(range(unseen.tasks)):
        drawn = unseen.task(i)
        _, scores = loop.step(first, meta.w, 0, (drawn[0], drawn[1]))
        ratios = evaluate_task(loop, meta, drawn).ratios
        tasks.append((ratios, sample_scores(net, scores, len(drawn[0]))))
    tasks = group.gather(tasks)
    if group.rank == 0:
        path = path_of(Path(asked.run), asked.split)
        summary = _summary(net, meta.updates(), tasks)
        make_folder(path.parent)
        write_json(path, summary | {"split": asked.split, "eval_tasks": unseen.tasks})


def sample_scores(net: Network, scores: Scores, n: int) -> list[Tensor]:
    """gamma_l of each of n samples in one step (Eq. 12), of each layer in order. (n, channels of
    both sides)

    That of a conv or fc layer is the product of two vectors, whose cosine similarity is the product
    of theirs: both are kept side by side. A norm has one score a channel. Without attention gamma
    is 1.
    """
    out = []
    for layer in net.layers:
        fw, bw = (
            torch.ones(n, 1) if g is None else g.cpu().expand(n, -1) for g in scores[layer.name]
        )
        out.append((fw * bw)[:, None] if layer.kind == "norm" else _side_by_side(fw, bw))
    return out


# (n, a), (n, b) -> (n, 2, max(a, b)), filled up with zeros
def _side_by_side(fw: Tensor, bw: Tensor) -> Tensor:
    width = max(fw.shape[1], bw.shape[1])
    return torch.stack([torch.nn.functional.pad(g, (0, width - g.shape[1])) for g in (fw, bw)], 1)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine similarity of the scores of samples a and b: the product over the sides. (n, sides, C)
    twice -> (n,)"""
    return torch.nn.functional.cosine_similarity(a, b, dim=-1).prod(1)


def _summary(net: Network, updates: Tensor, tasks: list[Any]) -> dict[str, Any]:
    ratios = torch.stack([r for r, _ in tasks])  # (tasks, K, L)
    # of each layer
    gammas = [torch.cat(parts) for parts in zip(*(scores for _, scores in tasks), strict=True)]
    order = torch.randperm(len(gammas[0]), generator=torch.Generator().manual_seed(SEED))
    half = len(order) // 2
    # (L, pairs)
    alike = torch.stack([cosine(g[order[:half]], g[order[half : 2 * half]]) for g in gammas])
    return {
        "layers": [layer.name for layer in net.layers],
        "updated": updates.tolist(),
        "ratios": ratios.mean(0).tolist(),
        "ratios_std": ratios.std(0, correction=0).tolist(),
        "cosine": alike.mean(1).tolist(),
        "cosine_std": alike.std(1, correction=0).tolist(),
        "pairs": half,
    }
