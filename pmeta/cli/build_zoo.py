"""The command `pmeta zoo build NAME`: the files of a model whose weights are in another package."""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

import tyro

from pmeta import zoo
from pmeta.base.errors import how_to_install
from pmeta.base.files import make_folder, write_atomically


@dataclass(frozen=True)
class BuildConfig:
    """Make the files of a model of which only what was learned here comes with the package."""

    model: tyro.conf.Positional[str]
    """Which; `pmeta zoo` lists it."""
    quiet: bool = False
    """Print nothing."""


def main(argv: list[str]) -> None:
    """Run the command."""
    description = BuildConfig.__doc__
    build(tyro.cli(BuildConfig, args=argv, prog="pmeta zoo build", description=description))


def build(config: BuildConfig) -> None:
    """Compile the network of the other package with what was learned here."""
    if config.model not in zoo.built():
        raise ValueError(
            f"the models that are built are {', '.join(zoo.built()) or 'none'}, got "
            f"{config.model!r}; all others come as they are."
        )
    card, exporter = zoo.card(config.model), _exporter()
    make_folder(zoo.home(config.model))
    for file in card["files"]:
        path = zoo.home(config.model) / file["file"]
        trained = file["outputs"] == card["config"]["n_way"]
        made = exporter.export_run(config.model, classes=None if trained else file["outputs"])
        write_atomically(path, made.data)
        if not config.quiet:
            print(
                f"{path}: {len(made.data):,} bytes, up to {file['outputs']} classes in "
                f"{made.arena_bytes:,} bytes"
            )
    if not config.quiet:
        print(f"next: pmeta adapt {config.model} --support FOLDER")


def _exporter() -> ModuleType:
    """What compiles, which needs torch, as the list of models does not."""
    try:
        return import_module("pmeta.cli.export")
    except ModuleNotFoundError as error:
        raise ValueError(
            f"pmeta zoo build needs {error.name}, which is not installed: "
            f"{how_to_install('imagenet')}."
        ) from None
