"""The settings of a training run on images; the paper's own (Sec. 4.2) are named."""

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from pmeta.method.methods import Method, method


@dataclass(frozen=True)
class ImageConfig:
    """Meta-train on few-shot image tasks."""

    data: str = "glyphs"
    """Folder, .tar or .zip of classes (ROOT/{train,val,test}/CLASS/*.jpg), or the embedded set
    `glyphs`."""
    method: Literal["protonet", "maml", "anil", "boil", "maml++", "pmeta-lr", "pmeta"] = "pmeta"
    """Which method to train."""
    out: str = ""
    """Run folder. A run that is there already is continued."""
    init: str = ""
    """Go on from the best model of this run folder (also of a pre-training), or from a model that
    `pmeta zoo` lists."""
    model: str = ""
    """A network of your own in the place of --backbone: FILE.py:FUNCTION, where the function
    returns an nn.Module and may take `classes` and `image` (channels, height, width)."""
    for_device: bool = True
    """Refuse a network of your own that `pmeta export` could not write, before it is trained."""
    backbone: Literal["4conv", "resnet12"] = "4conv"
    """The network."""
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
    inner_steps: int = 5
    """K."""
    alpha_0: float = 0.01
    """The first inner step size."""
    first_order: bool = False
    """Leave the second derivatives out."""
    recompute: bool = False
    """Where memory is short: hold one inner step at a time, for a fifth to a half more time."""
    per_sample: bool = False
    """Attention scores of each sample in meta-training too, as on the device, not of the whole
    support set."""
    clip_ratio_fw: float | None = 0.3
    """rho of the forward attention; None turns it off."""
    clip_ratio_bw: float | None = 0.0
    """rho of the backward attention; None turns it off."""
    scores: Literal["", "none", "attention", "static"] = ""
    """Where gamma comes from; empty: as the method has it. static is alpha^Ch of Table 4."""
    sparse_fw: Literal["w", "x"] = "w"
    """What gamma_fw multiplies: the weight gradient, or x itself (Table 7)."""
    sparse_bw: Literal["w", "y"] = "w"
    """What gamma_bw multiplies: the weight gradient, or g(y) itself (Table 7)."""
    tasks: int = 100_000
    """Tasks to train on in all."""
    meta_batch: int = 4
    """Tasks in one outer update."""
    epoch_tasks: int = 1000
    """Tasks in a meta epoch, after which the model is validated."""
    val_tasks: int = 200
    """Tasks of each validation."""
    lr: float = 1e-3
    """Outer step size beta of the weights."""
    alpha_lr: float = 1e-3
    """Outer step size of the step sizes."""
    attention_lr: float = 1e-3
    """Outer step size of the attention weights."""
    attention_bias_lr: float = 1e-2
    """Outer step size of the last bias of each attention module, and of alpha^Ch."""
    ema: float = 0.0
    """Keep the average over the updates of all that is trained, with this decay (such as 0.99);
    0: no average."""
    lam: float = 0.001
    """lambda of Eq. 9, with inputs counted in KiB."""
    warm_up: float = 0.2
    """Share of the training over which lambda rises from 0."""
    freeze_at: float = 0.7
    """Share of the training after which small step sizes are set to zero for good and the penalty
    ends."""
    freeze_below: float = 0.1
    """What is small, as a share of alpha_0."""
    memory_budget: str = ""
    """Instead of lambda: adaptation at batch 1 must fit in this much memory (such as 1MB, 800kB,
    1.5MiB), or in this share of what MAML takes (such as 50%)."""
    budget_accounting: Literal["arena", "exact", "paper"] = "arena"
    """What the budget counts: the bytes that our engine plans for the device, or an accounting of
    `pmeta cost`."""
    seed: int = 0
    """Of the weights and of the tasks."""
    workers: int = 0
    """Processes that share the tasks of a meta-batch; 0: one for each core, or for each GPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto: on the GPU if there is one."""
    tensorboard: bool = False
    """Write TensorBoard logs to OUT/tensorboard."""

    def __post_init__(self) -> None:
        for name in (
            "n_way",
            "n_shot",
            "n_query",
            "inner_steps",
            "tasks",
            "meta_batch",
            "epoch_tasks",
            "val_tasks",
            "channels",
        ):
            check_count(name, getattr(self, name))
        if self.groups < 1 or self.channels % self.groups:
            raise ValueError(
                f"--groups must divide --channels, got {self.groups} groups for {self.channels} "
                "channels."
            )
        for name in ("alpha_0", "lr", "alpha_lr", "attention_lr", "attention_bias_lr"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"--{name.replace('_', '-')} must be positive, got {getattr(self, name)}."
                )
        check_shares(warm_up=self.warm_up, freeze_at=self.freeze_at)
        for name, off in (("lam", "the penalty off"), ("freeze_below", "the threshold off")):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(
                    f"--{name.replace('_', '-')} must not be negative, got {getattr(self, name)}: "
                    f"0 turns {off}."
                )
        if self.image_size is not None and self.image_size < 1:
            raise ValueError(
                "--image-size must be at least 1, or None for images as they are, got "
                f"{self.image_size}."
            )
        if self.seed < 0 or self.workers < 0:
            raise ValueError(
                f"--seed and --workers must not be negative, got {self.seed} and {self.workers}."
            )
        check_budget(self.memory_budget, self.method_row())
        self._check_tasks()

    def _check_tasks(self) -> None:
        mixtures = ("train_ways", "train_shots", "val_shots")
        if self.head == "learned" and any(n != self.n_way for n in self.counts("train_ways")):
            raise ValueError(
                "--train-ways needs a head for any number of classes, a learned one has --n-way "
                f"{self.n_way}: give --head prototype."
            )
        if any(n < 1 for name in mixtures for n in self.counts(name)):
            raise ValueError("--train-ways, --train-shots and --val-shots are at least 1 each.")
        for name in ("train_queries", "most_support"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"--{name.replace('_', '-')} must not be negative, got {getattr(self, name)}."
                )
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
        for name in ("jitter", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"--{name} must be in [0, 1), got {getattr(self, name)}: 0 turns it off."
                )

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
                f"--{name.replace('_', '-')} is numbers with commas, such as 1,5, got {text!r}."
            ) from None

    def method_row(self) -> Method:
        """The method with what this run changes in it."""
        row = method(self.method)
        return dataclasses.replace(
            row,
            scores=self.scores or row.scores,
            clip_ratio_fw=self.clip_ratio_fw,
            clip_ratio_bw=self.clip_ratio_bw,
            sparse_fw=self.sparse_fw,
            sparse_bw=self.sparse_bw,
        )

    def most_workers(self, count: int) -> int:
        """How many of so many processes are of use: all of them, if not in training then in
        validation."""
        return count

    @property
    def updates(self) -> int:
        """Outer updates in all."""
        return -(-self.tasks // self.meta_batch)


def defaults(config: Any) -> dict[str, Any]:
    """What a run had of settings that an older release did not know."""
    return {f.name: f.default for f in dataclasses.fields(config)}


MOST = {"inner_steps": 1000, "n_way": 65_535, "n_shot": 10**6, "n_query": 10**6, "channels": 2**16}
"""Of what a task or a network has; of all else a thousand million."""


def check_count(name: str, value: int) -> None:
    """Raise ValueError for a setting that is no whole number from 1 to the most there may be."""
    flag, most = f"--{name.replace('_', '-')}", MOST.get(name, 10**9)
    if type(value) is not int or value < 1:
        raise ValueError(f"{flag} must be at least 1, got {value}.")
    if value > most:
        raise ValueError(f"{flag} must be at most {most:,}, got {value}.")


def check_shares(**shares: float) -> None:
    """Raise ValueError for a share of the training that is none."""
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(
                f"--{name.replace('_', '-')} is a share of the training in [0, 1], got {share}."
            )


def check_budget(budget: str, row: Method) -> None:
    """Raise ValueError when a --memory-budget is no amount of memory, or the method cannot meet
    one."""
    if budget and not row.sparse_alpha:
        raise ValueError(
            f"a memory budget is met by dropping layers, which {row.title} does not: use pmeta-lr "
            "or pmeta."
        )
    if budget and parse_share(budget) is None:
        parse_bytes(budget)


def parse_bytes(text: str) -> int:
    """Bytes from plain units, decimal as in the paper's figures (kB, MB) or binary (KiB, MiB).

    >>> parse_bytes("1MB"), parse_bytes("0.5 MiB"), parse_bytes("800k")
    (1000000, 524288, 800000)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(?:([kmg])(i?))?b?\s*", text, re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise ValueError(
            "a memory budget is a size such as 1MB, 800kB or 1.5MiB, or a share of what MAML takes "
            f"such as 50%, got {text!r}."
        )
    power = " kmg".index((match[2] or " ").lower())
    return round(float(match[1]) * (1024 if match[3] else 1000) ** power)


def parse_share(text: str) -> float | None:
    """A share of something, None where it is none.

    >>> parse_share("50%"), parse_share("50kB")
    (0.5, None)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*%\s*", text)
    return float(match[1]) / 100 if match and 0 < float(match[1]) <= 100 else None


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
