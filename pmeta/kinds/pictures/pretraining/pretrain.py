"""Pre-training: classification of the training classes, validated as a few-shot embedding."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pmeta.data.augment import augment
from pmeta.data.tasks import ImageSet, normalise, open_split, random_order
from pmeta.kinds.pictures.pretraining.centroids import nearest_centroid
from pmeta.kinds.pictures.pretraining.classifier import Classifier
from pmeta.kinds.pictures.pretraining.config import CHUNK, PretrainConfig
from pmeta.kinds.pictures.pretraining.figures import FIGURES
from pmeta.kinds.pictures.pretraining.folding import folded
from pmeta.kinds.pictures.train import choose_device, new_model
from pmeta.method.outer import check_alike
from pmeta.network.layers import Network, Weights
from pmeta.network.take_in import take_in
from pmeta.network.tape import forward
from pmeta.training.run_folder import Run
from pmeta.training.workers import Group


class Pretraining:
    """What the trainer drives: a classifier by AdamW; each epoch it is folded and validated."""

    title, unit = "pre-training", "pictures"
    sums: tuple[str, ...] = ("loss", "hits")
    figures = FIGURES
    eligible, astray = True, False
    samples = kept_words = 0

    def __init__(self, config: PretrainConfig, images: ImageSet, unseen: ImageSet, device: Any):
        self.config, self.images, self.unseen = config, images, unseen
        self.classifier = Classifier(config, images, device)
        self.net = without_norms(config, images.shape, device)
        self.every, self.each = self.classifier.per_epoch, config.batch
        self.updates = config.epochs * self.every
        self.sample: Sequence[int] = images.shape
        self.total = self.updates * self.each
        self.folded: Weights = {}

    @property
    def done(self) -> int:
        """Updates so far."""
        return self.classifier.done

    def counts(self, done: int) -> dict[str, int]:
        """Whole epochs."""
        return {"epoch": done // self.every}

    def step(self, group: Group) -> dict[str, float]:
        """A batch, whose chunks the processes share."""
        epoch, batch = divmod(self.done, self.every)
        rows, labels = drawn(self.config, self.images, epoch, batch)
        x = augmented(self.config, self.images, rows, self.done)
        mine = group.share(list(zip(x.split(CHUNK), labels.split(CHUNK), strict=True)))
        g, loss, hits = self.classifier.gradient(mine, len(rows))
        total = group.add({**g, "loss": loss, "hits": hits})
        sums = {key: float(total.pop(key)) for key in self.sums}
        self.classifier.update(total, self.updates)
        return sums

    def validate(self, group: Group, sums: dict[str, float]) -> dict[str, Any]:
        """The embedding by nearest centroids; the mean over 1 and 5 shots is its score."""
        self.folded = folded(self.net, self.classifier.body(), self.images)
        scores = validate(group, self.net, self.folded, self.config, self.unseen)
        return {
            "loss": sums["loss"] / self.every,
            "train_accuracy": 100 * sums["hits"] / self.every,
            **scores,
            "val_accuracy": (scores["val_1shot"] + scores["val_5shot"]) / 2,
        }

    def status(self, sums: dict[str, float]) -> list[str]:
        """The mean loss of this epoch."""
        return [f"loss {sums['loss'] / max(1, self.done % self.every):.3f}"]

    def about(self) -> dict[str, Any]:
        """Nothing: the weights are what another run begins with."""
        return {}

    def best(self) -> dict[str, Tensor]:
        """The weights of the last validation."""
        return {f"w/{name}": t for name, t in self.folded.items()}

    def state(self) -> dict[str, Tensor]:
        """Of the classifier."""
        return self.classifier.state()

    def check(self, state: dict[str, Tensor]) -> None:
        """Raise ValueError unless `state` is one of this training."""
        check_alike(state, self.classifier.state())

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up the training where `state` was taken."""
        self.classifier.load(state)


def training(group: Group, run: Run, config: PretrainConfig) -> Pretraining:
    """What the trainer drives."""
    device = choose_device(config.device, group.rank)
    images, unseen = (open_split(config.data, s, config.image_size) for s in ("train", "val"))
    check_images(config, images, unseen)
    return Pretraining(config, images, unseen, device)


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
    return random_order(random, total)


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
    scores: dict[str, float] = {}
    for n_shot in (1, 5):
        accuracy, ci95 = nearest_centroid(torch.stack(embedded), config.val_tasks, 5, n_shot)
        scores |= {f"val_{n_shot}shot": accuracy, f"val_{n_shot}shot_ci95": ci95}
    return scores


def _embed(net: Network, w: Weights, images: ImageSet, start: int, n: int) -> Iterator[Tensor]:
    like = next(iter(w.values()))
    for i in range(start, start + n, CHUNK):
        pixels = np.array(images.images[i : min(i + CHUNK, start + n)])  # torch may write to it
        x = normalise(pixels).to(like)
        yield forward(net, w, x, pool_first=True)[0].cpu()


def without_norms(
    config: PretrainConfig, image: tuple[int, int, int], device: torch.device
) -> Network:
    """The network that a pre-training gives, without its head: convs with biases, no norms."""
    model: Any = new_model(config, 1, image, "none", torch.Generator())
    model.fc = model.norm5 = nn.Identity()
    return take_in(model.to(device), torch.zeros(1, *image, device=device))
