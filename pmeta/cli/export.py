"""The command `pmeta export RUN`: the best model of a run as one file for the device."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro
from rich.table import Table

from pmeta.base.console import Console
from pmeta.base.files import write_atomically
from pmeta.compiler.export import Exported, export
from pmeta.data.tasks import SCALE, SHIFT
from pmeta.device import DeviceModel
from pmeta.device import model_file as flatfile
from pmeta.firmware import c_text
from pmeta.training.calibration import temperatures
from pmeta.training.own.budget import Sample, export_budget, share_in_bytes
from pmeta.training.restore import load, restore, with_outputs
from pmeta.training.run_folder import open_run
from pmeta.training.settings import parse_bytes


@dataclass(frozen=True)
class ExportConfig:
    """Write the best model of a run as one file that a device adapts, and print what it will
    take."""

    run: tyro.conf.Positional[str]
    """Run folder, or a model that `pmeta zoo` lists."""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"])] = "model.pmeta"
    """File to write."""
    batch: int | None = 1
    """Samples that share their attention scores (gradient accumulation); None: the whole support
    set. One takes the least memory; all larger numbers take the same, a little more."""
    model: str = ""
    """Of a run with a network of your own: FILE.py:FUNCTION, which makes it."""
    classes: int | None = None
    """Of a head from prototypes: tell up to this many classes apart. None: as in training."""
    float32: bool = False
    """Read normalised float32 samples instead of raw uint8 pixels."""
    c_array: bool = False
    """Write the same file as C, too: OUT with the endings .c and .h, an aligned array for
    firmware."""
    memory_budget: str = ""
    """The arena that an adaptation may take, such as 230kB or 1MiB: the fastest plan that keeps to
    it. By default that of the training; if it had none, or no plan keeps to it, the smallest plan
    that costs no computation."""
    least_step: float | None = None
    """Leave a layer alone in a step whose step size is below this, which takes less memory; `pmeta
    evaluate --least-step` says what accuracy is left. None: update all that the run does."""
    constants: Literal["float32", "float16", "int8"] = "float32"
    """How weights that no step updates and the modules of attention stand in the file: float16
    takes half of it, int8 a quarter, with a scale for each filter."""
    frontier: str = ""
    """File (.png or .svg) for a picture of all plans: arena against computation."""
    quiet: bool = False
    """Print nothing."""

    def check(self) -> None:
        """Raise ValueError for options that cannot be."""
        if self.memory_budget and "%" in self.memory_budget:
            raise ValueError(
                f"--memory-budget of an export is a size such as 230kB, got {self.memory_budget!r}."
            )
        if self.frontier and Path(self.frontier).suffix not in (".png", ".svg"):
            raise ValueError(f"--frontier is a .png or .svg file, got {self.frontier!r}.")


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(
        ExportConfig, args=argv, prog="pmeta export", description=ExportConfig.__doc__
    )
    config.check()
    budget = parse_bytes(config.memory_budget) if config.memory_budget else None
    plans = bool(config.frontier) or not config.quiet
    with Console(stderr=True, quiet=config.quiet).status("reading the run") as status:
        exported = export_run(
            config.run,
            config.float32,
            config.batch,
            config.classes,
            status.update,
            config.model,
            budget,
            with_frontier=plans,
            constants=config.constants,
            least_step=config.least_step,
        )
    write_atomically(Path(config.out), exported.data)
    if config.c_array:
        write_c_array(Path(config.out), exported.data)
    if config.frontier:
        save_frontier(Path(config.frontier), exported, budget)
    if not config.quiet:
        show(config.out, exported)
        show_frontier(exported)
        if not exported.alone and not config.float32:  # a classifier of pictures
            if not flatfile.temperatures(exported.data):
                own = f" --model {shlex.quote(config.model)}" if config.model else ""
                print(
                    f"not calibrated: run pmeta calibrate {shlex.quote(config.run)}{own} and "
                    "export again, so that a probability is a share of right answers"
                )
            what = "FOLDER, where a folder of pictures is a class"
            if "windows" in flatfile.facts(exported.data):
                what = "few.csv --query more.csv, with recordings of one person"
            print(f"next: pmeta adapt {shlex.quote(config.out)} --support {what}")


def write_c_array(out: Path, data: bytes) -> None:
    """The model as C beside the file: an array, and a header with the bytes that it takes."""
    if out.suffix in (".c", ".h"):
        raise ValueError(
            f"--c-array writes a .c and a .h beside the file, {out} would be one of them: name it "
            "otherwise."
        )
    header = out.with_suffix(".h")
    facts = c_text.model_facts(out.stem, data, DeviceModel(data))
    write_atomically(out.with_suffix(".c"), c_text.model_c(data, header.name).encode())
    write_atomically(header, c_text.model_h(facts).encode())


def export_run(
    run: str,
    float32: bool = False,
    batch: int | None = 1,
    classes: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
    model: str = "",
    memory_budget: int | None = None,
    with_frontier: bool = False,
    constants: str = "float32",
    least_step: float | None = None,
) -> Exported:
    """The best model of a run, compiled; with `classes` that many outputs, with `least_step`
    without the updates of smaller steps."""
    if least_step is not None and open_run(run).config().keys() & {"env", "pooled_epochs"}:
        raise ValueError(f"--least-step is for models of pictures, and {run} is none.")
    if "env" in open_run(run).config():
        if classes is not None:
            raise ValueError(
                f"--classes are those of a classifier, and {run} is a policy: leave it out."
            )
        return _policy(run, batch, memory_budget, with_frontier, constants)
    if "pooled_epochs" in open_run(run).config():
        if memory_budget is not None:
            raise ValueError(f"--memory-budget is for models of pictures, and {run} reads windows.")
        if constants != "float32":
            raise ValueError(f"--constants is for models of pictures, and {run} reads windows.")
        return _recogniser(run, batch, classes)
    trained, best = load(run, model)
    if classes is not None:
        trained = with_outputs(trained, run, classes)
    shape = tuple(best.info["input"])
    net, meta = restore(trained, best.tensors, shape, torch.device("cpu"))
    meta = meta.without_steps_below(least_step)
    kind, c = "float32" if float32 or len(shape) != 3 else "uint8", shape[0]
    scale, shift = [SCALE] * c, [SHIFT] * c
    method, sample = trained.method_row(), Sample(shape, kind)
    own = trained.memory_budget, trained.budget_accounting
    if memory_budget is None:
        memory_budget = export_budget(net, meta, method, *own, sample, batch)
    made = export(
        net,
        meta,
        method,
        shape,
        input_type=kind,
        scale=scale,
        shift=shift,
        batch=batch,
        progress=progress,
        memory_budget=memory_budget,
        with_frontier=with_frontier,
        constants=constants,
        temperatures=temperatures(run),
        n_shot=trained.n_shot,
    )
    return replace(made, trained_for=share_in_bytes(net, meta, *own, sample))


def _recogniser(run: str, batch: int | None, classes: int | None) -> Exported:
    """The best model of a run on recordings, which reads float32 windows."""
    from pmeta.sensors.restore import export_run as recogniser  # late: pictures need none

    if classes is not None:
        raise ValueError(f"the activities of {run} are those of its training: leave out --classes.")
    return recogniser(run, batch)


def _policy(
    run: str, batch: int | None, memory_budget: int | None, with_frontier: bool, constants: str
) -> Exported:
    """The same for a run on reinforcement learning: a sample is an episode, horizon x observations
    in float32."""
    from pmeta.rl.restore import restore as restore_policy

    config, env, net, meta = restore_policy(run)
    method, shape = config.method_row(), (config.horizon, env.obs_size)
    if memory_budget is None:
        own = config.memory_budget, config.budget_accounting
        memory_budget = export_budget(net, meta, method, *own, Sample(shape), batch)
    return export(
        net,
        meta,
        method,
        shape,
        batch=batch,
        memory_budget=memory_budget,
        with_frontier=with_frontier,
        constants=constants,
    )


def show_frontier(e: Exported) -> None:
    """The plans that there are, and what is in the way of the next smaller arena."""
    table = Table("plan", "arena bytes", "MMACs of a step", "in the way", "its bytes")
    for column in (1, 2, 4):
        table.columns[column].justify = "right"
    for p in e.frontier:
        size, macs = f"{p.arena_bytes:,}", f"{p.macs / 1e6:.1f}"
        table.add_row(p.passes, size, macs, p.tensor, f"{p.tensor_bytes:,}")
    Console(highlight=False).print(table)


def save_frontier(path: Path, e: Exported, budget: int | None) -> None:
    """The same as a picture."""
    from pmeta.report.frontier import frontier_picture
    from pmeta.report.picture import save

    fitting = [i for i, p in enumerate(e.frontier) if budget is None or p.arena_bytes <= budget]
    plans = [(p.arena_bytes, p.macs) for p in e.frontier]
    save(frontier_picture(plans, budget, fitting[0]), path)


def show(path: str, e: Exported) -> None:
    """What the file takes: bytes, the layer that costs them, MACs."""
    console = Console(highlight=False)
    print(f"{path}: {len(e.data):,} bytes")
    table = Table("", "arena bytes", "fullest at", "MMACs a sample")
    for column in (1, 3):
        table.columns[column].justify = "right"
    rows = ["inference", *(f"step {k}" for k in range(1, len(e.peaks)))]
    for name, (layer, size), macs in zip(rows, e.peaks, e.macs, strict=True):
        table.add_row(name, f"{size:,}", layer, f"{macs / 1e6:.1f}")
    console.print(table)
    console.print(
        f"to adapt: {e.arena_bytes:,} bytes, of them {e.state_bytes:,} for the weights under "
        f"adaptation; beside it one sample of {e.input_bytes:,} bytes",
        soft_wrap=True,
    )
    if e.trained_for:
        console.print(f"trained for {e.trained_for}", soft_wrap=True)
    if e.batch != 1:
        who = f"micro-batches of {e.batch}" if e.batch else "all samples"
        console.print(
            f"samples are fed one at a time; {who} share their attention scores", soft_wrap=True
        )
    for name in e.alone:
        console.print(
            f"{name} belongs to no layer: the engine leaves it as it is, its step sizes are in the "
            "file",
            soft_wrap=True,
        )
