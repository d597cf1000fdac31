"""One go at the queue: what is left out, what is to do, the work, the tables."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.markdown import Markdown

from pmeta.base.console import Console
from pmeta.base.terminal import printable
from pmeta.reproduce import figure5_picture, queue, results, tables
from pmeta.reproduce.cells import TRAININGS, Cell
from pmeta.reproduce.config import ReproduceConfig
from pmeta.reproduce.data import TITLES, missing_line, open_datasets
from pmeta.reproduce.queue import Job, Options, Step
from pmeta.reproduce.scales import configuration
from pmeta.training import workers


def run(
    config: ReproduceConfig,
    asked: Sequence[str],
    cells: Sequence[Cell],
    figure: Sequence[str],
    out: Path,
) -> None:
    """Do what is left of these cells."""
    options = prepare(config, out)
    jobs = queue.plan(cells, figure, options)
    for line in left_out(cells, figure, options):
        print(line)
    todo = [step for job in jobs for step in queue.steps(job, options)]
    write(asked, options)
    if todo:
        print(f"{len(todo)} steps to go in {len(jobs)} runs.", flush=True)
    if config.plan:
        for step in todo:
            print(f"  {step.label}: {step.tasks} tasks")
        return
    busy = work(jobs, asked, options)
    finish(asked, busy, options)


def prepare(config: ReproduceConfig, out: Path) -> Options:
    """The options of the queue; opens the data."""
    words = config.data or (("glyphs",) if config.scale == "smoke" else ())
    # a mistake in --set is told before the data are opened
    for name in ("navigation-pmeta", "4conv-1shot-pmeta"):
        settings = configuration(TRAININGS[name], config.scale, "", config.tasks, config.set)
    count = config.workers or (1 if config.scale == "smoke" else workers.default_workers())
    datasets = open_datasets(words, settings.image_size)  # type: ignore[union-attr]
    sizes = (config.seeds, config.tasks, config.eval_tasks)
    return Options(out, config.scale, datasets, *sizes, config.set, count)


def left_out(cells: Sequence[Cell], figure: Sequence[str], options: Options) -> list[str]:
    """One line for every data set that is asked for and not there, and for trainings that cannot be
    had."""
    measured = [cell for cell in cells if cell.training and not cell.cost]
    images = [cell for cell in measured if not TRAININGS[cell.training].is_rl]
    wanted = {"mini", *(cell.data for cell in images)} if images or figure else set()
    lines = [
        missing_line(name) for name in TITLES if name in wanted and name not in options.datasets
    ]
    reasons = dict.fromkeys(queue.trainable(TRAININGS[cell.training], options) for cell in measured)
    return lines + [f"{why}." for why in reasons if why and why != queue.NO_IMAGES]


def write(asked: Sequence[str], options: Options) -> None:
    """All tables and figures asked for, as they are now."""
    with tables.only_one_writes(options.out):
        for name in asked:
            if name == "figure5":
                figure5_picture.write(options)
            else:
                tables.write(results.table(name, options), options.out)


def work(jobs: Sequence[Job], asked: Sequence[str], options: Options) -> list[Job]:
    """Work off the queue, with a line before each step; returns the jobs that others are at work
    on."""

    def before(step: Step) -> None:
        left = sum(1 for job in jobs for _ in queue.steps(job, options))
        print(f"[{left} to go] {step.label}: {step.tasks} tasks", flush=True)

    return queue.work_off(jobs, options, before, lambda: write(asked, options))


def finish(asked: Sequence[str], busy: Sequence[Job], options: Options) -> None:
    """Show the tables, and say where everything is."""
    for name in asked:
        if name != "figure5":
            text = (options.out / f"{name}.md").read_text()
            Console().print(Markdown(text)) if sys.stdout.isatty() else print(text)
    for job in busy:
        print(f"{job.run.name} is left to the other process that is at work on it.")
    for path in sorted((options.out / "runs").glob("*/failed.json")):
        why = printable(f"{path.parent.name} failed: {queue.why_failed(path.parent)}", lines=True)
        print(why)
    runs = ["runs/"] if (options.out / "runs").exists() else []
    print(f"left in {options.out}/: {', '.join([*asked, *runs])}")
