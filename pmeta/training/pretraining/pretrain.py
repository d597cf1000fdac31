"""Pre-training: ordinary classification of the training classes, validated as a few-shot
embedding."""

import dataclasses
import functools
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmeta.data.augment import augment
from pmeta.data.tasks import ImageSet, normalise, open_split
from pmeta.method.outer import adam_step
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from pmeta.network.tape import forward
from pmeta.training.centroids import nearest_centroid
from pmeta.training.pretrain_config import PretrainConfig
from pmeta.training.run_folder import Run
from pmeta.training.train import choose_device, new_model
from pmeta.training.workers import Group

MAY_DIFFER = ("out", "workers", "device")
"""Settings that a continued run may change."""
CHUNK = 16
"""Images that run through the network at once: their activations fit in the cache of a core."""
CHECKPOINT_SECONDS = 30.0
WARM_UP = 0.1
"""Share of the updates over which the step size rises."""


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
        record = Record(run, group, classifier)
        updates = config.epochs * classifier.per_epoch
        while classifier.done < updates:
            epoch, batch = divmod(classifier.done, classifier.per_epoch)
            rows, labels = drawn(config, images, epoch, batch)
            x = augmented(config, images, rows, classifier.done)
            mine = group.share(range(len(rows)))
            g, loss, hits = classifier.gradient(x[mine], labels[mine], len(rows))
            total = group.add({**g, "loss": loss, "hits": hits})
            record.add(total.pop("loss"), total.pop("hits"))
            classifier.update(total, updates)
            if classifier.done % classifier.per_epoch == 0:
                record.epoch(validate(group, classifier, config, unseen))
            record.checkpoint()
    return record.best


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


