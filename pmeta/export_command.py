"""The command `pmeta export RUN`: the best model of a run as one file for the device."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

from pmeta.config import ImageConfig
from pmeta.evaluate_command import load, restore
from pmeta.export import Exported, export
from pmeta.images import SCALE, SHIFT
from pmeta.runs import write_atomically
from pmeta.train import open_images


@dataclass(frozen=True)
class ExportConfig:
    """Write the best model of a run as one file that a device adapts, and print what it will take."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"])] = "model.pmeta"
    """File to write."""
    float32: bool = False
    """Read normalised float32 samples instead of raw uint8 pixels."""
    quiet: bool = False
    """Print nothing."""


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(ExportConfig, args=argv, prog="pmeta export", description=ExportConfig.__doc__)
    exported = export_run(config.run, config.float32)
    write_atomically(Path(config.out), exported.data)
    if not config.quiet:
        show(config.out, exported)


def export_run(run: str, float32: bool = False) -> Exported:
    """The best model of a run, compiled."""
    trained, best = load(run)
    shape = input_shape(trained, best.tensors)
    net, meta = restore(trained, best.tensors, shape, torch.device("cpu"))
    kind, c = "float32" if float32 else "uint8", shape[0]
    return export(net, meta, trained.method_row(), shape, input_type=kind, scale=[SCALE] * c, shift=[SHIFT] * c)


def input_shape(config: ImageConfig, tensors: dict[str, Any]) -> tuple[int, int, int]:
    """(C, H, W) of a sample, from the checkpoint; from the data where the run took images in their own size."""
    if config.image_size is None:
        return open_images(config, "train").shape
    first = next(t for name, t in tensors.items() if name in ("w/conv1.weight", "w/block1.conv1.weight"))
    return (first.shape[1], config.image_size, config.image_size)


def show(path: str, e: Exported) -> None:
    """What the file takes: bytes, the layer that costs them, MACs."""
    console = Console(highlight=False)
    table = Table(
        "", "arena bytes", "fullest at", "MMACs a sample", title=f"{path}: {len(e.data):,} bytes", title_justify="left"
    )
    for column in (1, 3):
        table.columns[column].justify = "right"
    rows = ["inference", *(f"step {k}" for k in range(1, len(e.peaks)))]
    for name, (layer, size), macs in zip(rows, e.peaks, e.macs, strict=True):
        table.add_row(name, f"{size:,}", layer, f"{macs / 1e6:.1f}")
    console.print(table)
    console.print(
        f"to adapt: {e.arena_bytes:,} bytes, of them {e.state_bytes:,} for the weights under adaptation; "
        f"beside it one sample of {e.input_bytes:,} bytes"
    )
