"""Pre-training: classification of the training classes, validated as a few-shot embedding."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pmeta.data.augment import augment
from pmeta.data.tasks import ImageSet, normalise, open_split
from pmeta.network.layers import Network, Weights
from pmeta.network.take_in import take_in
from pmeta.network.tape import forward
from pmeta.training.pretraining.centroids import nearest_centroid
from pmeta.training.pretraining.classifier import Classifier
from pmeta.training.pretraining.config import CHUNK, PretrainConfig
from pmeta.training.pretraining.folding import folded
from pmeta.training.pretraining.log import PretrainLog
from pmeta.training.run_folder import Run
from pmeta.training.train import choose_device, new_model
from pmeta.training.workers import Group

MAY_DIFFER = ("out", "workers", "device")
"""Settings that a continued run may change."""


def pretrain(group: Group, config: PretrainConfig) -> dict[str, Any]:
    """Pre-train, or go on with, the run in `config.out`; returns what is known of its best
    checkpoint.

    Every process of the group holds the same state and makes the same updates; process 0 alone
    writes and shows."""
    device = choose_device(config.device, group.rank)
    with Run(config.out) as run:
        if group.rank == 0:
            run.start(dataclasses.asdict(config), MAY_DIFFER)
        images, unseen = (open_split(config.data, s, config.image_size) for s in ("train", "val"))
        check_images(config, images, unseen)
        classifier = Classifier(config, images, device)
        plain = without_norms(config, images.shape, device)
        log = PretrainLog(run, group, classifier)
        updates = config.epochs * classifier.per_epoch
        while classifier.done < updates:
            epoch, batch = divmod(classifier.done, classifier.per_epoch)
            rows, labels = drawn(config, images, epoch, batch)
            x = augmented(config, images, rows, classifier.done)
            mine = group.share(list(zip(x.split(CHUNK), labels.split(CHUNK), strict=True)))
            g, loss, hits = classifier.gradient(mine, len(rows))
            total = group.add({**g, "loss": loss, "hits": hits})
            log.add(total.pop("loss"), total.pop("hits"))
            classifier.update(total, updates)
            if classifier.done % classifier.per_epoch == 0:
                w = folded(plain, classifier.body(), images)
                log.epoch(validate(group, plain, w, config, unseen), w)
            log.checkpoint()
    return log.best


def check_images(config: PretrainConfig, images: ImageSet, unseen: ImageSet) -> None:
    """Raise ValueError where there are too few images for a batch, or for the validation's
    tasks."""
    if images.counts.sum() < config.batch:
        raise ValueError(
            f"a batch has --batch {config.batch} images and {images.name} has "
            f"{images.counts.sum()}: lower it."
        )
    least = int(min(unseen.counts.min(), config.val_images))
    if len(unseen.classes) < 5 or least < 20:
        raise ValueError(
            f"validation needs 5 classes of 20 images, {unseen.name} has {len(unseen.classes)} "
            f"classes, of which {least} images are used: add images or raise --val-images."
        )


def drawn(
    config: PretrainConfig, images: ImageSet, epoch: int, batch: int
) -> tuple[np.ndarray, Tensor]:
    """Rows and labels of one batch: each epoch has an order of its own, and leaves out what fills
    no batch."""
    order = _order(config.seed, epoch, int(images.counts.sum()))
    chosen = order[batch * config.batch : (batch + 1) * config.batch]
    last = images.counts.cumsum()
    labels = np.searchsorted(last, chosen, side="right")
    rows = images.starts[labels] + chosen - (last - images.counts)[labels]
    return rows, torch.from_numpy(labels)


@functools.lru_cache(maxsize=1)
def _order(seed: int, epoch: int, total: int) -> np.ndarray:
    random = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64))
    return np.argsort(random.random_raw(total), kind="stable")


def augmented(config: PretrainConfig, images: ImageSet, rows: np.ndarray, update: int) -> Tensor:
    """The images of one update, varied by bits of its own."""
    random = np.random.Philox(key=np.array([config.seed, 2**32 + update], dtype=np.uint64))
    pixels = images.images[rows]
    return augment(pixels, random, config.crop_size, config.least_area, config.jitter)


@torch.no_grad()
def validate(
    group: Group, net: Network, w: Weights, config: PretrainConfig, images: ImageSet
) -> dict[str, float]:
    """Nearest-centroid accuracy on validation classes, 5-way, 1 and 5 shots: the same tasks each
    time."""
    used = int(min(images.counts.min(), config.val_images))
    starts = group.share(images.starts.tolist())
    embedded = group.gather([torch.cat(list(_embed(net, w, images, s, used))) for s in starts])
    found: dict[str, float] = {}
    for n_shot in (1, 5):
        accuracy, ci95 = nearest_centroid(torch.stack(embedded), config.val_tasks, 5, n_shot)
        found |= {f"val_{n_shot}shot": accuracy, f"val_{n_shot}shot_ci95": ci95}
    return found


def _embed(net: Network, w: Weights, images: ImageSet, start: int, n: int) -> Iterator[Tensor]:
    like = next(iter(w.values()))
    for i in range(start, start + n, CHUNK):
        x = normalise(images.images[i : min(i + CHUNK, start + n)]).to(like)
        yield forward(net, w, x, pool_first=True)[0].cpu()


def without_norms(
    config: PretrainConfig, image: tuple[int, int, int], device: torch.device
) -> Network:
    """The network that a pre-training gives, without its head: convs with biases, no norms."""
    model: Any = new_model(config, 1, image, "none", torch.Generator())
    model.fc = model.norm5 = nn.Identity()
    return take_in(model.to(device), torch.zeros(1, *image, device=device))
