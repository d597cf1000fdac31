"""What the attention of a trained p-Meta run is worth, and what other settings would make of it.

    python benchmarks/attention.py RUN --data DIR
    python benchmarks/attention.py RUN --data DIR --train 600

The first table changes the scores of the run at test time, on the same tasks of the validation
classes: the scores as they are, all 1, each its mean over tasks, and no update but that of the last
layer. With --train, weights and step sizes stay as they are, new attention modules are trained
alone on that many tasks, once for each setting, and compared with scores of 1.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta.data.tasks import ImageSet, open_split, sample_task
from pmeta.method import attention
from pmeta.method.inner import InnerLoop, Scores
from pmeta.method.learned import Meta, init_meta
from pmeta.method.methods import METHODS, Method
from pmeta.method.outer import Outer, Schedule
from pmeta.network.layers import Network
from pmeta.network.tape import forward
from pmeta.training.restore import load, restore
from pmeta.training.workers import keep_freed_memory

QUERIES, TRAIN_SEED, TEST_SEED = 15, 7, 9
ONES = METHODS["pmeta-lr"]
STATIC = replace(METHODS["pmeta"], scores="static")


@dataclass(frozen=True)
class Setting:
    """One way to train the attention modules."""

    rate: float = 1e-3
    bias_rate: float = 1e-2
    method: dict[str, Any] = field(default_factory=dict)
    patch: dict[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    """Functions of pmeta.method.attention that are replaced."""


def centred(v: Tensor) -> Tensor:
    """The pattern of v over channels: what is left of its size and mean."""
    v = v - v.mean(-1, keepdim=True)
    return v * (v.square().mean(-1, keepdim=True) + 1e-20).rsqrt()


SETTINGS = {
    "as it is": Setting(),
    "rate of W and b1 x 10": Setting(rate=1e-2),
    "all rates x 10 (temperature 1/10)": Setting(rate=1e-2, bias_rate=1e-1),
    "rho 0 / 0": Setting(method={"clip_ratio_fw": 0.0}),
    "rho 0.5 / 0.3": Setting(method={"clip_ratio_fw": 0.5, "clip_ratio_bw": 0.3}),
    "backward input raw": Setting(patch={"unit_rms": lambda v: v}),
    "both inputs centred, rate x 10": Setting(rate=1e-2, patch={"unit_rms": centred}),
    "static factors alpha^Ch": Setting(method={"scores": "static"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="run folder of a p-Meta (LR+attention) training")
    parser.add_argument("--data", required=True, help="folder of its pictures, with train and val")
    parser.add_argument("--tasks", type=int, default=400, help="validation tasks")
    parser.add_argument(
        "--train", type=int, default=0, help="tasks on which each setting is trained"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    config, best = load(args.run)
    net, meta = restore(config, best.tensors, tuple(best.info["input"]), torch.device("cpu"))
    train, val = (
        open_split(args.data, split, size=config.image_size) for split in ("train", "val")
    )
    tasks = [
        sample_task(val, TEST_SEED, i, config.n_way, config.n_shot, QUERIES)
        for i in range(args.tasks)
    ]
    method = config.method_row()
    ones = test(net, ONES, meta, tasks)
    columns = ["", "query loss", "difference to scores of 1", "accuracy", "difference"]
    columns += ["channels kept", "cosine of two samples, forward", "backward"] if args.train else []
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    if args.train:
        for name, setting in SETTINGS.items():
            with patched(setting):
                trained = train_attention(
                    net, meta, setting, train, (config.n_way, config.n_shot), args.train
                )
                found = test(net, *trained, tasks)
            print(f"{row(name, found, ones)} {likeness(found)}", flush=True)
        return
    own = test(net, method, meta, tasks)
    head_only = replace(
        meta, mask=meta.mask & torch.tensor([layer == net.head for layer in net.layers])
    )
    means = replace(meta, attention=mean_scores(own))
    rows = {
        "scores as they are": own,
        "scores := 1": ones,
        "scores := their mean over tasks": test(net, STATIC, means, tasks),
        "the last layer alone is updated": test(net, ONES, head_only, tasks),
    }
    for name, found in rows.items():
        print(row(name, found, ones))
    print(
        "\n| layer | channels kept | cosine of two samples, forward | backward |\n|---|---|---|---|"
    )
    for name, figures in by_layer(own).items():
        print(f"| {name} | {figures[0]:.0%} | {figures[1]:.3f} | {figures[2]:.3f} |")


@dataclass(frozen=True)
class Found:
    """What adaptation to many tasks gave."""

    results: Tensor
    """Query loss and accuracy of each task. (tasks, 2)"""
    scores: list[Scores]
    """Of every step of every task."""


def test(net: Network, method: Method, meta: Meta, tasks: list[Any]) -> Found:
    """Adapt to each task one sample at a time."""
    loop, results, scores = InnerLoop(net, method, batch=1), [], []
    for x, y, x_query, y_query in tasks:
        adapted = loop.adapt(meta, (x, y))
        with torch.no_grad():
            output, _ = forward(net, adapted.w, x_query, pool_first=True)
        results.append(
            (
                float(F.cross_entropy(output, y_query)),
                float((output.argmax(1) == y_query).double().mean()),
            )
        )
        scores += adapted.scores
    return Found(torch.tensor(results), scores)


def mean_scores(found: Found) -> dict[str, Tensor]:
    """Static factors alpha^Ch that are the means of the scores over samples, steps and tasks."""
    rows: dict[str, list[Tensor]] = {}
    for scores in found.scores:
        for name, gammas in scores.items():
            for side, gamma in zip(("fw", "bw"), gammas, strict=True):
                if gamma is not None:
                    rows.setdefault(f"{name}.{side}.alpha", []).append(gamma)
    return {name: torch.cat(parts).mean(0) for name, parts in rows.items()}


def train_attention(
    net: Network, meta: Meta, setting: Setting, images: ImageSet, kind: tuple[int, int], tasks: int
) -> tuple[Method, Meta]:
    """New attention modules, with everything else as it is."""
    method = replace(METHODS["pmeta"], **setting.method)
    fresh = init_meta(net, method, len(meta.alpha), 0.01, torch.Generator().manual_seed(0))
    still = {"lr": 0.0, "alpha_lr": 0.0, "lam": 0.0, "freeze_at": 2.0}
    rates = {"attention_lr": setting.rate, "attention_bias_lr": setting.bias_rate}
    loop = InnerLoop(net, method, batch=1, second_order=True)
    outer = Outer(
        loop, replace(meta, attention=fresh.attention), Schedule(tasks // 2, **still, **rates)
    )
    for i in range(0, tasks, 2):
        outer.update(
            outer.gradient(sample_task(images, TRAIN_SEED, j, *kind, 5) for j in (i, i + 1))
        )
    return method, outer.meta.map(Tensor.detach)


@contextmanager
def patched(setting: Setting) -> Iterator[None]:
    before = {name: getattr(attention, name) for name in (*setting.patch, "channel_means")}
    for name, f in setting.patch.items():
        setattr(attention, name, f)
    if centred in setting.patch.values():
        attention.channel_means = lambda layer, tensor: centred(
            before["channel_means"](layer, tensor)
        )
    try:
        yield
    finally:
        for name, f in before.items():
            setattr(attention, name, f)


def row(name: str, found: Found, base: Found) -> str:
    """A line of the table; the CI95 of differences is over tasks."""
    mean, difference = found.results.mean(0), found.results - base.results
    ci = 1.96 * difference.std(0) / math.sqrt(len(difference))
    loss = f"{mean[0]:.4f} | {difference[:, 0].mean():+.4f} ± {ci[0]:.4f}"
    gain = f"{100 * difference[:, 1].mean():+.2f} ± {100 * ci[1]:.2f}"
    return f"| {name} | {loss} | {100 * mean[1]:.2f} % | {gain} |"


def by_layer(found: Found) -> dict[str, list[float]]:
    """Share of input channels kept, and the cosine of the scores of a task's first two samples,
    forward and backward."""
    figures: dict[str, list[list[float]]] = {}
    for scores in found.scores:
        for name, (fw, bw) in scores.items():
            if fw is not None and bw is not None and len(fw) > 1:
                cosines = [float(F.cosine_similarity(s[0], s[1], dim=0)) for s in (fw, bw)]
                figures.setdefault(name, []).append([float((fw > 0).double().mean()), *cosines])
    return {name: torch.tensor(rows).mean(0).tolist() for name, rows in figures.items()}


def likeness(found: Found) -> str:
    """The same over all layers."""
    layers = list(by_layer(found).values())
    if not layers:
        return "- | - | - |"
    kept, fw, bw = torch.tensor(layers).mean(0).tolist()
    return f"{kept:.0%} | {fw:.3f} | {bw:.3f} |"


if __name__ == "__main__":
    main()
