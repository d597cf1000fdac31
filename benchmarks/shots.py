"""Accuracy of a model with a head from prototypes in the C engine, over classes and samples.

    python benchmarks/shots.py RUN --data DIR --ways 2,5,10 --shots 1,5,20 --tasks 200 --out FILE

    python benchmarks/shots.py --drawn-from FILE FILE --picture FILE.svg

Every cell has the same tasks with all inner steps, with steps on the head alone, and with none
(ProtoNet with the same weights). The engine takes one sample at a time.

With --once, blocks of 4Conv that no step updates run once for each picture, in PyTorch, and the
engine adapts and predicts from what they give: the same but for rounding, in a tenth of the time.
--check N does the first N tasks of each cell with the whole model in the engine too, and counts
the predictions that differ.

With --mirror every cell also has the same tasks with each support picture mirrored too, and what
that gains.
"""

import copy
import dataclasses
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from matplotlib.figure import Figure
from torch import nn

from pmeta.base.files import write_atomically
from pmeta.compiler.export import export
from pmeta.data.tasks import SCALE, SHIFT, ImageSet, draw_rows
from pmeta.device.binding import DeviceModel
from pmeta.method.learned import Meta
from pmeta.method.methods import Method
from pmeta.network.backbones import FourConv
from pmeta.network.layers import Network
from pmeta.network.take_in import take_in
from pmeta.training.own.above import Above
from pmeta.training.own.budget import Sample, export_budget
from pmeta.training.restore import load, open_for, restore


@dataclass(frozen=True)
class ShotsConfig:
    """Measure a run in the engine."""

    run: tyro.conf.Positional[str] = ""
    """Run folder, or a model that `pmeta zoo` lists."""
    data: str = ""
    """Folder of classes; by default that of the run."""
    split: str = "val"
    """Which classes."""
    ways: str = "5"
    """Numbers of classes, with commas."""
    shots: str = "1,5"
    """Numbers of samples of each class."""
    variants: str = "steps,head,none"
    """Which layers the steps update: those of the run, the head alone, or none."""
    look: Literal["photo", "camera", "drawing"] = "photo"
    """The pictures as they are; as of another camera, the channels in another order and negative;
    or as drawings, dark lines where the photo has edges."""
    tasks: int = 200
    """Tasks of each cell."""
    queries: int = 5
    """Queries of each class."""
    seed: int = 1
    """Of the tasks."""
    once: bool = False
    """Run blocks that no step updates once for each picture, in PyTorch."""
    check: int = 0
    """With --once, so many tasks of each cell with the whole model too."""
    mirror: bool = False
    """Also measure with the mirrored copy of each support picture, as `pmeta adapt --mirror`."""
    out: str = ""
    """A JSON file to write."""
    title: str = ""
    """What the pictures are called above theirs in a drawing."""
    drawn_from: tuple[str, ...] = ()
    """Measure nothing: take the cells of these files, or of the card of a model."""
    picture: str = ""
    """A file (.svg or .png) for the accuracy of 5 classes over samples, with and without steps."""


def main() -> None:
    """Run the command."""
    config = tyro.cli(ShotsConfig, description=__doc__)
    if config.drawn_from:
        files = [json.loads(Path(path).read_text()) for path in config.drawn_from]
        draw([file.get("engine", file) for file in files], config.picture)
        return
    ways, shots = ([int(n) for n in text.split(",")] for text in (config.ways, config.shots))
    devices, images, upper = prepare(config, max(ways))
    cells = []
    for way in ways:
        for shot in shots:
            cell = measure(config, devices, images, upper, way, shot)
            cells.append(cell)
            print(json.dumps(cell), flush=True)
    arenas = {name: device.arena_bytes for name, device in devices.items()}
    found = {**dataclasses.asdict(config), "arena_bytes": arenas, "outputs": max(ways)}
    found["cells"] = cells
    if config.out:
        write_atomically(Path(config.out), (json.dumps(found, indent=1) + "\n").encode())
    if config.picture:
        draw([found], config.picture)


def draw(measured: list[dict[str, Any]], path: str, way: int = 5) -> None:
    """Accuracy over the samples of each class, with its CI95; a plot for each kind of pictures."""
    figure = Figure(figsize=(1.6 + 2.8 * len(measured), 3), layout="constrained")
    plots = figure.subplots(1, len(measured), squeeze=False)[0]
    for axes, found in zip(plots, measured, strict=True):
        own = sorted((c for c in found["cells"] if c["n_way"] == way), key=lambda c: c["n_shot"])
        shots = [c["n_shot"] for c in own]
        for name, label in (("steps", "with inner steps"), ("none", "no step (prototypes)")):
            mean, ci95 = zip(*(c[name] for c in own), strict=True)
            axes.errorbar(shots, mean, ci95, label=label, marker="o", capsize=3)
        axes.set_xscale("log", base=2)
        axes.set_xticks(shots, [str(n) for n in shots])
        axes.set_title(found.get("title", ""))
        axes.set_xlabel("pictures of each class")
        axes.grid(alpha=0.3)
    plots[0].set_ylabel(f"accuracy (%), {way} classes")
    plots[0].legend()
    figure.savefig(path)