class Classifier:
    """The network without its head, a head for the training classes, and the moments of AdamW."""

    def __init__(self, config: PretrainConfig, images: ImageSet, device: torch.device):
        self.config, self.device, self.done = config, device, 0
        self.per_epoch = int(images.counts.sum()) // config.batch
        generator = torch.Generator().manual_seed(config.seed)
        crop = (images.shape[0], config.crop_size, config.crop_size)
        model: Any = new_model(config, len(images.classes), crop, "group", generator)
        head, model.fc = model.fc, nn.Identity()
        self.net: Network = take_in(model.to(device), torch.zeros(1, *crop, device=device))
        body = {f"w/{name}": t for name, t in self.net.weights().items()}
        own = {"head/weight": head.weight.detach(), "head/bias": head.bias.detach()}
        self.tensors = {name: t.clone().to(device) for name, t in {**body, **own}.items()}
        self.moments = {
            name: (torch.zeros_like(t), torch.zeros_like(t)) for name, t in self.tensors.items()
        }

    def body(self) -> dict[str, Tensor]:
        """The weights of the network, as meta-training starts from them."""
        return {n: standardised(t) for n, t in self.tensors.items() if n.startswith("w/")}

    def gradient(self, x: Tensor, y: Tensor, n: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """These images' part of the gradient of the mean loss of n images, their part of that loss,
        and their hits."""
        raw = {name: t.detach().requires_grad_() for name, t in self.tensors.items()}
        used = {name: standardised(t) for name, t in raw.items()}
        leaves = {name: t.detach().requires_grad_() for name, t in used.items()}
        total = [torch.zeros_like(t) for t in leaves.values()]
        loss, hits = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for i in range(0, len(x), CHUNK):
            target = y[i : i + CHUNK].to(self.device)
            logits = self.logits(leaves, x[i : i + CHUNK].to(self.device))
            smoothing = self.config.label_smoothing
            part = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="sum") / n
            for sum_, g in zip(
                total, torch.autograd.grad(part, list(leaves.values())), strict=True
            ):
                sum_ += g
            loss += part.detach().double().cpu()
            hits += (logits.argmax(1) == target).sum().double().cpu() / n
        back = torch.autograd.grad(list(used.values()), list(raw.values()), total)
        return dict(zip(raw, back, strict=True)), loss, hits

    def logits(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        """A linear head on embeddings of equal length, so that only directions tell the classes
        apart."""
        w = {name[2:]: t for name, t in tensors.items() if name.startswith("w/")}
        embedding, _ = forward(self.net, w, x, pool_first=True)
        unit = F.normalize(embedding) * embedding.shape[1] ** 0.5
        return F.linear(unit, tensors["head/weight"], tensors["head/bias"])

    @torch.no_grad()
    def update(self, g: dict[str, Tensor], updates: int) -> None:
        """One step of AdamW (Loshchilov & Hutter 2019): norms and biases do not decay."""
        rate = self.config.lr * self.rate(self.done / updates)
        self.done += 1
        for name, t in self.tensors.items():
            if t.dim() > 1:
                t.mul_(1 - rate * self.config.weight_decay)
            adam_step(t, g[name], *self.moments[name], rate, self.done)

    @staticmethod
    def rate(share: float) -> float:
        """The step size after this share of the training, as a share of the highest.

        >>> [round(Classifier.rate(share), 2) for share in (0.0, 0.05, 0.1, 0.55, 1.0)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
        """
        if share < WARM_UP:
            return share / WARM_UP
        return 0.5 * (1 + math.cos(math.pi * (share - WARM_UP) / (1 - WARM_UP)))

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed training needs, as named tensors."""
        first = {f"adam/first/{name}": m for name, (m, _) in self.moments.items()}
        second = {f"adam/second/{name}": v for name, (_, v) in self.moments.items()}
        return {**self.tensors, **first, **second, "done": torch.tensor(self.done)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up the training where `state` was taken."""
        for name, t in self.tensors.items():
            t.copy_(state[name])
            self.moments[name][0].copy_(state[f"adam/first/{name}"])
            self.moments[name][1].copy_(state[f"adam/second/{name}"])
        self.done = int(state["done"])


def standardised(t: Tensor) -> Tensor:
    """A conv's filters with mean 0 and length 1, the rest as it is (Qiao et al. 2019).

    A group norm behind the conv needs no more, trains far better with it, and in the end these are
    ordinary weights.

    >>> standardised(torch.tensor([[[[3.0, 5.0]]]]))
    tensor([[[[-0.7071,  0.7071]]]])
    """
    if t.dim() < 3:
        return t
    centred = t - t.flatten(1).mean(1).view(-1, *[1] * (t.dim() - 1))
    return F.normalize(centred.flatten(1), eps=1e-8).view_as(t)


@torch.no_grad()
def validate(
    group: Group, classifier: Classifier, config: PretrainConfig, images: ImageSet
) -> dict[str, float]:
    """Nearest-centroid accuracy on validation classes, 5-way, 1 and 5 shots: the same tasks each
    time."""
    used = int(min(images.counts.min(), config.val_images))
    starts = group.share(images.starts.tolist())
    embedded = group.gather([torch.cat(list(_embed(classifier, images, s, used))) for s in starts])
    found: dict[str, float] = {}
    for n_shot in (1, 5):
        accuracy, ci95 = nearest_centroid(torch.stack(embedded), config.val_tasks, 5, n_shot)
        found |= {f"val_{n_shot}shot": accuracy, f"val_{n_shot}shot_ci95": ci95}
    return found


def _embed(classifier: Classifier, images: ImageSet, start: int, n: int) -> Iterator[Tensor]:
    """The square root of the embeddings: their distances are not ruled by a few large values, which
    a classifier does not mind and meta-training evens out."""
    w = {name[2:]: t for name, t in classifier.body().items()}
    for i in range(start, start + n, CHUNK):
        x = normalise(images.images[i : min(i + CHUNK, start + n)]).to(classifier.device)
        yield forward(classifier.net, w, x, pool_first=True)[0].clamp(min=0).sqrt().cpu()


class Record:
    """What a pre-training writes and shows. All processes keep it, process 0 writes."""

    def __init__(self, run: Run, group: Group, classifier: Classifier):
        self.run, self.classifier, self.first = run, classifier, group.rank == 0
        self.best: dict[str, Any] = {}
        self.sums, self.metrics_length = {"loss": 0.0, "hits": 0.0, "cpu_seconds": 0.0}, 0
        found = group.from_first(lambda: run.load("last"))
        if found is not None:
            classifier.load(found.tensors)
            self.best, self.sums = found.info["best"], found.info["sums"]
            self.metrics_length = found.info["metrics_length"]
        if self.first:
            run.rewind_metrics(self.metrics_length)
        self.saved_at, self.cpu = time.monotonic(), time.process_time()

    def add(self, loss: Tensor, hits: Tensor) -> None:
        """Take note of an update."""
        self.sums["loss"] += float(loss)
        self.sums["hits"] += float(hits)

    def epoch(self, validation: dict[str, float]) -> None:
        """Log a validation, and keep the weights if their mean over 1 and 5 shots is the best so
        far."""
        per_epoch = self.classifier.per_epoch
        self._count_cpu()
        score = (validation["val_1shot"] + validation["val_5shot"]) / 2
        record = {
            "epoch": self.classifier.done // per_epoch,
            "loss": self.sums["loss"] / per_epoch,
            "train_accuracy": 100 * self.sums["hits"] / per_epoch,
            **validation,
            "val_accuracy": score,
            "cpu_seconds": round(self.sums["cpu_seconds"], 1),
        }
        self.sums = {**self.sums, "loss": 0.0, "hits": 0.0}
        better = not self.best or score > self.best["val_accuracy"]
        if better:
            self.best = {k: v for k, v in record.items() if k not in ("loss", "train_accuracy")}
        if not self.first:
            return
        if better:
            self.run.save("best", self.classifier.body(), self.best)
        self.metrics_length = self.run.log(record)
        print(line(record), file=sys.stderr, flush=True)
        self.checkpoint(now=True)

    def checkpoint(self, now: bool = False) -> None:
        """Write the state of the training, every half minute at the least."""
        if not self.first or not (now or time.monotonic() - self.saved_at >= CHECKPOINT_SECONDS):
            return
        self._count_cpu()
        info = {"best": self.best, "sums": self.sums, "metrics_length": self.metrics_length}
        self.run.save("last", self.classifier.state(), info)
        self.saved_at = time.monotonic()

    def _count_cpu(self) -> None:
        now = time.process_time()
        self.sums["cpu_seconds"] += now - self.cpu
        self.cpu = now


def line(r: dict[str, Any]) -> str:
    """One line for a validation."""
    return (
        f"epoch {r['epoch']:>3}  loss {r['loss']:.3f}  train {r['train_accuracy']:.1f} %  nearest "
        f"centroid {r['val_1shot']:.2f} ± {r['val_1shot_ci95']:.2f} % (1-shot) "
        f"{r['val_5shot']:.2f} ± {r['val_5shot_ci95']:.2f} % (5-shot)"
    )
