"""Meta-training on people (Alg. 2): windows, tasks, and validation on people never seen."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pmeta.data.recordings.windows import Windowing
from pmeta.kinds.recordings.config import SensorConfig
from pmeta.kinds.recordings.evaluate import validation_result
from pmeta.kinds.recordings.net import SensorNet
from pmeta.kinds.recordings.pooled import train_pooled
from pmeta.kinds.recordings.sets import WindowSet, by_split, fitted, read_all, window_set
from pmeta.kinds.recordings.tasks import person_task
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta, init_meta
from pmeta.method.outer import Outer
from pmeta.method.step_sizes import freeze
from pmeta.network.backbones import initialise
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from pmeta.training.budget import Sample, budget_choice
from pmeta.training.meta_learning import MetaLearning, schedule
from pmeta.training.run_folder import Run, write_json
from pmeta.training.workers import Group


class Data(NamedTuple):
    """The windows of those who train, validate and test (None: nobody does)."""

    train: WindowSet
    val: WindowSet
    test: WindowSet | None


def training(group: Group, run: Run, config: SensorConfig) -> MetaLearning:
    """What the trainer drives: tasks that are people, validated on people never seen."""
    data = group.from_first(lambda: open_data(config))
    if group.rank == 0:
        write_json(run.path / "windows.json", data.train.windowing.as_facts())
    net, meta = build(config, data.train.windowing)
    meta = dataclasses.replace(meta, w=group.from_first(lambda: start(run, config, net, data)))
    method, samples = config.method_row(), config.n_shot * len(data.train.windowing.labels)
    budget = config.memory_budget, "arena", samples, Sample(data.train.shape)
    small = config.freeze_below * config.alpha_0
    choose = budget_choice(net, meta, method, *budget) or (lambda meta: freeze(meta, small))
    sizes = config.n_shot, config.n_query
    loop = InnerLoop(net, method, second_order=config.second_order)
    return MetaLearning(
        config,
        Outer(loop, meta, schedule(config), choose),
        samples,
        lambda i: person_task(data.train, config.seed, i, *sizes, config.rotate),
        lambda group, meta: validate(group, net, meta, config, data.val),
    )


def open_data(config: SensorConfig) -> Data:
    """The windows of a run's people; training and validation see the chosen devices alone, so that
    another device is unseen."""
    recordings = read_all(Path(config.data), config.columns)
    own = by_split(recordings, config.val_people, config.test_people, config.seed)
    for split, who in (("train", "train"), ("val", "validate")):
        own[split] = [r for r in own[split] if has_device(r.group, config.devices)]
        if not own[split]:
            raise ValueError(
                f"--devices are folders below the people of {config.data}, none of those who {who} "
                f"has {', '.join(config.devices)}: name others."
            )
    labels = {name for r in recordings if r.labels is not None for name in set(r.labels.tolist())}
    first = Windowing(
        recordings[0].columns, tuple(sorted(labels - {""})),
        config.rate, config.length, config.stride, config.share,
    )  # fmt: skip
    windowing = fitted(first, own["train"], config.triples)
    sets = {
        split: window_set(rows, windowing, f"{split} of {config.data}") if rows else None
        for split, rows in own.items()
    }
    assert sets["train"]
    assert sets["val"]
    return Data(sets["train"], sets["val"], sets["test"])


def has_device(group: str, devices: tuple[str, ...]) -> bool:
    """Whether a group PERSON/DEVICE is of these devices; none: any is.

    >>> has_device("s01/phone", ("phone",)), has_device("s01/watch", ("phone",))
    (True, False)
    """
    return not devices or group.split("/")[-1] in devices


def build(config: SensorConfig, windowing: Windowing) -> tuple[Network, Meta]:
    """The network of a run, and the initial parameters of its training."""
    generator = torch.Generator().manual_seed(config.seed)
    shape = len(windowing.columns), config.length
    model = SensorNet(*shape, len(windowing.labels), config.channels)
    net = take_in(initialise(model, generator), torch.zeros(1, *shape))
    return net, init_meta(net, config.method_row(), config.inner_steps, config.alpha_0, generator)


def start(run: Run, config: SensorConfig, net: Network, data: Data) -> dict[str, torch.Tensor]:
    """Where meta-training starts: an ordinary classifier, kept in the run as `pooled`."""
    if not config.pooled_epochs:
        return net.weights()
    pooled = run.load("pooled")
    if pooled is not None:
        return pooled.tensors
    epochs, lr = config.pooled_epochs, config.pooled_lr
    w = train_pooled(net, net.weights(), data.train, epochs, lr, config.seed)
    run.save("pooled", w, {"epochs": config.pooled_epochs})
    return w


def validate(
    group: Group, net: Network, meta: Meta, config: SensorConfig, windows: WindowSet
) -> list[Any]:
    """The same draws of the same people each time, adapted to one window at a time."""
    numbers = group.share(range(len(windows.groups) * config.val_draws))
    loop = InnerLoop(net, config.method_row(), batch=1)
    return group.gather([validation_result(loop, meta, windows, config, i) for i in numbers])