Samples = Callable[[np.ndarray], np.ndarray]
"""From numbers of pictures to what a device reads."""


@dataclass(frozen=True)
class Upper:
    """The blocks from the first one that a step updates on, in the engine."""

    devices: dict[str, DeviceModel]
    samples: Samples
    """What the blocks below give for the pictures of these numbers. (n, C, H, W)"""
    mirrored: Samples | None
    """The same for mirrored pictures."""


def prepare(
    config: ShotsConfig, classes: int
) -> tuple[dict[str, DeviceModel], ImageSet, Upper | None]:
    """The model as the engine runs it, once for each variant, the pictures, and the upper part
    where it is asked for."""
    trained, best = load(config.run, classes)
    image = tuple(best.info["input"])
    fits = dataclasses.replace(trained, n_way=2, n_shot=1, n_query=1)
    images = open_for(fits, config.split, config.data, image)
    net, meta = restore(trained, best.tensors, image, torch.device("cpu"))
    names, method = config.variants.split(","), trained.method_row()
    scale, shift = [SCALE] * image[0], [SHIFT] * image[0]
    own = trained.memory_budget, trained.budget_accounting
    budget = export_budget(net, meta, method, *own, Sample(image, "uint8"), batch=1)
    reads: dict[str, Any] = {"input_type": "uint8", "scale": scale, "shift": shift}
    reads["memory_budget"] = budget
    devices = variants(names, net, meta, method, image, reads)
    upper = cut(config, images, net, meta, method, names) if config.once else None
    return devices, images, upper


def variants(
    names: list[str],
    net: Network,
    meta: Meta,
    method: Method,
    sample: tuple[int, ...],
    reads: dict[str, Any],
) -> dict[str, DeviceModel]:
    """A model for each choice of layers that the steps update."""
    is_head = torch.tensor([layer == net.head for layer in net.layers])
    masks = {"steps": meta.mask, "head": meta.mask & is_head, "none": meta.mask & False}
    own = {name: dataclasses.replace(meta, mask=masks[name]) for name in names}
    return {
        name: DeviceModel(export(net, part, method, sample, **reads).data)
        for name, part in own.items()
    }


def cut(
    config: ShotsConfig,
    images: ImageSet,
    net: Network,
    meta: Meta,
    method: Method,
    names: list[str],
) -> Upper:
    """The upper part of 4Conv, from the first conv that a step updates on; the last conv where no
    step updates any."""
    convs = [layer.name for layer in net.layers if layer.kind == "conv"]
    live = [name for name in convs if meta.mask[:, net.index(name)].any()]
    lowest = (live or convs[-1:])[0]
    if lowest == convs[0]:
        raise ValueError(f"--once needs blocks that no step updates, {config.run} has none.")
    whole = copy.deepcopy(net.model)
    if not isinstance(whole, FourConv):
        raise ValueError(f"--once is for 4Conv, {config.run} is another network: leave it out.")
    whole.load_state_dict(meta.w, strict=False)
    features = run_below(images, whole, lowest, lambda x: seen(x, config.look))
    mirrored = None
    if config.mirror:
        mirrored = run_below(images, whole, lowest, lambda x: seen(x, config.look)[..., ::-1])
    first = convs.index(lowest) + 1
    for b in range(1, first):
        delattr(whole, f"conv{b}")
        delattr(whole, f"norm{b}")
    whole.blocks = range(first, 5)
    part = take_in(whole, torch.from_numpy(features[:1]))
    own = Above(nn.Sequential(), part, meta).narrowed(meta)
    devices = variants(names, part, own, method, features.shape[1:], {"input_type": "float32"})
    turned = None if mirrored is None else lambda rows: mirrored[rows]
    return Upper(devices, lambda rows: features[rows], turned)


