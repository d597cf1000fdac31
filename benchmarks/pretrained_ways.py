"""Ways to adapt a pretrained network to one task: p-Meta, and what a user would try instead."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pmeta.data.tasks import ImageSet, Task, open_split, sample_task
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta
from pmeta.method.prototypes import init_scale, prototype_head
from pmeta.network.layers import Network, Weights
from pmeta.training.config import ImageConfig
from pmeta.training.features import AT_ONCE, at_most, cache_features, cut
from pmeta.training.own.above import Above, above, fixed_weights, stage_number
from pmeta.training.restore import load, restore
from pmeta.training.train import build

MODEL = "pmeta.training.own.efficientnet:make_net"
CENTROID, LAST, TENTH = "nearest centroid", "last layer", "last layer, a tenth of the step"
BIASES, ALL = "biases and last layer", "all layers"


class Setting(NamedTuple):
    """What is chosen for a control."""

    scale: float
    """Of the scores of a head from prototypes."""
    rate: float
    steps: int


STILL = Setting(10.0, 0.0, 0)
HEAD = tuple(map(Setting._make, product((2.0, 10.0), (0.01, 0.1, 1.0), (2, 20))))
BODY = tuple(map(Setting._make, product((2.0,), (0.001, 0.003, 0.01, 0.03, 0.1), (2,))))
"""What the last layer alone, and all other controls, are tried with."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A run, as a whole and above its features."""

    config: ImageConfig
    net: Network
    meta: Meta
    part: Above
    came: Weights
    """The weights of the whole before the training."""
    version: str
    """Of what it has learned."""

    @property
    def title(self) -> str:
        return f"p-Meta {self.config.memory_budget}, {self.config.image_size} px"

    def task(self, images: ImageSet, seed: int, i: int, shot: int, query: int) -> Task:
        return sample_task(images, seed, i, self.config.n_way, shot, query)

    def adapted(self, task: Task) -> Tensor:
        """p-Meta: the scores of the queries of a task of features."""
        upper = self.part.narrowed(self.meta)
        upper = replace(upper, mask=upper.updates())
        loop = InnerLoop(self.part.net, self.config.method_row(), replay=False)
        w = loop.adapt(upper, (task.support_x, task.support_y)).w
        with torch.no_grad():
            return torch.func.functional_call(self.part.net.model, w, (task.query_x,))

    @cached_property
    def tail(self) -> nn.Module:
        """Behind the mean over space."""
        return cut(self.part.net.model, stage_number(self.part.net.model, "scale"))[1]

    @cached_property
    def controls(self) -> dict[str, list[str]]:
        """The parameters that each control updates; none of them has `scale`, which is new."""
        whole, upper = (
            [name for name, _ in model.named_parameters() if not name.startswith("scale.")]
            for model in (self.net.model, self.part.net.model)
        )
        head = list(self.net.head.params)
        biases = [name for name in upper if name.endswith("bias") and name not in head]
        return {
            CENTROID: [],
            LAST: head,
            TENTH: head,
            BIASES: [*biases, *head],
            f"layers from {self.config.cut_at} on": upper,
            ALL: whole,
        }

    def controlled(self, own: Sequence[str], setting: Setting) -> Meta:
        """A control in the words of meta-training, for a file: the network as it came, one step
        size for all layers that have some of the parameters."""
        mask = torch.tensor([bool({*layer.params} & {*own}) for layer in self.net.layers])
        rows = mask.repeat(max(setting.steps, 1), 1)
        return Meta(self.came, setting.rate * rows, {}, rows, init_scale(self.net, setting.scale))


def open_run(path: str) -> Trained:
    """The best model of a run, or one of the zoo."""
    config, best = load(path, model=MODEL)
    image, cpu = tuple(best.info["input"]), torch.device("cpu")
    config = replace(config, image_size=image[-1])
    model, came = build(config, image, cpu)
    fixed = {f"w/{name}" for name in fixed_weights(config, model.model)}
    learned = {name: t for name, t in best.tensors.items() if name not in fixed}
    net, meta = restore(config, learned, image, cpu)
    digest = sha256()
    for name, t in sorted(learned.items()):
        digest.update(name.encode() + t.numpy().tobytes())
    part = above(net, meta, stage_number(net.model, config.cut_at))
    return Trained(config, net, meta, part, came.w, digest.hexdigest()[:16])


