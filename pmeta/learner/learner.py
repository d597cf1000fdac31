"""The whole of p-Meta on any model in a few lines: meta-train, adapt, predict, export."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from pmeta.base.console import Console
from pmeta.base.files import write_atomically
from pmeta.compiler.export import Exported, export
from pmeta.kinds.own.graph import normalisation
from pmeta.learner.checks import Expected, check_finite, check_model, loss_of, name_of
from pmeta.learner.cost import LearnerCost
from pmeta.learner.fit import fit_run, graph_of, results, settings
from pmeta.learner.tasks import Numbered, Tasks, check_sendable, how_many
from pmeta.method import methods
from pmeta.method.inner import InnerLoop, Loss, cross_entropy
from pmeta.method.learned import Meta, init_meta
from pmeta.method.memory_budget import live_cost
from pmeta.method.meta_gradient import AnyTask
from pmeta.method.outer import Outer, Schedule, about_skipped
from pmeta.method.step_sizes import freeze
from pmeta.network.layers import Weights, evaluating
from pmeta.network.take_in import take_in
from pmeta.training import workers as processes
from pmeta.training.budget import Sample, budget_choice, export_budget, maml_bytes
from pmeta.training.own_network import check_device
from pmeta.training.results import Summary, summarise
from pmeta.training.run_folder import read_checkpoint, restored, write_checkpoint
from pmeta.training.settings import check_budget
from pmeta.training.start import initial, start_from


class Learner:
    """A model, the method that adapts it, and all that meta-training learns: `meta`. The model
    itself keeps its first weights.

    >>> block = (nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU())
    >>> model = nn.Sequential(*block, nn.Flatten(), nn.Linear(144, 2))
    >>> learner = Learner(model, torch.zeros(1, 1, 8, 8), inner_steps=1, memory_budget="50%")
    >>> x, y = torch.zeros(2, 1, 8, 8), torch.tensor([0, 1])
    >>> learner.meta_train([(x, y, x, y)] * 4, progress=False)
    >>> learner.predict(learner.adapt(x, y), x).shape
    torch.Size([2, 2])
    >>> learner.arena_bytes <= learner.maml_arena_bytes / 2
    True
    """

    def __init__(
        self,
        model: nn.Module,
        example: Tensor,
        method: str | methods.Method = "pmeta",
        inner_steps: int = 5,
        alpha_0: float = 0.01,
        loss: str | Loss = "cross-entropy",
        extra: tuple[str, ...] = (),
        seed: int = 0,
        recompute: bool = False,
        memory_budget: str | int = "",
        pixels: bool = False,
        for_device: bool = True,
        head: str = "learned",
    ):
        """Take in `model` as it is; `example` is a batch of one input.

        `method` is a name (maml, anil, boil, maml++, pmeta-lr, pmeta, protonet) or a row of one's
        own. `loss` is cross-entropy, mse, or a function that gives the loss of each sample.
        `extra` names parameters that belong to no conv, fc or norm layer and get a step size of
        their own.
        `recompute` holds one inner step of meta-training at a time, where memory is short.

        `memory_budget` is what the device may take to adapt: its arena in bytes, as in "100kB", or
        a share of what MAML takes, as in "50%". `pixels`: the device reads raw pictures.
        `for_device` refuses a model that cannot be exported, with all the reasons. `head`: learned,
        or prototype, made from the support set."""
        check_model(model, example)
        self.net = take_in(model, example, extra)
        self.method = methods.method(method) if isinstance(method, str) else method
        self.seed, self.alpha_0, self.for_device = seed, alpha_0, for_device
        generator = torch.Generator().manual_seed(seed)
        self.meta = init_meta(self.net, self.method, inner_steps, alpha_0, generator, head)
        self.loop = InnerLoop(self.net, self.method, loss_of(loss), recompute=recompute)
        self.sample_shape = tuple(example.shape[1:])
        self.expected = Expected(
            self.sample_shape, example.dtype, self.net.ops[-1].y, self.loop.loss
        )
        self.pixels, self.memory_budget = self._pixels(pixels), str(memory_budget)
        check_budget(self.memory_budget, self.method)
        if for_device:
            with self.evaluating():
                check_device(model, example[:1], "train it for elsewhere with for_device=False")
        self.choose(0.0)  # a budget that is too small is told now

    def _pixels(self, pixels: bool) -> bool:
        if pixels and len(self.sample_shape) != 3:
            raise ValueError(
                "pixels are those of a picture, channels x height x width, got samples of "
                f"{self.sample_shape}."
            )
        return pixels

    @property
    def outputs(self) -> int:
        """Numbers that the model gives for a sample: the classes of a classifier."""
        return self.net.ops[-1].y[-1]

    @property
    def classifies(self) -> bool:
        """Whether the targets are classes."""
        return self.loop.loss is cross_entropy

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
        those of `outer.Schedule`. It runs in one thread; `fit` takes `workers`."""
        total = how_many(tasks, n_tasks, meta_batch)
        plan = Schedule(-(-total // meta_batch), **self._penalty(schedule))
        loop = replace(self.loop, second_order=True)
        outer = Outer(loop, self.meta, plan, self.choose(plan.freeze_below))
        processes.keep_freed_memory()
        numbered = enumerate(islice(tasks, total))
        checked = (self.expected.checked(task, f"task {i}") for i, task in numbered)
        shown = track(
            _batches(checked, meta_batch),
            "meta-training",
            plan.updates,
            console=Console(stderr=True),
            disable=not progress,
        )
        given = skipped = 0
        with processes.one_thread():
            for batch in shown:
                g = outer.gradient(batch, range(given, given + len(batch)), self.seed)
                outer.update(g)
                outer.check_finite()
                given, skipped = given + len(batch), skipped + g.skipped
        self.meta = outer.averaged().map(Tensor.detach)
        if given < total:
            raise ValueError(
                f"n_tasks promised {total} tasks and {given} came, which cut the schedule short: "
                "train again."
            )
        _say(about_skipped(skipped, given))
        self._advise(progress)

    def fit(
        self,
        train_tasks: Tasks,
        val_tasks: Iterable[AnyTask],
        out: str | Path,
        n_tasks: int | None = None,
        meta_batch: int = 4,
        epoch_tasks: int = 1000,
        workers: int = 1,
        tensorboard: bool = False,
        **schedule: float,
    ) -> dict[str, Any]:
        """Meta-train in the run folder `out` and take the model that was best on `val_tasks`.

        The same call goes on where a run was stopped. `train_tasks` is a sequence, which is
        repeated, a function that gives task i, or an iterator, which is run forward; the first two
        also serve several processes. With `workers` above 1 the model and the tasks are sent to
        processes of their own; under torchrun each process takes its part. Returns what is known
        of the best model."""
        total, given = how_many(train_tasks, n_tasks, meta_batch), enumerate(val_tasks)
        unseen = [self.expected.finite(task, f"validation task {i}") for i, task in given]
        if not unseen:
            raise ValueError("the best model is chosen on val_tasks, got none: hold some back.")
        numbered = Numbered(train_tasks, total)
        if workers > 1:
            check_sendable((self, numbered, unseen))
        config = settings(
            self,
            out=str(out),
            tasks=total,
            meta_batch=meta_batch,
            epoch_tasks=epoch_tasks,
            val_tasks=len(unseen),
            tensorboard=tensorboard,
            **schedule,
        )
        args = self, config, graph_of(self, config), numbered, unseen
        best = processes.run(fit_run, args, workers)
        if processes.is_first():
            self.load(out)
            self._advise(True)
        return best

    def evaluate(self, tasks: Sequence[AnyTask]) -> Summary:
        """Adapt to each task one sample at a time, as a device does: accuracy with CI95, loss,
        memory, MACs, shares of the weights that are updated."""
        checked = [self.expected.finite(task, f"task {i}") for i, task in enumerate(tasks)]
        return summarise(results(processes.Group(), self, self.meta.map(Tensor.detach), checked))

    def adapt(self, x: Tensor, y: Any, batch: int | None = 1) -> Weights:
        """The weights after adapting to a support set, `batch` samples at a time as a small device
        would (None: at once)."""
        self.expected.check_set(x, y)
        check_finite("x", x)
        with self.evaluating():
            w = replace(self.loop, batch=batch).adapt(self.meta, (x, y)).w
        for name, t in w.items():
            check_finite(f"{name} of the adapted weights", t)
        return w

    def predict(self, w: Weights, x: Tensor) -> Any:
        """The output of the model with the weights w."""
        self.expected.check_samples(x)
        with torch.no_grad(), self.evaluating():
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
        """Take what `save` kept, or the best model of a run folder, of a learner that was made with
        the same model, method and steps."""
        file = Path(path) / "best.safetensors" if Path(path).is_dir() else Path(path)
        self.meta = restored(self.meta, read_checkpoint(file, "give one that save wrote").tensors)

    def start_from(self, path: str | Path) -> None:
        """Go on from the best model of a run folder or of a model of the zoo, as
        `pmeta train --init` does: the head may have another number of outputs."""
        self.meta = start_from(self.net, self.meta, initial(str(path)), str(path))

    def export(self, path: str | Path, pixels: bool | None = None, batch: int | None = 1) -> None:
        """Write the model for the device: `pmeta.device.binding`, `pmeta adapt` or C.

        It reads float32 samples as they are or, with `pixels`, raw pictures, which it normalises as
        `open_split` and `pmeta adapt` have them; None: as the learner was told. Attention is that
        of `batch` samples at a time (None: the whole support set)."""
        raw = self.pixels if pixels is None else self._pixels(pixels)
        write_atomically(Path(path), self._exported(raw, batch).data)

    def _exported(self, raw: bool, batch: int | None) -> Exported:
        kind, shape = "uint8" if raw else "float32", self.sample_shape
        scale, facts = normalisation(raw, shape[0]), {"loss": name_of(self.loop.loss)}
        what = self.net, self.meta, self.method
        with self.evaluating():
            own = export_budget(*what, self.memory_budget, "arena", Sample(shape, kind), batch)
            return export(
                *what,
                shape,
                batch=batch,
                input_type=kind,
                memory_budget=own,
                facts=facts,
                **scale,
            )

    @property
    def arena_bytes(self) -> int:
        """What the device takes to adapt, one sample at a time, with the layers that live now."""
        return self._exported(self.pixels, batch=1).arena_bytes

    @property
    def maml_arena_bytes(self) -> int:
        """What the device takes to update all layers in every step."""
        return maml_bytes(self.net, self.meta, "arena", 1, self._sample)

    @property
    def _sample(self) -> Sample:
        return Sample(self.sample_shape, "uint8" if self.pixels else "float32")

    def cost(self, samples: int, batch: int = 1) -> LearnerCost:
        """What adapting to `samples` samples takes, at most, with the layers that live now.

        Printed, the bytes of the device come first."""
        found = live_cost(self.net, self.meta, self.method, samples, batch)
        alive = self.meta.updates()
        return LearnerCost(
            **vars(found),
            arena_bytes=self.arena_bytes if self.for_device else None,
            maml_arena_bytes=self.maml_arena_bytes if self.for_device else None,
            updated=int(alive.sum()),
            of=alive.numel(),
            advice=self.advice,
        )

    @property
    def advice(self) -> str:
        """What to change where p-Meta saves nothing since no step size is at zero; else empty."""
        if not self.method.sparse_alpha or not bool(self.meta.updates().all()):
            return ""
        return (
            "no step size is at zero, so that every layer is updated as in MAML: give the learner "
            'memory_budget="50%" (or a size, as "100kB"), or train longer or with a larger lam '
            "(0.001 unless given)."
        )

    def choose(self, freeze_below: float) -> Callable[[Meta], Meta]:
        """Which step sizes live on at the freeze: those in the budget, or those not small."""
        args = (self.net, self.meta, self.method, self.memory_budget, "arena", 2, self._sample)
        fitting = budget_choice(*args)
        return fitting or (lambda meta: freeze(meta, freeze_below * self.alpha_0))

    def evaluating(self) -> AbstractContextManager[None]:
        """Dropout and its like off, as on the device."""
        return evaluating(self.net.model)

    def _penalty(self, schedule: dict[str, float]) -> dict[str, float]:
        """A memory budget takes the place of lambda."""
        return {**({"lam": 0.0} if self.memory_budget else {}), **schedule}

    def _advise(self, shown: bool) -> None:
        if shown and self.advice:
            _say(self.advice)


def _say(text: str) -> None:
    if text:
        Console(stderr=True, highlight=False).print(text, soft_wrap=True)


def _batches(tasks: Iterator[AnyTask], size: int) -> Iterator[list[AnyTask]]:
    while batch := list(islice(tasks, size)):
        yield batch