def run_below(images: ImageSet, whole: nn.Module, layer: str, look: Samples) -> np.ndarray:
    """What `layer` gets of each picture of the split, in the place of the picture."""
    found: list[torch.Tensor] = []
    hook = whole.get_submodule(layer).register_forward_pre_hook(
        lambda _, x: found.append(x[0].clone())
    )
    last = int((images.starts + images.counts).max())
    features = None
    for start, count in zip(images.starts, images.counts, strict=True):
        for i in range(start, start + count, 50):
            rows = slice(i, min(i + 50, start + count))
            x = torch.from_numpy(np.ascontiguousarray(look(images.images[rows])))
            found.clear()
            with torch.inference_mode():
                whole(x.float() * SCALE + SHIFT)
            if features is None:
                features = np.zeros((last, *found[0].shape[1:]), np.float32)
            features[rows] = found[0].numpy()
    hook.remove()
    assert features is not None
    return features


def measure(
    config: ShotsConfig,
    devices: dict[str, DeviceModel],
    images: ImageSet,
    upper: Upper | None,
    way: int,
    shot: int,
) -> dict[str, Any]:
    """One cell: the accuracy of each variant in percent, with CI95, on the same tasks."""
    start, looks = time.process_time(), (False, True) if config.mirror else (False,)
    right = {mirror: {name: np.zeros(config.tasks) for name in devices} for mirror in looks}
    labels, queries = np.arange(way).repeat(shot), np.arange(way).repeat(config.queries)
    differ = checked = 0

    def pixels(rows: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(seen(images.images[rows], config.look))

    for i in range(config.tasks):
        rows = draw_rows(images, config.seed, i, way, shot, config.queries)
        support, query = rows[:, :shot].ravel(), rows[:, shot:].ravel()
        for mirror, name in itertools.product(looks, devices):
            task = support, query, labels, mirror
            found = (
                answers_above(upper, name, *task)
                if upper
                else answers(devices[name], pixels, *task)
            )
            right[mirror][name][i] = (found == queries).mean()
            if upper and i < config.check:
                whole = answers(devices[name], pixels, *task)
                differ, checked = differ + int((found != whole).sum()), checked + len(whole)
    cell: dict[str, Any] = {"n_way": way, "n_shot": shot, "tasks": config.tasks}
    cell["queries"] = config.queries
    cell |= compared(right[False])
    if config.mirror:
        gained = {name: mean(a - right[False][name]) for name, a in right[True].items()}
        cell["mirrored"] = {**compared(right[True]), "gain_of_mirror": gained}
    if checked:
        cell["checked"], cell["differ"] = checked, differ
    return {**cell, "cpu_seconds": round(time.process_time() - start, 1)}


def compared(right: dict[str, np.ndarray]) -> dict[str, Any]:
    """The accuracy of each variant, and what its steps gain."""
    found: dict[str, Any] = {name: mean(accuracy) for name, accuracy in right.items()}
    if "none" in right:
        found["gain"] = {n: mean(a - right["none"]) for n, a in right.items() if n != "none"}
    return found


def answers(
    device: DeviceModel,
    samples: Samples,
    support: np.ndarray,
    query: np.ndarray,
    y: np.ndarray,
    mirror: bool,
) -> np.ndarray:
    """The classes of the samples `query` after adaptation to the samples `support`."""
    device.adapt(samples(support), y, mirror=mirror)
    return device.predict(samples(query)).labels


def answers_above(
    upper: Upper, name: str, support: np.ndarray, query: np.ndarray, y: np.ndarray, mirror: bool
) -> np.ndarray:
    """The same from what the blocks below give, for mirrored pictures from outputs of their own."""
    x, device = upper.samples(support), upper.devices[name]
    if mirror and upper.mirrored:
        x = np.stack([x, upper.mirrored(support)], 1).reshape(-1, *x.shape[1:])
        y = y.repeat(2)
    device.adapt(x, y)
    return device.predict(upper.samples(query)).labels


def seen(pixels: np.ndarray, look: str) -> np.ndarray:
    """Pictures (n, H, W, 3) as the device gets them, (n, 3, H, W)."""
    if look == "camera":
        pixels = 255 - pixels[..., [1, 2, 0]]
    if look == "drawing":
        grey = np.pad(pixels.mean(3), ((0, 0), (1, 1), (1, 1)), mode="edge")
        down = grey[:, 2:, 1:-1] - grey[:, :-2, 1:-1]
        across = grey[:, 1:-1, 2:] - grey[:, 1:-1, :-2]
        lines = 255 - np.hypot(down, across).clip(0, 255)
        pixels = lines[..., None].repeat(3, axis=3).astype(np.uint8)
    return pixels.transpose(0, 3, 1, 2)


def mean(accuracy: np.ndarray) -> tuple[float, float]:
    """Mean and CI95 in percent."""
    spread = accuracy.std(ddof=1) / len(accuracy) ** 0.5
    return round(100 * float(accuracy.mean()), 2), round(196 * float(spread), 2)


if __name__ == "__main__":
    main()