def stepped(
    run: Trained, model: nn.Module, w: Weights, task: Task, own: Sequence[str], setting: Setting
) -> Tensor:
    """The scores of the queries after plain gradient steps on some parameters, from prototypes
    on. `model` is the network or its upper part, and the task has what it reads."""
    assert isinstance(model, nn.Sequential)
    x, y, queries, _ = task
    head = run.net.head
    with torch.no_grad():
        embedded = _call(model[:-1], w, x)
        scale = torch.tensor(setting.scale / head.c_in).log()
        new = prototype_head(embedded, y, run.config.n_way, scale)
        w = w | dict(zip(head.params, new, strict=True))
        if {*own} <= {*head.params}:  # embeddings stay: computed once
            x, queries, model = embedded, _call(model[:-1], w, queries), model[-1:]
    for _ in range(setting.steps if own else 0):
        moving = {name: w[name].detach().requires_grad_() for name in own}
        loss = nn.functional.cross_entropy(_call(model, w | moving, x), y)
        g = torch.autograd.grad(loss, list(moving.values()))
        w |= {n: t.detach() - setting.rate * d for (n, t), d in zip(moving.items(), g, strict=True)}
    with torch.no_grad():
        return _call(model, w, queries)


def controlled(
    run: Trained, name: str, setting: Setting, root: str, split: str, drawn: tuple[int, ...]
) -> tuple[Tensor, Task]:
    """The scores of a control on one task, and that task."""
    own = run.controls[name]
    if name == ALL:
        task = run.task(pictures(run, root, split), *drawn)
        return stepped(run, run.net.model, run.came, task, own, setting), task
    if name in (CENTROID, LAST, TENTH):
        task = run.task(pooled(run, root, split), *drawn)
        return stepped(run, run.tail, run.came, task, own, setting), task
    task = run.task(features(run, root, split), *drawn)
    return stepped(run, run.part.net.model, run.came, task, own, setting), task


def still(run: Trained, root: str, drawn: tuple[int, ...]) -> tuple[Tensor, Task]:
    """The scores of what p-Meta has learned without its steps."""
    task = run.task(pooled(run, root, "val"), *drawn)
    return stepped(run, run.tail, run.came | run.meta.w, task, [], STILL), task


def right(scores: Tensor, task: Task) -> int:
    """Queries that are classified right."""
    return int((scores.argmax(1) == task.query_y).sum())


def _call(model: nn.Module, w: Weights, x: Tensor) -> Tensor:
    own = {name: w[name] for name, _ in model.named_parameters()}
    return torch.func.functional_call(model, own, (x,))


@cache
def pictures(run: Trained, root: str, split: str) -> ImageSet:
    images = open_split(root, split, run.config.image_size, channels=3)
    return at_most(images, run.config.most_images)


@cache
def features(run: Trained, root: str, split: str) -> ImageSet:
    """What the part below the cut gives for the pictures of a set."""
    return cache_features(run.part.lower, pictures(run, root, split))


@cache
def pooled(run: Trained, root: str, split: str) -> ImageSet:
    """What the network as it came gives before its last stages, for ways that go on from there."""
    kept = features(run, root, split)
    body = cut(run.part.net.model, stage_number(run.part.net.model, "scale"))[0]
    with torch.no_grad():
        parts = [
            _call(body, run.came, torch.from_numpy(np.array(kept.images[i : i + AT_ONCE])))
            for i in range(0, len(kept.images), AT_ONCE)
        ]
    return replace(kept, images=torch.cat(parts).numpy())


def tuned(
    run: Trained, data: str, shots: Sequence[int], n_query: int, tasks: int
) -> dict[str, dict[str, Setting]]:
    """The best settings of each control for each number of shots, on training classes; costly
    controls on fewer tasks."""
    best: dict[str, dict[str, Setting]] = {CENTROID: {str(shot): STILL for shot in shots}}
    for name in run.controls:
        if name in (CENTROID, TENTH):
            continue
        best[name], count = {}, tasks if name == LAST else tasks // 4 if name == ALL else tasks // 2
        for shot in shots:
            hits = {
                setting: sum(
                    right(*controlled(run, name, setting, data, "train", (2, i, shot, n_query)))
                    for i in range(count)
                )
                for setting in (HEAD if name == LAST else BODY)
            }
            best[name][str(shot)] = max(hits, key=lambda setting: hits[setting])
            print(f"{name}, {shot} shots: {json.dumps(best[name][str(shot)])}", flush=True)
    best[TENTH] = {shot: own._replace(rate=own.rate / 10) for shot, own in best[LAST].items()}
    return best
