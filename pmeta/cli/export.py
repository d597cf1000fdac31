"""The command `pmeta export RUN`: the best model of a run as one file for the device."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.table import Table

from pmeta import kinds
from pmeta.base.console import Console
from pmeta.base.files import write_atomically
from pmeta.compiler.export import Exported, export
from pmeta.device import DeviceModel
from pmeta.device import model_file as flatfile
from pmeta.firmware import c_text
from pmeta.training.budget import export_budget, share_in_bytes
from pmeta.training.calibration import temperatures
from pmeta.training.restored import Asked, Restored
from pmeta.training.settings import parse_bytes
from pmeta.training.workers import Group


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
    with Console(stderr=True, quiet=config.quiet).status("reading the run") as status:
        exported = export_run(config.run, config, status.update)
    write_atomically(Path(config.out), exported.data)
    if config.c_array:
        write_c_array(Path(config.out), exported.data)
    if config.frontier:
        size = parse_bytes(config.memory_budget) if config.memory_budget else None
        save_frontier(Path(config.frontier), exported, size)
    if not config.quiet:
        show(config.out, exported)
        show_frontier(exported)
        facts = flatfile.facts(exported.data)
        if facts["loss"] == "cross-entropy" and not config.float32:
            takes = kinds.reading("export", config, config.run).TAKES
            if "calibrate" in takes and not flatfile.temperatures(exported.data):
                own = f" --model {shlex.quote(config.model)}" if config.model else ""
                print(
                    f"not calibrated: run pmeta calibrate {shlex.quote(config.run)}{own} and "
                    "export again, so that a probability is a share of right answers"
                )
            what = {
                "pictures": "FOLDER, where a folder of pictures is a class",
                "recordings": "few.csv --query more.csv, with recordings of one person",
                "arrays": "few.npz, with samples x and labels y",
            }[facts["reads"]]
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
    config: ExportConfig | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Exported:
    """The best model of a run, compiled with these options; its run folder is `run`."""
    config = config or ExportConfig(run, quiet=True)
    config.check()
    restore = kinds.reading("export", config, run).restore
    asked = Asked(
        run, n_way=config.classes, least_step=config.least_step, model=config.model, device="cpu"
    )
    r: Restored = restore(Group(), asked)
    if config.classes is not None and r.net.ops[-1].y[-1] != config.classes:
        raise ValueError(
            f"the head of {run} was meta-trained for {r.net.ops[-1].y[-1]} classes, got --classes "
            f"{config.classes}: take a model with a head from prototypes, such as "
            "miniimagenet-4conv, or train one with --head prototype."
        )
    sample = replace(r.sample, type="float32") if config.float32 else r.sample
    method = r.config.method_row()
    size = parse_bytes(config.memory_budget) if config.memory_budget else None
    if size is None:
        size = export_budget(r.net, r.meta, method, *r.budget, sample, config.batch)
    made = export(
        r.net,
        r.meta,
        method,
        sample.shape,
        input_type=sample.type,
        scale=r.scale,
        shift=r.shift,
        batch=config.batch,
        progress=progress,
        memory_budget=size,
        with_frontier=bool(config.frontier) or not config.quiet,
        constants=config.constants,
        temperatures=temperatures(run) if r.shots else (),
        facts=r.facts,
    )
    return replace(made, trained_for=share_in_bytes(r.net, r.meta, *r.budget, sample))


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
