"""The settings of a training run on images; the paper's own (Sec. 4.2) are named."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pmeta.method.methods import Method
from pmeta.paper import BACKBONES, TABLE2, scores
from pmeta.training.settings import NO_PICTURES, AdamSettings, by, check, check_counts, flag


@dataclass(frozen=True)
class ImageConfig(AdamSettings):
    """Meta-train on few-shot image tasks."""

    kind = "pictures"

    data: str = "glyphs"
    """Folder, .tar or .zip of classes (ROOT/{train,val,test}/CLASS/*.jpg), or the embedded set
    `glyphs`."""
    method: Literal["protonet", "maml", "anil", "boil", "maml++", "pmeta-lr", "pmeta"] = "pmeta"
    """The method to train."""
    init: str = ""
    """Go on from the best model of this run folder (also of a pre-training), or from a model that
    `pmeta zoo` lists."""
    model: str = ""
    """A network of your own in the place of --backbone: FILE.py:FUNCTION, where the function
    returns an nn.Module and may take `classes` and `image` (channels, height, width)."""
    for_device: bool = True
    """Refuse a network of your own that `pmeta export` could not write, before it is trained."""
    backbone: Literal["4conv", "resnet12"] = "4conv"
    """The network to train."""
    channels: int = 32
    """Channels of each block of 4Conv; ResNet12 has this number times 2, 4, 8 and 16."""
    groups: int = 8
    """Groups of each group norm."""
    norm: Literal["group", "batch", "none"] = "group"
    """Normalisation; batch is the one that Table 5 warns of, and none goes on from a pre-training,
    whose batch norms are folded into its convs."""
    pool: Literal["max", "average"] = "max"
    """Pooling (Table 5)."""
    embedding: Literal["plain", "norm", "signed"] = "plain"
    """norm: a norm of one group before the head of 4Conv gives all embeddings the same length;
    signed: and the last block has no ReLU before it."""
    head: Literal["learned", "prototype"] = "learned"
    """The head before the first inner step: learned, or from prototypes of the support set
    (Proto-MAML), for any number of classes."""
    head_scale: float = 10.0
    """Of a head from prototypes: the first scale of its scores. Where a network tells the support
    samples apart without any step, their loss has a gradient only with a smaller one, such as 2."""
    head_alpha_0: float = 0.0
    """The first inner step size of the last layer; 0: --alpha-0."""
    image_size: int | None = 84
    """Images are fitted to this size; None takes them as they are."""
    n_way: int = 5
    """Classes in a task."""
    n_shot: int = 1
    """Support samples of each class."""
    n_query: int = 15
    """Query samples of each class."""
    train_ways: str = ""
    """Train on tasks of different numbers of classes, such as 5,10,20; empty: --n-way."""
    train_shots: str = ""
    """Train on tasks of different numbers of support samples of each class, such as 1,2,5,10,20;
    empty: --n-shot."""
    train_queries: int = 0
    """Query samples of each class in training; 0: --n-query."""
    most_support: int = 0
    """Leave out of --train-ways x --train-shots what has more support samples in all; 0:
    nothing."""
    val_shots: str = ""
    """Validate on tasks of different numbers of support samples, such as 1,5; empty: --n-shot."""
    least_area: float = 1.0
    """Vary training pictures: crops of at least this share of a picture, mirrored half of the
    time; 1: as they are."""
    jitter: float = 0.0
    """Vary training pictures: brightness, contrast and colour times factors within 1 +- this."""
    other_camera: float = 0.0
    """Share of training tasks whose pictures, support and queries alike, look as if taken by
    another camera: colour channels in another order, some of them negative, with less contrast
    and other light."""
    first_order: bool = False
    """Leave the second derivatives out: less time for each task."""
    recompute: bool = False
    """Where memory is short: hold one inner step at a time, for a fifth to a half more time."""
    per_sample: bool = False
    """Attention scores of each sample in meta-training too, as on the device, not of the whole
    support set."""
    scores: Literal["", "none", "attention", "static"] = ""
    """Where gamma comes from; empty: as the method has it. static is alpha^Ch of Table 4."""
    sparse_fw: Literal["w", "x"] = "w"
    """What gamma_fw multiplies: the weight gradient, or x itself (Table 7)."""
    sparse_bw: Literal["w", "y"] = "w"
    """What gamma_bw multiplies: the weight gradient, or g(y) itself (Table 7)."""
    val_tasks: int = 200
    """Tasks of each validation."""
    cache_features: bool = False
    """Of a network of your own that is a chain of stages (nn.Sequential): run those below --cut-at
    once for each picture and keep what they give. Only what lies above is trained and updated, and
    its memory is what the log shows; a budget in arena bytes counts the whole."""
    cut_at: str = ""
    """With --cache-features, the first stage that is trained; empty: the lowest with a layer that
    fits alone in --memory-budget."""
    train_from: str = ""
    """Of a network of your own that is a chain of stages: train the weights of this stage and of
    those behind it; below it only step sizes are learned. Empty: all that is trained at all."""
    most_images: int = 0
    """Take so many pictures of each class, spread evenly over it; 0: all."""
    budget_accounting: Literal["arena", "exact", "paper"] = "arena"
    """What the budget counts: the bytes that our engine plans for the device, or an accounting of
    `pmeta cost`."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto: on the GPU if there is one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "n_way", "n_shot", "n_query", "val_tasks", "channels")
        check(self, "positive", "head_scale")
        check(self, "not negative", "head_alpha_0")
        if self.groups < 1 or self.channels % self.groups:
            raise ValueError(
                f"--groups must divide --channels, got {self.groups} groups for {self.channels} "
                "channels."
            )
        if self.image_size is not None and self.image_size < 1:
            raise ValueError(
                "--image-size must be at least 1, or None for images as they are, got "
                f"{self.image_size}."
            )
        self._check_tasks()
        self._check_features()

    def _check_features(self) -> None:
        if self.train_from and not (self.model and self.lr):
            raise ValueError(
                "--train-from says which weights of a network of your own are trained: give "
                "FILE.py:FUNCTION and --lr above 0, or leave it out."
            )
        if not self.cache_features:
            if self.cut_at:
                raise ValueError("--cut-at says where features are kept: give --cache-features.")
            return
        if not self.model:
            raise ValueError(
                "--cache-features is for a network that was trained before, FILE.py:FUNCTION: the "
                "backbones of ours are trained as a whole."
            )
        if not self.cut_at and not self.memory_budget:
            raise ValueError(
                "--cache-features keeps what no budget can reach: give --memory-budget, or a stage "
                "with --cut-at."
            )
        if self.least_area < 1 or self.jitter or self.other_camera:
            raise ValueError(
                "--cache-features takes pictures as they are: leave out --least-area, --jitter and "
                "--other-camera."
            )

    def _check_tasks(self) -> None:
        mixtures = ("train_ways", "train_shots", "val_shots")
        if self.head == "learned" and any(n != self.n_way for n in self.counts("train_ways")):
            raise ValueError(
                "--train-ways needs a head for any number of classes, a learned one has --n-way "
                f"{self.n_way}: give --head prototype."
            )
        if any(n < 1 for name in mixtures for n in self.counts(name)):
            raise ValueError("--train-ways, --train-shots and --val-shots are at least 1 each.")
        check(self, "not negative", "train_queries", "most_support", "most_images")
        if self.embedding != "plain" and self.backbone != "4conv":
            raise ValueError(
                f"--embedding {self.embedding} is for 4Conv: ResNet12 ends with an average, leave "
                "it out."
            )
        if not 0 < self.least_area <= 1:
            raise ValueError(
                f"--least-area is a share of the picture in (0, 1], got {self.least_area}: 1 turns "
                "it off."
            )
        check(self, "below one", "jitter", "other_camera")

    def counts(self, name: str) -> list[int]:
        """The numbers of a comma-separated option, none if it is empty.

        >>> ImageConfig(train_shots="1,5,20").counts("train_shots")
        [1, 5, 20]
        """
        text = getattr(self, name)
        try:
            return [int(part) for part in text.split(",")] if text else []
        except ValueError:
            raise ValueError(
                f"{flag(name)} is numbers with commas, such as 1,5, got {text!r}."
            ) from None

    def check_start(self) -> None:
        """Raise ValueError where the command line has to say more before a training can begin."""
        super().check_start()
        if not self.data:
            raise ValueError(NO_PICTURES)

    def method_row(self) -> Method:
        """The method with what this run changes in it."""
        row = super().method_row()
        return dataclasses.replace(
            row,
            scores=self.scores or row.scores,
            sparse_fw=self.sparse_fw,
            sparse_bw=self.sparse_bw,
        )

    @property
    def changes(self) -> list[str]:
        """What this run changes in its method, and in the layers around it (Table 5)."""
        own = {name: getattr(self, name) for name in ("norm", "pool")}
        layers = [f"{name} = {v}" for name, v in own.items() if v != getattr(ImageConfig, name)]
        return [*super().changes, *layers]

    def setup(self, sample: Sequence[int]) -> str:
        """Data and their size, network, ways and shots."""
        own = self.model or backbone_title(self.backbone, self.channels)
        size = by(sample if self.model else sample[1:])
        return f"{Path(self.data).name} {size}, {own}, {self.n_way}-way {self.n_shot}-shot".lstrip()

    def paper(self, sample: Sequence[int]) -> dict[str, dict[str, float]]:
        """Table 2, for MiniImageNet: data whose name says so."""
        key, mini = (self.backbone, self.n_shot), "mini" in Path(self.data).name.lower()
        network = (self.n_way, self.channels, self.norm, self.pool, self.model)
        usual = network == (5, 32, "group", "max", "") and tuple(sample) == (3, 84, 84)
        if not (usual and mini and key in TABLE2):
            return {}
        return scores(key, {name: row[0] for name, row in TABLE2[key].items()})

    def most_workers(self, count: int) -> int:
        """How many of so many processes are of use: all of them, if not in training then in
        validation."""
        return count


def backbone_title(backbone: str, channels: int) -> str:
    """
    >>> backbone_title("4conv", 64)
    '4Conv (64 channels)'
    """
    return BACKBONES[backbone] + ("" if channels == 32 else f" ({channels} channels)")


def _paper() -> dict[str, ImageConfig]:
    """Sec. 4.2: 100 epochs of 1000 tasks, meta-batches of 4, of 2 for ResNet12 with 5 shots."""
    named = {}
    for backbone, shots in (("4conv", 1), ("4conv", 5), ("resnet12", 1), ("resnet12", 5)):
        named[f"miniimagenet-{backbone}-5way-{shots}shot"] = ImageConfig(
            data="",  # to be given
            backbone="4conv" if backbone == "4conv" else "resnet12",
            n_shot=shots,
            meta_batch=2 if (backbone, shots) == ("resnet12", 5) else 4,
        )
    return named


NAMED: dict[str, ImageConfig] = {
    **_paper(),
    "glyphs-4conv-5way-1shot": ImageConfig(
        image_size=None,
        n_query=5,
        inner_steps=3,
        alpha_0=0.2,
        tasks=4000,
        meta_batch=2,
        epoch_tasks=400,
        lr=3e-3,
        alpha_lr=1e-2,
    ),
}
"""Configurations by the name that `pmeta train NAME` takes."""
