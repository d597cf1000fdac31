"""The whole of p-Meta on any model in a few lines: meta-train, adapt, predict."""

from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from pmeta.base.console import Console
from pmeta.base.files import write_atomically
from pmeta.compiler.export import export
from pmeta.cost.adaptation import Cost
from pmeta.data.tasks import SCALE, SHIFT
from pmeta.method import methods
from pmeta.method.inner import InnerLoop, Loss, cross_entropy
from pmeta.method.learned import init_meta
from pmeta.method.memory_budget import live_cost
from pmeta.method.meta_gradient import AnyTask
from pmeta.method.outer import Outer, Schedule
from pmeta.method.step_sizes import freeze
from pmeta.network.layers import Weights
from pmeta.network.take_in import take_in
from pmeta.training.run_folder import read_checkpoint, restored, write_checkpoint
from pmeta.training.workers import keep_freed_memory


class Learner:
    """A model, the method that adapts it, and all that meta-training learns: `meta`. The model
    itself keeps its first weights.

    >>> block = (nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU())
    >>> model = nn.Sequential(*block, nn.Flatten(), nn.Linear(144, 2))
    >>> learner = Learner(model, torch.zeros(1, 1, 8, 8), inner_steps=1)
    >>> x, y = torch.zeros(2, 1, 8, 8), torch.tensor([0, 1])
    >>> learner.meta_train([(x, y, x, y)] * 4, progress=False)
    >>> learner.predict(learner.adapt(x, y), x).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        model: nn.Module,
        example: Tensor,
        method: str | methods.Method = "pmeta",
        inner_steps: int = 5,
        alpha_0: float = 0.01,
        loss: Loss = cross_entropy,
        extra: tuple[str, ...] = (),
        seed: int = 0,
        recompute: bool = False,
        replay: bool = True,
        head: str = "learned",
    ):
        """Take in `model` as it is; `example` is a batch of one input.

        `method` is a name (maml, anil, boil, maml++, pmeta-lr, pmeta, protonet) or a row of one's
        own. `loss`
        gives the loss of each sample. `extra` names parameters that belong to no conv, fc or norm
        layer and get a step size of their own. `recompute` holds one inner step of meta-training at
        a time, where memory is short. Set `replay` to False where `loss` or the model depends on
        numbers of Python that change while it is trained. `head`: learned, or prototype, made from
        the support set for any number of classes."""
        self.net = take_in(model, example, extra)
        self.method = methods.method(method) if isinstance(method, str) else method
        self.meta = init_meta(
            self.net, self.method, inner_steps, alpha_0, torch.Generator().manual_seed(seed), head
        )
        self.loop = InnerLoop(self.net, self.method, loss, recompute=recompute, replay=replay)
        self.alpha_0, self.sample_shape = alpha_0, tuple(example.shape[1:])

    def meta_train(
        self,
        tasks: Iterable[AnyTask],
        n_tasks: int | None = None,
        meta_batch: int = 4,
        progress: bool = True,
        **schedule: float,
    ) -> None:
        """Alg. 2 over tasks (support_x, support_y, query_x, query_y), `meta_batch` of them to an
        outer update.

        `n_tasks` says how many there will be where `tasks` has no length. Further settings are
        those of `outer.Schedule`."""
        total = len(tasks) if n_tasks is None and isinstance(tasks, Sized) else n_tasks
        if total is None:
            raise ValueError(
                "the schedule needs to know how many tasks there will be: give n_tasks with an "
                "iterator."
            )
        if total < 1 or meta_batch < 1:
            raise ValueError(
                f"meta-training takes at least 1 task, 1 at a time, got {total} and "
                f"meta_batch={meta_batch}."
            )
        settings = Schedule(-(-total // meta_batch), **schedule)
        small = settings.freeze_below * self.alpha_0
        outer = Outer(
            replace(self.loop, second_order=True),
            self.meta,
            settings,
            lambda meta: freeze(meta, small),
        )
        keep_freed_memory()
        batches = _batches(islice(tasks, total), meta_batch)
        shown = track(
            batches,
            "meta-training",
            outer.schedule.updates,
            console=Console(stderr=True),
            disable=not progress,
        )
        given = 0
        for batch in shown:
            outer.update(outer.gradient(batch))
            outer.check_finite()
            given += len(batch)
        self.meta = outer.averaged().map(Tensor.detach)
        if given < total:
            raise ValueError(
                f"n_tasks promised {total} tasks and {given} came, which cut the schedule short: "
                "train again."
            )

    def adapt(self, x: Tensor, y: Any, batch: int | None = 1) -> Weights:
        """The weights after adapting to a support set, `batch` samples at a time as a small device
        would (None: at once)."""
        with _evaluating(self.net.model):
            return replace(self.loop, batch=batch).adapt(self.meta, (x, y)).w

    def predict(self, w: Weights, x: Tensor) -> Any:
        """The output of the model with the weights w."""
        with torch.no_grad(), _evaluating(self.net.model):
            return torch.func.functional_call(self.net.model, w, (x,))

    def save(self, path: str | Path) -> None:
        """Keep what was learned (weights, step sizes, attention, the layers that live) in a
        safetensors file."""
        write_checkpoint(
            Path(path),
            {**self.meta.parameters(), "mask": self.meta.mask},
            {"method": self.method.title},
        )

    def load(self, path: str | Path) -> None:
        """Take what `save` kept, of a learner that was made with the same model, method and
        steps."""
        self.meta = restored(
            self.meta, read_checkpoint(Path(path), "give one that save wrote").tensors
        )

    def export(self, path: str | Path, pixels: bool = False, batch: int | None = 1) -> None:
        """Write the model for the device: `pmeta.device.binding`, `pmeta adapt` or C.

        It reads float32 samples as they are or, with `pixels`, raw pictures, which it normalises as
        `open_split` and `pmeta adapt` have them. Attention is that of `batch` samples at a time
        (None: the whole support set)."""
        if pixels and len(self.sample_shape) != 3:
            raise ValueError(
                "pixels are those of a picture, channels x height x width, got samples of "
                f"{self.sample_shape}."
            )
        channels = self.sample_shape[0]
        read: dict[str, Any] = (
            {"input_type": "uint8", "scale": [SCALE] * channels, "shift": [SHIFT] * channels}
            if pixels
            else {}
        )
        with _evaluating(self.net.model):
            made = export(self.net, self.meta, self.method, self.sample_shape, batch=batch, **read)
        write_atomically(Path(path), made.data)

    def cost(self, samples: int, batch: int = 1) -> Cost:
        """What adapting to `samples` samples takes, at most, with the layers that live now."""
        return live_cost(self.net, self.meta, self.method, samples, batch)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout and its like off, as on the device."""
    training = {m: m.training for m in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for m, was in training.items():
            m.training = was


def _batches(tasks: Iterator[AnyTask], size: int) -> Iterator[list[AnyTask]]:
    while batch := list(islice(tasks, size)):
        yield batch
