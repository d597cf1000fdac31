"""Meta-training on pictures (Alg. 2): network, tasks, and validation on unseen classes."""

import dataclasses

import torch

from pmeta.data.tasks import ImageSet, Task, check_enough, open_split, sample_task
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.pictures.features import at_most, lowest_stage
from pmeta.kinds.pictures.mixed_tasks import check_sizes, training_task
from pmeta.kinds.pictures.pretraining.config import PretrainConfig
from pmeta.kinds.pictures.upper_part import UpperPart, cut_at_stage, fixed_weights, stage_number
from pmeta.method.inner import InnerLoop
from pmeta.method.learned import Meta, init_meta
from pmeta.method.outer import Outer
from pmeta.method.step_sizes import freeze
from pmeta.network.backbones import FourConv, ResNet12, initialise
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from pmeta.training.budget import Sample, arena_of, budget_bytes, budget_choice
from pmeta.training.meta_learning import MetaLearning, schedule
from pmeta.training.own_network import check_device, check_outputs, make_model
from pmeta.training.results import TaskResult, evaluate_task
from pmeta.training.run_folder import Run
from pmeta.training.start import initial, start_from
from pmeta.training.workers import Group


def training(group: Group, run: Run, config: ImageConfig) -> MetaLearning:
    """What the trainer drives: tasks of pictures, validated on classes never seen."""
    device = choose_device(config.device, group.rank)
    images = {split: open_images(config, split) for split in ("train", "val")}
    check_sizes(config, images["train"])
    net, meta = build(config, images["train"].shape, device)
    meta = first_meta(group, run, config, net, meta)
    method, samples = config.method_row(), config.n_way * config.n_shot
    reads = Sample(images["train"].shape, "uint8")
    budget = config.memory_budget, config.budget_accounting
    choose = budget_choice(net, meta, method, *budget, samples, reads)
    small = config.freeze_below * config.alpha_0
    choose = choose or (lambda meta: freeze(meta, small))
    part = upper_part(config, net, meta, reads)
    if part:
        net, meta, choose = part.net, part.narrowed(meta), part.choice(choose)
        images = {split: part.features(group, own) for split, own in images.items()}
    fixed = fixed_weights(config, net.model)
    unseen = fewer_ways(config, images["val"])
    return MetaLearning(
        config,
        Outer(training_loop(net, config), meta, schedule(config), choose, fixed),
        samples,
        lambda i: training_task(config, images["train"], i, device),
        lambda group, meta: validate(group, net, meta, unseen, images["val"], device),
        sample=reads.shape,
        whole=part.widened if part else lambda meta: meta,
    )


def choose_device(name: str, rank: int) -> torch.device:
    """The GPU of this process where there is one, unless told otherwise."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError(f"--device {name} needs a GPU, and there is none here: leave it out.")
    return torch.device("cuda", rank % torch.cuda.device_count())


def open_images(config: ImageConfig, split: str) -> ImageSet:
    """A split of the run's data, with enough of them for its tasks."""
    images = at_most(open_split(config.data, split, config.image_size), config.most_images)
    drawn = fewer_ways(config, images) if split == "val" else config
    check_enough(images, drawn.n_way, config.n_shot, config.n_query)
    return images


def fewer_ways(config: ImageConfig, images: ImageSet) -> ImageConfig:
    """The settings for tasks of unseen classes, of which there may be fewer than in training."""
    if len(images.classes) < 2:
        raise ValueError(
            f"a task tells at least 2 classes apart, {images.name} has {len(images.classes)}: add "
            "classes."
        )
    return dataclasses.replace(config, n_way=min(config.n_way, len(images.classes)))


def build(
    config: ImageConfig, image: tuple[int, int, int], device: torch.device
) -> tuple[Network, Meta]:
    """The network of a run, and its initial parameters."""
    generator = torch.Generator().manual_seed(config.seed)
    example = torch.zeros(1, *image)
    if config.model:
        model = make_model(config.model, config.n_way, image, config.seed)
        if config.for_device:
            check_device(model, example, "train it for elsewhere with --no-for-device")
    else:
        model = new_model(config, config.n_way, image, config.norm, generator)
    net = take_in(model.to(device), example.to(device), batch_norm=not config.model)
    if config.model:
        check_outputs(net, config.model, config.n_way)
    args = (config.method_row(), config.inner_steps, config.alpha_0, generator)
    own = config.head_scale, config.head_alpha_0 or None
    meta = init_meta(net, *args, config.head, *own)
    return net, dataclasses.replace(meta.map(lambda t: t.to(device)), mask=meta.mask.to(device))


def first_meta(group: Group, run: Run, config: ImageConfig, net: Network, meta: Meta) -> Meta:
    """What is trained, before the training; with --init from another run, unless this one has
    begun, of whose checkpoints only kept features need more."""
    if not config.init:
        return meta
    begun = run.begun() and not config.cache_features
    checkpoint = group.from_first(lambda: None if begun else initial(config.init))
    if checkpoint is None:
        return meta
    return start_from(net, meta, checkpoint, config.init)


def upper_part(config: ImageConfig, net: Network, meta: Meta, sample: Sample) -> UpperPart | None:
    """What lies above the features that are kept; None: all is trained."""
    if not config.cache_features:
        return None
    if config.cut_at:
        at = stage_number(net.model, config.cut_at)
    else:
        arena = arena_of(net, meta, config.method_row(), sample)
        samples = config.n_way * config.n_shot
        budget = budget_bytes(net, meta, config.memory_budget, "arena", samples, sample)
        at = lowest_stage(net.model, net, arena, budget)
    return cut_at_stage(net, meta, at)


def new_model(
    config: ImageConfig | PretrainConfig,
    classes: int,
    image: tuple[int, int, int],
    norm: str,
    generator: torch.Generator,
) -> torch.nn.Module:
    """The backbone of a run with weights drawn from `generator`."""
    model: torch.nn.Module
    kind = config.groups, norm, config.pool
    if config.backbone == "4conv":
        model = FourConv(classes, image, config.channels, *kind, config.embedding)
    else:
        widths = tuple(config.channels * 2**b for b in range(1, 5))
        model = ResNet12(classes, image, widths, *kind)
    return initialise(model, generator)


def training_loop(net: Network, config: ImageConfig) -> InnerLoop:
    """The inner loop of meta-training: the whole support set as one batch (Sec. 4.1), unless
    per_sample is set."""
    batch = 1 if config.per_sample else None
    return InnerLoop(
        net,
        config.method_row(),
        batch=batch,
        second_order=not config.first_order,
        recompute=config.recompute,
    )


def task(
    config: ImageConfig, images: ImageSet, i: int, device: torch.device, seed: int | None = None
) -> Task:
    """Task i, on the device."""
    sizes = (config.n_way, config.n_shot, config.n_query)
    drawn = sample_task(images, config.seed if seed is None else seed, i, *sizes)
    return Task(*(t.to(device) for t in drawn))


def validate(
    group: Group,
    net: Network,
    meta: Meta,
    config: ImageConfig,
    images: ImageSet,
    device: torch.device,
) -> list[TaskResult]:
    """The same unseen tasks each time, adapted to one sample at a time as a device does."""
    loop = InnerLoop(net, config.method_row(), batch=1)
    numbers, shots = group.share(range(config.val_tasks)), config.counts("val_shots")
    drawn = [dataclasses.replace(config, n_shot=n) for n in shots] or [config]
    tasks = (task(drawn[i % len(drawn)], images, i, device) for i in numbers)
    return group.gather([evaluate_task(loop, meta, one) for one in tasks])
