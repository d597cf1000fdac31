"""Two questions to the embeddings of EfficientNet-Lite0 as it came, without any training.

    python benchmarks/embeddings.py --data DATA

Are the first pictures of a class easier than others? Nearest centroid on tasks from the first
pictures of each validation class, and from as many and more that are spread over it. What does the
scale of a head from prototypes do to steps on the last layer? Their gain over no step, for several
scales and step sizes.
"""

import sys
from dataclasses import dataclass, replace

import numpy as np
import torch
import tyro
from torch import Tensor, nn

from pmeta.data.tasks import ImageSet, draw_rows, open_split
from pmeta.method.prototypes import prototype_head
from pmeta.training.evaluate import ci95
from pmeta.training.features import at_most, cache_features, cut, stages
from pmeta.training.own.efficientnet import make_net

WAY, QUERY, STEPS = 5, 8, 5


@dataclass(frozen=True)
class Config:
    """Measure."""

    data: str
    """Folder of MiniImageNet, ROOT/val/CLASS/*.jpg."""
    image_size: int = 112
    """Pixels a side."""
    few: int = 40
    """Pictures of a class that come first."""
    many: int = 150
    """Pictures of a class that are spread over it."""
    tasks: int = 600
    """Tasks of each row."""


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(Config, args=argv, description=__doc__)
    torch.set_num_threads(1)
    images = open_split(config.data, "val", config.image_size, channels=3)
    first = replace(images, counts=np.minimum(images.counts, config.few))
    model = make_net(WAY, images.shape)
    lower, _ = cut(model, stages(model).index("fc"))
    kept = {
        f"the first {config.few}": embedded(lower, first),
        f"{config.few} spread": embedded(lower, at_most(images, config.few)),
        f"{config.many} spread": embedded(lower, at_most(images, config.many)),
    }
    for name, own in kept.items():
        found = (shown(accuracies(own, shot, config.tasks)) for shot in (1, 5))
        print(f"{name}: nearest centroid, 1 and 5 shots: {', '.join(found)}", flush=True)
    for shot in (1, 5):
        still = accuracies(own, shot, config.tasks)
        for scale in (10.0, 2.0):
            for rate in (0.01, 0.1):
                gain = accuracies(own, shot, config.tasks, scale, rate) - still
                print(f"{shot} shots, scale {scale:g}, step size {rate}: gain {shown(gain)}")


def embedded(lower: nn.Module, images: ImageSet) -> ImageSet:
    """Embeddings in the place of pictures. (N, D)"""
    return cache_features(nn.Sequential(*lower.children(), nn.Unflatten(1, (-1, 1, 1))), images)


def accuracies(
    own: ImageSet, shot: int, tasks: int, scale: float = 10.0, rate: float = 0.0
) -> Tensor:
    """Of each task, after steps on the last layer or none."""
    embeddings = torch.from_numpy(np.array(own.images)).flatten(1)
    found = []
    for i in range(tasks):
        rows = torch.from_numpy(draw_rows(own, 1, i, WAY, shot, QUERY))
        x, queries = (embeddings[part.flatten()] for part in (rows[:, :shot], rows[:, shot:]))
        y = torch.arange(WAY).repeat_interleave(shot)
        w, b = prototype_head(x, y, WAY, torch.tensor(scale / x.shape[1]).log())
        for _ in range(STEPS if rate else 0):
            g = ((x @ w.T + b).softmax(1) - nn.functional.one_hot(y, WAY)) / len(y)
            w, b = w - rate * g.T @ x, b - rate * g.sum(0)
        right = (queries @ w.T + b).argmax(1) == torch.arange(WAY).repeat_interleave(QUERY)
        found.append(float(right.double().mean()))
    return torch.tensor(found, dtype=torch.float64)


def shown(values: Tensor) -> str:
    return f"{100 * float(values.mean()):.1f} ± {ci95(values, unit=100):.1f}"


if __name__ == "__main__":
    main(sys.argv[1:])
