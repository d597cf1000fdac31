"""The command `pmeta firmware MODEL`: a folder that builds for a board, without torch."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from pmeta import zoo
from pmeta.cli.device.learn import check_support, open_any
from pmeta.device import DeviceModel
from pmeta.device.samples import read_samples
from pmeta.device.support import no_classifier, read_support
from pmeta.firmware import fit
from pmeta.firmware.example import Lesson, patterns
from pmeta.firmware.folder import write_folder
from pmeta.firmware.targets import TARGETS, Target

Name = Literal[
    "qemu-m4f", "qemu-m7", "qemu-m55", "generic", "arduino", "esp-idf", "zephyr", "platformio"
]


@dataclass(frozen=True)
class FirmwareConfig:
    """Write a folder that builds as it is: the engine in C, the model as an array in flash, an
    example that adapts to a few samples and names others, and the build files of a board."""

    model: tyro.conf.Positional[str]
    """Name of a model that `pmeta zoo` lists, or file that `pmeta export` or `pmeta adapt --save`
    wrote."""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"])] = "firmware"
    """Folder to write; it must be new or empty."""
    target: Name = "generic"
    """Build system and part: three boards that QEMU emulates, plain C, or the form that an
    ecosystem expects."""
    support: str = ""
    """Samples that the example learns from, as `pmeta adapt --support` reads them; without it,
    patterns drawn at random."""
    query: str = ""
    """Samples that the example names, as `pmeta adapt --query` reads them; without it, those of the
    support set."""
    ram: int = 0
    """Bytes of RAM of a part of yours; 0: those of the target's."""
    flash: int = 0
    """Bytes of its flash."""


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(
        FirmwareConfig, args=argv, prog="pmeta firmware", description=FirmwareConfig.__doc__
    )
    target = part(config)
    known = [*zoo.names(), *zoo.recognisers()]
    path, model = open_any(config.model, 1, known)
    if config.support and config.model in known:
        classes = len(read_samples(config.support, model).classes)
        path, model = open_any(config.model, classes, known)
    samples = example_samples(config, model)
    data = path.read_bytes()
    files = write_folder(Path(config.out), data, path.stem, samples, target)
    need = fit.needs(model, len(data), samples.bytes)
    print(f"{config.out}: {len(files)} files for {target.board}")
    print(f"RAM {need.ram:,} bytes, of them {need.arena:,} of the arena")
    print(f"flash {need.flash:,} bytes, of them {need.model:,} of the model")
    print(f"next: read {Path(config.out) / 'README.md'}")


def part(config: FirmwareConfig) -> Target:
    """The target, with the memory of the user's own part."""
    for name, size in (("--ram", config.ram), ("--flash", config.flash)):
        if size < 0:
            raise ValueError(f"{name} is a number of bytes, got {size}.")
    target = TARGETS[config.target]
    if config.ram or config.flash:
        target = dataclasses.replace(
            target,
            ram_bytes=config.ram or target.ram_bytes,
            flash_bytes=config.flash or target.flash_bytes,
        )
    return target


def example_samples(config: FirmwareConfig, model: DeviceModel) -> Lesson:
    """The user's samples, or drawn ones."""
    if config.query and not config.support:
        raise ValueError("--query goes with --support, whose classes it is of: give both.")
    if not config.support:
        return patterns(model)
    if not model.classifies:
        what, _ = no_classifier(model)
        raise ValueError(f"--support is for a classifier, this model is {what}: leave it out.")
    support = read_support(config.support, model)
    check_support(config.model, config.support, support, model)
    query = read_samples(config.query, model) if config.query else support
    return Lesson(support.x, support.labels, query.x)
