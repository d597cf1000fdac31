"""The queue of runs: what is done is not done again, and what was stopped goes on."""

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pmeta import kinds
from pmeta.base.errors import DivergedError, how_to_install
from pmeta.base.reading import read
from pmeta.base.shapes import Failed
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.policies.config import RLConfig
from pmeta.report import figures
from pmeta.reproduce import evaluations, figure5
from pmeta.reproduce.cells import TRAININGS, Cell, Training
from pmeta.reproduce.data import Dataset
from pmeta.reproduce.scales import SCALES, configuration
from pmeta.training import workers
from pmeta.training.restored import Asked
from pmeta.training.run_folder import BusyError, Run, write_json

NO_IMAGES = "no MiniImageNet to train on: --data mini=DIR"


@dataclass(frozen=True)
class Options:
    """What the user asked for, as the queue takes it."""

    out: Path
    scale: str
    datasets: dict[str, Dataset]
    seeds: Sequence[int] = (0,)
    tasks: int | None = None
    eval_tasks: int | None = None
    given: Sequence[str] = ()
    workers: int = 1


@dataclass(frozen=True)
class Job:
    """One run: its training, and what is evaluated of it."""

    training: Training
    config: ImageConfig | RLConfig
    evaluations: tuple[tuple[str, int | None], ...]
    """(data set, samples at a time) of each."""
    figure5: bool

    @property
    def run(self) -> Path:
        return Path(self.config.out)


def run_folder(out: Path, training: str, seed: int) -> Path:
    """Where a training is kept; the first seed needs no mark.

    >>> str(run_folder(Path("out"), "4conv-1shot-maml", 2))
    'out/runs/4conv-1shot-maml-seed2'
    """
    return out / "runs" / (training if seed == 0 else f"{training}-seed{seed}")


def why_failed(run: Path) -> str:
    """Why the training of a run ended, or nothing."""
    path = run / "failed.json"
    return read(path, path.read_bytes(), Failed, "remove it")["error"] if path.exists() else ""


def trainable(training: Training, options: Options) -> str:
    """Why a training is left out, or nothing."""
    if training.is_rl:
        there = "cheetah" not in training.base or importlib.util.find_spec("mujoco")
        return "" if there else f"the Half-Cheetah needs MuJoCo: {how_to_install('rl')}"
    if "mini" not in options.datasets:
        return NO_IMAGES
    if "resnet12" in training.base and SCALES[options.scale].resnet12 is None:
        return (
            f"ResNet12 is not trained at --scale {options.scale}: a task takes a core about a "
            "minute"
        )
    return ""


def plan(cells: Sequence[Cell], with_figure5: Sequence[str], options: Options) -> list[Job]:
    """The jobs behind these cells, the most telling first; raises ValueError where a run is there
    with other settings."""
    wanted = {cell.training for cell in cells if not cell.cost} | set(with_figure5)
    jobs = []
    for seed in options.seeds:
        for training in TRAININGS.values():
            if training.name not in wanted or trainable(training, options):
                continue
            there = [c for c in cells if training.is_rl or c.data in options.datasets]
            own = [(c.data, c.batch) for c in there if c.training == training.name]
            asked = tuple(dict.fromkeys(own))
            shown = training.name in with_figure5 and seed == options.seeds[0]
            jobs.append(Job(training, _config(training, seed, options), asked, shown))
    for job in jobs:
        if Run(job.run).begun():
            Run(job.run).compare(job.config)
    return jobs


def _config(training: Training, seed: int, options: Options) -> ImageConfig | RLConfig:
    data = options.datasets["mini"].root if "mini" in options.datasets else ""
    config = configuration(training, options.scale, data, options.tasks, options.given)
    out = str(run_folder(options.out, training.name, seed))
    return dataclasses.replace(
        config, out=out, seed=seed, workers=config.most_workers(options.workers)
    )


@dataclass(frozen=True)
class Step:
    """A piece of a job that is not done yet."""

    job: Job
    tasks: int
    """To go."""
    do: Callable[[], Any]
    label: str


def steps(job: Job, options: Options) -> Iterator[Step]:
    """What is left to do of a job, in order."""
    left = job.config.tasks - Run(job.run).tasks_done()
    if left > 0:
        yield Step(job, left, partial(_train, job), f"train {job.run.name}")
    for data, batch in job.evaluations:
        yield from _evaluation(job, data, batch, options)
    if job.figure5 and not figure5.path_of(job.run, options.datasets["mini"].split).exists():
        tasks = SCALES[options.scale].figure_tasks
        asked = Asked(
            str(job.run),
            split=options.datasets["mini"].split,
            tasks=tasks,
            seed=job.config.seed + 1,
        )
        args = (kinds.kind(job.config.kind).restore, asked)
        do = partial(_locked, job, figure5.measure, args, options)
        yield Step(job, tasks, do, f"figure 5 of {job.run.name}")


def _train(job: Job) -> None:
    workers.run(kinds.train, (job.config,), job.config.workers)
    figures.run_pictures(job.run)
    (job.run / "failed.json").unlink(missing_ok=True)


def _evaluation(job: Job, data: str, batch: int | None, options: Options) -> Iterator[Step]:
    """One evaluation, unless it is there with as many tasks."""
    scale, name = SCALES[options.scale], job.run.name
    restore = kinds.kind(job.config.kind).restore
    work: partial[Any]
    args: tuple[Any, ...]
    if job.training.is_rl:
        tasks, path = scale.rl_eval_tasks, evaluations.path_of(job.run, data, "test", 1)
        args = (restore, Asked(str(job.run), tasks=tasks), path)
        work, label = partial(_locked, job, evaluations.evaluate_policy, args), name
    else:
        dataset, tasks = options.datasets[data], options.eval_tasks or scale.eval_tasks
        path = evaluations.path_of(job.run, data, dataset.split, batch)
        asked = Asked(
            run=str(job.run),
            data=dataset.root,
            split=dataset.split,
            tasks=tasks,
            batch=batch,
            n_query=scale.eval_query,
            seed=job.config.seed + 1,  # other tasks than those that chose the model
        )
        work = partial(_locked, job, evaluations.evaluate_images, (restore, asked, path))
        label = f"{name} on {dataset.title} ({dataset.split}), {batch or 'all'} at a time"
    done = evaluations.read(path)
    if not done or done["tasks"] < tasks:
        yield Step(job, tasks, partial(work, options), f"evaluate {label}")


def _locked(job: Job, work: Callable[..., Any], args: tuple[Any, ...], options: Options) -> Any:
    """Two queues may share a folder: only one of them evaluates a run."""
    with Run(job.run) as run:
        run.lock()
        return workers.run(work, args, options.workers)


def work_off(
    jobs: Sequence[Job], options: Options, before: Callable[[Step], None], after: Callable[[], None]
) -> list[Job]:
    """Do what is left of every job; returns those that another process was at work on, and still
    is."""
    todo = list(jobs)
    for _ in ("once", "once more"):
        busy = []
        for job in todo:
            try:
                for step in steps(job, options):
                    before(step)
                    step.do()
                    after()
            except BusyError:
                busy.append(job)
            # the others go on; a new start tries again from the last good checkpoint
            except DivergedError as error:
                write_json(job.run / "failed.json", {"error": str(error)})
                after()
        todo = busy
    return todo
